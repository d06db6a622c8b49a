//! The vocabulary of docs/ARCHITECTURE.md: a word in it names one type in the product.

use super::{rows_of_architecture, sources_below};
use std::{collections::BTreeMap, path::Path};

/// The folders of the product.
const PRODUCT: [&str; 3] = ["src", "crates", "modules"];

/// Parts of paths whose types are for tests only.
const OF_TESTS: [&str; 6] = ["tests", "tests.rs", "simulation", "properties", "oracle.rs", "benches"];

/// The types that the product declares: by name, the files that declare them.
fn declared() -> BTreeMap<String, Vec<String>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut declared = BTreeMap::<String, Vec<String>>::new();
    for (path, text) in PRODUCT.into_iter().flat_map(sources_below) {
        let path = path.strip_prefix(root).expect("below the root").to_string_lossy().into_owned();
        if path.split('/').any(|part| OF_TESTS.contains(&part)) {
            continue;
        }
        let product = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for name in product.lines().filter_map(declared_name) {
            declared.entry(name).or_default().push(path.clone());
        }
    }
    declared
}

/// The name of the type that a line declares.
fn declared_name(line: &str) -> Option<String> {
    let mut words = line.trim_start().split(' ').skip_while(|word| word.starts_with("pub") || *word == "in");
    let keyword = words.find(|word| !word.ends_with(')'))?;
    let name = words.next().filter(|_| ["struct", "enum", "trait", "type"].contains(&keyword))?;
    let name: String = name.chars().take_while(|c| c.is_alphanumeric()).collect();
    (!name.is_empty()).then_some(name)
}

#[test]
fn a_word_of_the_vocabulary_names_one_type() {
    let declared = declared();
    let rows = rows_of_architecture("| *");
    assert!(rows.len() > 15, "only {} words", rows.len());
    let mut wrong = Vec::new();
    for row in rows {
        let (word, ty, file) = (row[0].trim_matches('*'), row[2].trim_matches('`'), row[3].trim_matches('`'));
        let places = declared.get(ty).map_or(&[][..], Vec::as_slice);
        if places != [file] {
            wrong.push(format!("{word}: `{ty}` is declared in {places:?}, and the table states {file}"));
        }
        // The bare word is the type of the table, or no type.
        let capitalised = |word: &str| word[..1].to_uppercase() + &word[1..];
        let bare: String = word.split(' ').map(capitalised).collect();
        if bare != ty && declared.contains_key(&bare) {
            wrong.push(format!("{word} is `{ty}`: `{bare}` in {:?} is something else", declared[&bare]));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn declarations_are_found_with_every_visibility() {
    for line in ["struct A;", "pub enum A {", "pub(super) trait A: B {", "pub(in crate::x) type A<T> = T;"] {
        assert_eq!(declared_name(line).as_deref(), Some("A"), "{line}");
    }
    assert_eq!(declared_name("    let structure = a.struct_of(b);"), None);
}
