//! Token files: each file is read or refused with the numbers of its lines, and a token whose line was written is found.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate::api::{NewToken, Tokens};
use tidegate_operations::control::Role;

fuzz_target!(|text: &str| {
    let read = match Tokens::parse(text) {
        Ok(tokens) => tokens,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let name = "fuzz-more".parse().expect("a good name");
    let token = NewToken::generate(name, Role::Read).expect("randomness");
    let more = Tokens::parse(&format!("{text}\n{}\n", token.line()));
    match more {
        Ok(more) => assert_eq!(more.count(), read.count() + 1),
        Err(error) => assert!(text.contains("fuzz-more"), "{error}"),
    }
});
