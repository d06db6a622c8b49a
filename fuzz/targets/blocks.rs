//! Files of blocks: each has an error with its line, or every line is a block with its place.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_core::{
    limit::Entry,
    rules::{DEMO, LoadOptions, RuleSet, Source, SourceId},
};

fuzz_target!(|text: &str| {
    let file = Source::new(SourceId::Blocks("blocks.txt".into()), text);
    let lines = text.lines().count();
    let rules = match RuleSet::parse(&[Source::file("demo.yaml", DEMO), file], &LoadOptions::default()) {
        Ok(rules) => rules,
        Err(errors) => {
            for error in errors.iter() {
                assert!(error.origin.to_string().starts_with("blocks.txt:"), "{error}");
            }
            return;
        }
    };
    for block in rules.file_blocks() {
        let line = block.id.strip_prefix("blocks.txt:").and_then(|line| line.parse::<usize>().ok());
        assert!(line.is_some_and(|line| (1..=lines + 1).contains(&line)), "{block:?}");
        let domain = rules.domain("demo").expect("declared");
        for value in ["", "192.0.2.1", "2001:db8::1", text] {
            let _ = domain.find(&[Entry { key: &block.key, value }]);
        }
    }
});
