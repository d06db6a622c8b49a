//! Layering rules that manifests do not enforce, checked against the sources: imports between the rooms of a crate point down only, and
//! generated types stay in their rooms.

mod algorithms;
mod drawing;
mod imports;
mod vocabulary;
mod words;

use std::{
    fs,
    path::{Path, PathBuf},
};

/// For each room, the rooms that it may import from. A new import is added here.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("limit", &[]),
    ("clock", &["limit"]),
    ("sync", &[]),
    ("varint", &[]),
    ("algorithm", &["limit", "varint"]),
    ("key", &[]),
    ("prefetch", &[]),
    ("rules", &["limit", "algorithm", "key", "prefetch", "sync"]),
    ("store", &["limit", "algorithm", "key", "prefetch", "sync"]),
    ("limiter", &["limit", "algorithm", "rules", "store", "sync"]),
    ("config", &["limit", "algorithm", "limiter", "rules", "store", "clock", "sync"]),
    ("telemetry", &["limit", "limiter", "store", "config", "rules", "clock"]),
    ("control", &["limit", "limiter", "clock", "config", "telemetry", "rules", "store"]),
    ("console", &[]),
    (
        "api",
        &[
            "limit",
            // Counters, for operators: `control/` decides no request.
            "limiter",
            "varint",
            "clock",
            "telemetry",
            "config",
            "control",
            "console",
            "rules",
        ],
    ),
    ("server", &["limit", "limiter", "clock", "api", "telemetry", "store", "rules", "config", "control"]),
    ("fuzz_bridge", &["api"]),
    (
        "cli",
        &[
            "limit",
            "algorithm",
            "rules",
            "store",
            "limiter",
            "clock",
            "telemetry",
            "api",
            "config",
            "control",
            "server",
        ],
    ),
];

/// The sources below a folder of the package.
fn sources_below(folder: &str) -> Vec<(PathBuf, String)> {
    fn walk(folder: &Path, found: &mut Vec<(PathBuf, String)>) {
        for entry in fs::read_dir(folder).expect("a folder of sources") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("a source file");
                found.push((path, text));
            }
        }
    }
    let mut found = Vec::new();
    walk(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &mut found);
    assert!(found.len() > 20, "only {} sources were found", found.len());
    found
}

/// The crates that have several rooms, by their source folders.
const ROOMS: [&str; 3] = ["src", "crates/operations/src", "crates/core/src"];

/// The sources of these crates.
fn sources() -> Vec<(PathBuf, String)> {
    ROOMS.into_iter().flat_map(sources_below).collect()
}

/// The first name below `src`: the room.
fn room(path: &Path) -> String {
    let names: Vec<_> = path.components().map(|name| name.as_os_str().to_string_lossy()).collect();
    let above = names.iter().rposition(|name| name == "src").expect("below src");
    names[above + 1].trim_end_matches(".rs").to_owned()
}

/// The rooms that a text names in `crate::room…`, in `tidegate_core::room…` and similar paths, and in `use` lists of these paths.
fn imported(text: &str) -> Vec<String> {
    let code: String =
        text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
    let mut rooms = Vec::new();
    let starts = ["crate::", "tidegate_core::", "tidegate_operations::"]
        .into_iter()
        .flat_map(|start| code.match_indices(start).map(|(at, start)| (at, at + start.len())));
    for (at, end) in starts {
        // `$crate::` and paths such as `other_crate::` are not paths of this crate.
        if code[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_') {
            continue;
        }
        let rest = &code[end..];
        match rest.strip_prefix('{') {
            Some(list) => rooms.extend(names_at_top_level(list)),
            None => rooms.extend(leading_name(rest)),
        }
    }
    rooms
}

fn leading_name(text: &str) -> Option<String> {
    let name: String = text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    (!name.is_empty()).then_some(name)
}

/// The first names of the items of a `{a::…, b::{…}, c}` list, up to its closing brace.
fn names_at_top_level(list: &str) -> Vec<String> {
    let (mut depth, mut item, mut names) = (0, String::new(), Vec::new());
    for character in list.chars() {
        match character {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => names.extend(leading_name(std::mem::take(&mut item).trim())),
            other if depth == 0 => item.push(other),
            _ => {}
        }
    }
    names.extend(leading_name(item.trim()));
    names
}

