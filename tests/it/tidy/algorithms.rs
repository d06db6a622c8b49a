//! An algorithm is one file. Few other files name its type, and docs/ARCHITECTURE.md lists them.

use super::{leading_name, rows_of_architecture, sources_below};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

/// The most files of the product that may name the type of an algorithm, including its own file.
const FILES_MAX: usize = 8;

/// The variants of `Algorithm`, which have the same names as their types.
fn algorithms(sources: &BTreeMap<PathBuf, String>) -> Vec<String> {
    let text = &sources[Path::new("crates/core/src/algorithm/mod.rs")];
    let (_, variants) = text.split_once("pub enum Algorithm {").expect("the algorithms");
    let (variants, _) = variants.split_once("\n}").expect("their end");
    let name = |line: &str| Some(line.trim().strip_suffix("),")?.split_once('(')?.0.to_owned());
    variants.lines().filter_map(name).collect()
}

/// The product's sources by their paths, without tests and comments.
fn product() -> BTreeMap<PathBuf, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let all = ["src", "crates", "modules"].into_iter().flat_map(sources_below);
    let sources = all.filter_map(|(path, text)| {
        let path = path.strip_prefix(root).expect("below the root").to_owned();
        path.components().any(|name| name.as_os_str() == "src").then_some((path, text))
    });
    let mut sources: BTreeMap<PathBuf, String> = sources.collect();
    let of_tests: Vec<PathBuf> = sources.iter().flat_map(|(path, text)| test_modules(path, text)).collect();
    let is_test = |path: &Path| {
        of_tests.iter().any(|module| path.starts_with(module) || path == module.with_extension("rs"))
    };
    sources.retain(|path, _| !is_test(path));
    for text in sources.values_mut() {
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let lines: Vec<&str> = code.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        *text = lines.join("\n");
    }
    sources
}

/// The modules, without an extension, that a file declares for tests alone.
fn test_modules(path: &Path, text: &str) -> Vec<PathBuf> {
    let folder = path.parent().expect("a file in a folder");
    let after_attribute = text.split("#[cfg(test)]\n").skip(1);
    let name = |text: &str| {
        let line = text.lines().next()?.strip_suffix(';')?;
        let (_, name) = line.rsplit_once("mod ")?;
        Some(folder.join(name))
    };
    after_attribute.filter_map(name).collect()
}

fn has_word(text: &str, word: &str) -> bool {
    text.split(|character: char| !character.is_alphanumeric() && character != '_').any(|found| found == word)
}

/// Whether a file names the type of an algorithm, or its variant. Enums and messages elsewhere have variants of the same names.
fn names(path: &Path, text: &str, algorithm: &str) -> bool {
    if path.starts_with("crates/core/src/algorithm") {
        return has_word(text, algorithm);
    }
    let after = |start: &'static str| {
        text.match_indices(start).map(|(at, start)| (&text[..at], &text[at + start.len()..]))
    };
    let is_whole = |before: &str| !before.ends_with(|before: char| before.is_alphanumeric() || before == '_');
    let imports = after("algorithm::").any(|(before, rest)| {
        let list = rest.strip_prefix('{').map_or_else(
            || leading_name(rest).unwrap_or_default(),
            |list| list.split('}').next().unwrap_or_default().to_owned(),
        );
        is_whole(before) && has_word(&list, algorithm)
    });
    let is_variant =
        |(before, rest): (&str, &str)| is_whole(before) && leading_name(rest).as_deref() == Some(algorithm);
    imports || after("Algorithm::").any(is_variant)
}

/// The files that the page lists for an algorithm: their paths from the root.
fn listed(algorithm: &str) -> BTreeSet<PathBuf> {
    let rows = rows_of_architecture(&format!("| `{algorithm}` |"));
    let cells = rows.iter().filter_map(|row| row.get(1));
    let files = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    files
        .map(|file| match file.starts_with("modules/") {
            true => PathBuf::from(file),
            false => Path::new("crates/core/src").join(file),
        })
        .collect()
}

#[test]
fn an_algorithm_is_one_file_and_few_others_name_its_type() {
    let sources = product();
    let algorithms = algorithms(&sources);
    assert!(algorithms.len() > 6, "{algorithms:?}");
    let mut wrong = Vec::new();
    for algorithm in &algorithms {
        let named = sources.iter().filter(|(path, text)| names(path, text, algorithm));
        let named: BTreeSet<PathBuf> = named.map(|(path, _)| path.clone()).collect();
        if named.len() > FILES_MAX {
            wrong.push(format!("{algorithm} is named by {} files: {named:?}", named.len()));
        }
        let listed = listed(algorithm);
        for file in named.symmetric_difference(&listed) {
            let where_ =
                if listed.contains(file) { "only in docs/ARCHITECTURE.md" } else { "only in the code" };
            wrong.push(format!("{algorithm}, {}: {where_}", file.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn modules_for_tests_and_names_are_found() {
    let text = "mod a;\n#[cfg(test)]\nmod bounds;\n#[cfg(test)]\npub(crate) mod properties;\n#[cfg(test)]\nmod tests {\n";
    let found = test_modules(Path::new("x/src/mod.rs"), text);
    assert_eq!(found, [Path::new("x/src/bounds"), Path::new("x/src/properties")]);
    let names = |text: &str| names(Path::new("x/src/mod.rs"), text, "Ban");
    for text in
        ["use a::{algorithm::{A, Ban}, b};", "use a::algorithm::Ban;", "matches!(it, Algorithm::Ban(_))"]
    {
        assert!(names(text), "{text}");
    }
    for text in ["use a::algorithm::{Bans, OverBan};", "Home::Ban", "OwnAlgorithm::Ban"] {
        assert!(!names(text), "{text}");
    }
}
