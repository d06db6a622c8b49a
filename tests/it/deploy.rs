//! What `deploy/` and its page tell users to set is there to be set.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Every file of `deploy/`, and the page on it.
fn files() -> Vec<PathBuf> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).expect("a folder of deploy/") {
            let path = entry.expect("an entry").path();
            if path.is_dir() { walk(&path, found) } else { found.push(path) }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = vec![root.join("docs/deployment.md")];
    walk(&root.join("deploy"), &mut found);
    assert!(found.len() > 6, "only {} files were found", found.len());
    found
}

/// The words of a text that begin with `prefix` and go on in characters that `goes_on` takes.
fn words(text: &str, prefix: &str, goes_on: fn(char) -> bool) -> BTreeSet<String> {
    let word = |(at, _): (usize, &str)| text[at..].chars().take_while(|&c| goes_on(c)).collect();
    text.match_indices(prefix).map(word).collect()
}

#[test]
fn every_variable_that_is_set_is_one_that_serve_reads() {
    let is_of_variable = |c: char| c.is_ascii_uppercase() || c == '_';
    let help = Command::new(env!("CARGO_BIN_EXE_tidegate")).args(["serve", "--help"]).output().unwrap();
    let known = words(&String::from_utf8_lossy(&help.stdout), "TIDEGATE_", is_of_variable);
    let mut named = 0;
    for file in files() {
        for variable in words(&fs::read_to_string(&file).unwrap(), "TIDEGATE_", is_of_variable) {
            named += 1;
            assert!(known.contains(&variable), "{} names {variable}", file.display());
        }
    }
    assert!(named > 3, "only {named} variables were found");
}

/// The heading of a page as links name it: small letters and hyphens.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-'));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

#[test]
fn every_link_of_the_pages_leads_to_a_file_and_a_heading() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let mut found = 0;
    for name in ["deployment.md", "answers.md", "rules.md"] {
        let page = docs.join(name);
        let text = fs::read_to_string(&page).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0)) {
            found += 1;
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = page.with_file_name(file);
            assert!(target.exists(), "{link} in {name} leads nowhere");
            if !heading.is_empty() {
                let target = fs::read_to_string(target).unwrap();
                let mut headings = target.lines().filter(|line| line.starts_with('#'));
                let is_there = headings.any(|line| anchor(line.trim_start_matches(['#', ' '])) == heading);
                assert!(is_there, "{link} in {name} leads to no heading");
            }
        }
    }
    assert!(found > 10, "only {found} links were found");
}