#[test]
fn imports_point_down_only() {
    let mut wrong = Vec::new();
    for (path, text) in sources() {
        let room = room(&path);
        if room == "main" || room == "lib" {
            continue;
        }
        let allowed = MAY_IMPORT.iter().find(|(name, _)| *name == room);
        let Some((_, allowed)) = allowed else {
            wrong.push(format!("{}: the room `{room}` is not on the list", path.display()));
            continue;
        };
        for other in imported(&text) {
            if other != room && !allowed.contains(&other.as_str()) {
                wrong.push(format!("{}: `{room}` imports `{other}`", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn generated_types_stay_in_their_rooms() {
    let mut wrong = Vec::new();
    for (path, text) in sources() {
        let room = room(&path);
        // The exporters are clients of a collector, and use none of the generated messages.
        let is_exporter = path.to_string_lossy().contains("telemetry/collector/")
            || path.ends_with("telemetry/traces/exporter.rs")
            || path.to_string_lossy().contains("telemetry/metrics/otlp/");
        let names_tonic = text.match_indices("tonic::").any(|(at, _)| !text[..at].ends_with("Mono"));
        if (text.contains("pb::") || names_tonic && !is_exporter)
            && !["api", "server", "cli"].contains(&room.as_str())
        {
            wrong.push(format!("{}: the wire outside api/", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Otherwise tests/model would check less than what runs.
#[test]
fn locks_and_atomics_of_a_decision_are_those_of_the_sync_room() {
    const ELSEWHERE: [&str; 5] =
        ["parking_lot", "arc_swap", "atomic::Atomic", "std::sync::Mutex", "std::sync::RwLock"];
    let mut wrong = Vec::new();
    for (path, text) in sources() {
        if ["limit", "algorithm", "rules", "store", "limiter"].contains(&room(&path).as_str()) {
            let found = ELSEWHERE.into_iter().filter(|name| text.contains(name));
            wrong.extend(found.map(|name| format!("{}: {name}", path.display())));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_module_with_a_directory_is_its_mod_rs() {
    let sources: Vec<PathBuf> =
        sources().into_iter().chain(sources_below("tests")).map(|(path, _)| path).collect();
    let has_modules = |directory: &Path| sources.iter().any(|path| path.parent() == Some(directory));
    let of_directory = sources.iter().filter(|path| has_modules(&path.with_extension("")));
    let wrong: Vec<&PathBuf> = of_directory.collect();
    assert!(wrong.is_empty(), "beside the directory of the same name: {wrong:?}");
}

#[test]
fn the_import_reader_sees_lists_and_paths() {
    let text =
        "use crate::{limit::{A, B}, rules};\nlet x = crate::store::Key; // crate::server\n// use crate::cli;";
    assert_eq!(imported(text), ["limit", "rules", "store", "server"]);
    assert_eq!(imported("use tidegate_core::{limit::A, store};"), ["limit", "store"]);
}

/// The cells of the rows of docs/ARCHITECTURE.md whose first cell begins with this.
fn rows_of_architecture(start: &str) -> Vec<Vec<String>> {
    let page = include_str!("../../../docs/ARCHITECTURE.md");
    let rows = page.lines().filter(|line| line.starts_with(start));
    rows.map(|row| row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()).collect()
}

/// The crates of this repository that a manifest names under `[dependencies]`.
fn crates_in_manifest(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).expect("a manifest");
    let (_, dependencies) = text.split_once("[dependencies]\n").expect("dependencies");
    let lines = dependencies.lines().take_while(|line| !line.starts_with('['));
    lines
        .filter_map(|line| line.strip_prefix("tidegate-")?.split_once(' '))
        .map(|(name, _)| name.to_owned())
        .collect()
}

#[test]
fn the_table_of_crates_has_the_dependencies_of_the_manifests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let rows = rows_of_architecture("| `tidegate");
    let folders = fs::read_dir(root.join("crates")).expect("crates/").count();
    assert_eq!(rows.len(), folders + 1, "one row for each crate");
    for row in rows {
        let name = row[0].split('`').nth(1).expect("a name");
        let folder =
            name.strip_prefix("tidegate-").map_or(root.to_owned(), |name| root.join("crates").join(name));
        let stated: Vec<&str> = row[2].split(", ").filter(|name| !name.is_empty()).collect();
        assert_eq!(crates_in_manifest(&folder.join("Cargo.toml")), stated, "{name}");
    }
}

#[test]
fn the_tables_of_rooms_have_every_folder() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let stated: Vec<String> = rows_of_architecture("| `")
        .iter()
        .filter_map(|row| Some(row[0].split('`').nth(1)?.trim_end_matches('/').to_owned()))
        .collect();
    for folder in ROOMS {
        for entry in fs::read_dir(root.join(folder)).expect("a folder") {
            let name = entry.expect("an entry").file_name().to_string_lossy().into_owned();
            let is_room = !["lib.rs", "main.rs"].contains(&name.as_str());
            assert!(!is_room || stated.contains(&name), "{folder}/{name} has no row");
        }
    }
}
