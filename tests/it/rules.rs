//! Rule files as people write them: those in `tests/rules/` and `examples/`, and the examples of `docs/rules.md`.

use std::{
    fs,
    path::{Path, PathBuf},
};
use tidegate::rules::{LoadOptions, RuleSet, Semantics, Source, read};

fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn yaml_files(directory: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(in_repository(directory)).expect("the directory is part of the repository");
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    files
}

/// The rules of one file under the name that errors are to show.
fn parse(name: &str, text: &str) -> Result<RuleSet, String> {
    let source = Source::file(name, text);
    RuleSet::parse(&[source], &LoadOptions::default()).map_err(|errors| errors.to_string())
}

/// Beside each broken file, `NAME.expected` holds what is to be said of it, to the letter.
#[test]
fn every_planted_error_is_told_with_its_place_and_the_remedy() {
    let files = yaml_files("tests/rules/broken");
    assert!(files.len() >= 35, "{} files", files.len());
    for file in files {
        let name = file.file_name().unwrap().to_str().unwrap();
        let told = parse(name, &fs::read_to_string(&file).unwrap()).expect_err(name) + "\n";
        let expected = fs::read_to_string(file.with_extension("expected")).unwrap_or_default();
        assert_eq!(told, expected, "what is told of {name} changed");
    }
}

/// Files of the reference server's grammar, with every feature it has.
#[test]
fn files_of_the_reference_server_load_unchanged() {
    for semantics in [Semantics::Exact, Semantics::Reference] {
        let sources = read(&[in_repository("tests/rules/reference")]).unwrap();
        assert!(sources.len() >= 4);
        let options = LoadOptions { semantics, merge_domains: false };
        let rules = RuleSet::parse(&sources, &options).unwrap_or_else(|errors| panic!("{errors}"));
        assert_eq!(rules.domains().count(), sources.len());
    }
}

#[test]
fn every_example_loads() {
    for file in yaml_files("examples") {
        let sources = read(&[file]).unwrap();
        if let Err(errors) = RuleSet::parse(&sources, &LoadOptions::default()) {
            panic!("{errors}");
        }
    }
}

/// Every block of the page that is a whole file is one that works.
#[test]
fn every_rule_file_in_the_documentation_loads() {
    let page = fs::read_to_string(in_repository("docs/rules.md")).unwrap();
    let blocks = page.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let files: Vec<_> = blocks.filter(|block| block.starts_with("domain:")).collect();
    assert!(files.len() >= 10, "{} whole files in the page", files.len());
    for file in files {
        if let Err(errors) = parse("docs/rules.md", file) {
            panic!("{errors}\n{file}");
        }
    }
}
