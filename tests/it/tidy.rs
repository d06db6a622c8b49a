//! Layering rules, checked against the sources: imports point down only, generated types and sled stay in their rooms.

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
    ("snapshot", &["limit", "algorithm", "rules", "store", "limiter", "clock"]),
    ("replay", &["limit", "algorithm", "limiter", "rules", "store"]),
    ("shared", &["limit", "algorithm", "rules", "limiter", "store", "clock", "sync"]),
    ("service", &["limit", "limiter", "clock", "rules", "store", "shared"]),
    ("config", &["limit", "algorithm", "limiter", "priority", "rules", "store", "clock", "sync"]),
    (
        "telemetry",
        &[
            "limit",
            "limiter",
            "store",
            "snapshot",
            "service",
            "config",
            "transport",
            "rules",
            "clock",
            "http2",
            "shared",
            "priority",
        ],
    ),
    (
        "control",
        &[
            "limit",
            "limiter",
            "clock",
            "service",
            "config",
            "telemetry",
            "rules",
            "store",
            "replay",
            "priority",
        ],
    ),
    ("console", &[]),
    ("http2", &[]),
    ("transport", &[]),
    ("priority", &["clock", "limit", "sync"]),
    (
        "api",
        &[
            "limit",
            "priority",
            // Counters, for operators: `control/` decides no request.
            "limiter",
            "varint",
            "clock",
            "service",
            "http2",
            "telemetry",
            "config",
            "control",
            "console",
            "replay",
            "rules",
            "transport",
            "shared",
        ],
    ),
    (
        "server",
        &[
            "limit",
            "priority",
            "limiter",
            "clock",
            "http2",
            "transport",
            "service",
            "api",
            "telemetry",
            "store",
            "rules",
            "snapshot",
            "config",
            "control",
            "shared",
        ],
    ),
    ("fuzz_bridge", &["cli", "api", "http2", "snapshot"]),
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
            "http2",
            "service",
            "api",
            "snapshot",
            "config",
            "control",
            "transport",
            "server",
            "shared",
            "replay",
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

fn sources() -> Vec<(PathBuf, String)> {
    sources_below("src")
}

/// The first name below `src`: the room.
fn room(path: &Path) -> String {
    let below = path.strip_prefix(Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).expect("below src");
    let first = below.components().next().expect("a file").as_os_str().to_string_lossy();
    first.trim_end_matches(".rs").to_owned()
}

/// The rooms that a text names in `crate::room…` and in `use crate::{…}` lists.
fn imported(text: &str) -> Vec<String> {
    let code: String =
        text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
    let mut rooms = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        // `$crate::` and paths such as `other_crate::` are not ours.
        if code[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_') {
            continue;
        }
        let rest = &code[at + "crate::".len()..];
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
fn generated_types_and_sled_stay_in_their_rooms() {
    let mut wrong = Vec::new();
    for (path, text) in sources() {
        let room = room(&path);
        if text.contains("sled::") && room != "snapshot" {
            wrong.push(format!("{}: sled outside snapshot/", path.display()));
        }
        // The exporters are clients of a collector, and have none of our messages.
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
}
