//! The pages, the sources and the messages contain no forms of sentences that readers have to read twice.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Forms that are ruled out, each with the form to write instead.
const RULED_OUT: [(&str, &str); 10] = [
    (" one that ", "the noun again"),
    (" ones that ", "the noun again"),
    ("such a one", "the noun again"),
    ("in the place of", "instead of"),
    ("in the reference server's place", "instead of the reference server"),
    ("At most too many", "the number, and what it is of"),
    ("a second one is more often", "who runs a second server, and why"),
    ("that one has the limits", "the noun again"),
    ("is there if its start is", "the condition, then what follows"),
    ("or more where that is", "a table"),
];

/// Forms that are ruled out in pages, whose readers have not read the code: each stands for a noun.
const RULED_OUT_IN_PAGES: [(&str, &str); 6] = [
    ("in place of", "instead of"),
    ("in its place", "instead"),
    ("takes the place of", "replaces"),
    ("take the place of", "replace"),
    (" is told", "who does what"),
    (" tells ", "shows, states, or who does what"),
];

/// Words of the vocabulary in docs/ARCHITECTURE.md, and folders that know nothing of what they mean.
const ABSENT: [(&str, &[&str]); 3] = [
    ("slot", &["crates/cel", "crates/counts", "crates/http2", "crates/threads", "crates/transport"]),
    // TLS has tickets of its own.
    ("ticket", &["crates/cel", "crates/counts", "crates/http2", "crates/snapshot", "crates/threads"]),
    (concat!("Queued(", "ticket"), &["crates", "src", "tests/it"]),
];

/// Folders and files that people read.
const READ: [&str; 11] = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "docs",
    "src",
    "crates",
    "modules",
    "proto/tidegate",
    "clients",
    "deploy",
];

fn files(path: &Path, found: &mut Vec<PathBuf>) {
    if path.is_file() {
        let is_text = path.extension().is_some_and(|extension| {
            ["md", "rs", "lua", "proto", "js", "html", "yaml", "py", "ts", "go", "java"]
                .iter()
                .any(|known| extension == *known)
        });
        found.extend(is_text.then(|| path.to_owned()));
        return;
    }
    let is_generated = path.file_name().is_some_and(|name| {
        let of_tools = name.as_encoded_bytes().starts_with(b".");
        of_tools || ["target", "node_modules", "dist", "build"].iter().any(|generated| name == *generated)
    });
    if is_generated {
        return;
    }
    for entry in fs::read_dir(path).expect("a folder") {
        files(&entry.expect("an entry").path(), found);
    }
}

#[test]
fn forms_of_sentences_that_are_ruled_out_stand_nowhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut all = Vec::new();
    READ.iter().for_each(|name| files(&root.join(name), &mut all));
    assert!(all.len() > 500, "only {} files were read", all.len());
    let mut wrong = Vec::new();
    for file in all {
        let Ok(text) = fs::read_to_string(&file) else { continue };
        for (number, line) in (1..).zip(text.lines()) {
            let is_page = file.extension().is_some_and(|extension| extension == "md");
            let of_pages = RULED_OUT_IN_PAGES.iter().filter(|_| is_page);
            for (form, instead) in RULED_OUT.iter().chain(of_pages) {
                if line.contains(form) {
                    wrong.push(format!("{}:{number}: {form:?}: write {instead}", file.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn words_of_the_vocabulary_stand_only_where_they_have_their_meaning() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut wrong = Vec::new();
    for (word, folders) in ABSENT {
        let mut all = Vec::new();
        folders.iter().for_each(|folder| files(&root.join(folder), &mut all));
        assert!(all.len() > folders.len(), "no files were read");
        for file in all {
            let text = fs::read_to_string(&file).expect("a source");
            let lines = (1..).zip(text.lines()).filter(|(_, line)| line.contains(word));
            wrong.extend(lines.map(|(number, line)| format!("{}:{number}: {line}", file.display())));
        }
    }
    assert!(
        wrong.is_empty(),
        "words with another meaning than in docs/ARCHITECTURE.md:\n{}",
        wrong.join("\n")
    );
}
