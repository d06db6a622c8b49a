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

#[test]
fn every_link_of_the_page_leads_to_a_file() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/deployment.md");
    let text = fs::read_to_string(&page).unwrap();
    let links: Vec<&str> =
        text.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0)).collect();
    assert!(links.len() > 5, "only {} links were found", links.len());
    for link in links {
        assert!(page.with_file_name(link).exists(), "{link} leads nowhere");
    }
}
