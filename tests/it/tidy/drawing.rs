//! Compares the drawing of docs/ARCHITECTURE.md with the manifests of the crates and the imports between the rooms of each crate that has
//! several.

use super::{ROOMS, crates_in_manifest, imports::Graph};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

/// The imports of each crate or room.
type Arrows = BTreeMap<String, BTreeSet<String>>;

/// All that a room or crate imports, directly or through others.
fn below(arrows: &Arrows, from: &str) -> BTreeSet<String> {
    let direct = arrows.get(from).cloned().unwrap_or_default();
    direct.iter().flat_map(|to| below(arrows, to)).chain(direct.clone()).collect()
}

/// One line for each room or crate that imports others, the upper ones first. Arrows that follow from others are left out.
fn drawn(arrows: &Arrows) -> Vec<String> {
    let mut names: Vec<&String> = arrows.keys().filter(|name| !arrows[*name].is_empty()).collect();
    names.sort_by_key(|name| (usize::MAX - below(arrows, name).len(), *name));
    let line = |name: &String| {
        let through: BTreeSet<String> = arrows[name].iter().flat_map(|to| below(arrows, to)).collect();
        let direct: Vec<&str> = arrows[name].difference(&through).map(String::as_str).collect();
        format!("    {name:<10} ──▶ {}", direct.join(", "))
    };
    names.into_iter().map(line).collect()
}

fn of_crates(root: &Path) -> Arrows {
    let folders = fs::read_dir(root.join("crates")).expect("crates/").map(|entry| entry.expect("an entry"));
    let manifest = |folder: &Path| crates_in_manifest(&folder.join("Cargo.toml")).into_iter().collect();
    folders
        .map(|folder| (folder.file_name().to_string_lossy().into_owned(), manifest(&folder.path())))
        .chain([("tidegate".to_owned(), manifest(root))])
        .collect()
}

fn of_rooms(source: &Path) -> Arrows {
    let mut arrows = Arrows::new();
    for (from, to) in Graph::read(source).edges().into_keys() {
        if let (Some(from), Some(to)) = (from.first(), to.first())
            && from != to
        {
            arrows.entry(from.clone()).or_default().insert(to.clone());
        }
    }
    arrows
}

#[test]
fn the_drawing_of_the_house_has_the_arrows_of_manifests_and_imports() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut lines = vec!["crates:".to_owned()];
    lines.extend(drawn(&of_crates(root)));
    for folder in ROOMS {
        lines.push(format!("{folder}:"));
        lines.extend(drawn(&of_rooms(&root.join(folder))));
    }
    let expected = format!("```text\n{}\n```", lines.join("\n"));
    let page = include_str!("../../../docs/ARCHITECTURE.md");
    assert!(page.contains(&expected), "the drawing of docs/ARCHITECTURE.md is to be\n{expected}");
}

#[test]
fn arrows_that_others_imply_are_not_drawn() {
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    let arrows = Arrows::from([
        ("a".to_owned(), set(&["b", "c", "d"])),
        ("b".to_owned(), set(&["d"])),
        ("c".to_owned(), set(&[])),
    ]);
    assert_eq!(drawn(&arrows), ["    a          ──▶ b, c", "    b          ──▶ d"]);
}
