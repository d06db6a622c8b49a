//! `cargo xtask clients --faults`: faults planted into copies of the clients' sources, which the conformance cases must find.
//!
//! A suite that passes whatever a client does shows nothing. Each fault is one changed place; cases of its group must fail.
//! The same copy without a fault passes.

use super::{
    Counts, count,
    languages::{Command, GROUPS, Language},
    process::Place,
};
use crate::Failure;
use std::{
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{self, Stdio},
};

/// The faults, and the groups of cases that must find them.
const FAULTS: [(&str, &str); 11] = [
    ("local denials survive a give-back", "local denials"),
    ("denials are kept until their reset", "local denials"),
    ("seconds are rounded down", "headers"),
    ("a failed call is sent again", "failures"),
    ("the first of repeated headers is the key", "middleware"),
    ("failing closed is 429", "middleware"),
    ("a slot is not released at its end", "slots"),
    ("the denial of a slot is kept", "slots"),
    ("the estimate is charged instead of the actual cost", "slots"),
    ("a renewal renews nothing", "slots"),
    ("middleware keeps the slot of a request", "middleware"),
];

/// Groups of cases that find faults.
const FINDING: [&str; 5] = ["local denials", "headers", "failures", "middleware", "slots"];

/// How faults are planted into a language's client.
pub(super) struct Faults {
    /// For each of [`FAULTS`], in their order: a file, a text that it has once, and its replacement.
    pub(super) planted: &'static [(&'static str, &'static str, &'static str)],
    /// Command that runs the cases of [`FINDING`] in a copy of the folder.
    pub(super) test: Command,
    /// Directories that the copy links to instead, such as installed dependencies.
    pub(super) linked: &'static [&'static str],
    /// Completes a copy, given the repository and the copy of it.
    pub(super) complete: fn(&Path, &Path) -> io::Result<()>,
}

pub(super) fn header() -> Vec<&'static str> {
    [&["client", "no fault"], &FAULTS.map(|(name, _)| name)[..]].concat()
}

pub(super) fn run(language: &Language, place: &Place<'_>) -> Result<(Vec<String>, Vec<String>), Failure> {
    let Some(faults) = &language.faults else { return Ok((vec!["not tested".to_owned()], vec![])) };
    let copy = place.repository.join("target/client-faults");
    let original = place.repository.join("clients").join(language.folder);
    if faults.planted.len() != FAULTS.len() {
        return Err(format!("{} of {} faults are written for it", faults.planted.len(), FAULTS.len()));
    }
    place.prepare(language.install, &original)?;
    let (mut cells, mut failures) = (Vec::new(), Vec::new());
    for planted in [None].into_iter().chain((0..FAULTS.len()).map(Some)) {
        copy_client(language, faults, place.repository, &copy)?;
        let folder = copy.join("clients").join(language.folder);
        if let Some(fault) = planted {
            plant(&folder, faults.planted[fault])?;
        }
        let (text, _) = place.output(faults.test, &folder, Stdio::null(), ("TIDEGATE_BIN", place.server))?;
        let counts = count(language, &text);
        if planted.is_none() && FINDING.iter().any(|name| has_failed(name, &counts)) {
            eprintln!("{text}");
        }
        let mut failing = Vec::new();
        for group in FINDING {
            let (passed, all) = of_group(group, &counts);
            if all == 0 {
                return Err(format!("no case of {group} ran:\n{text}"));
            }
            let name = planted.map_or("no fault", |fault| FAULTS[fault].0);
            let is_wrong = match planted {
                None => passed < all,
                Some(fault) => FAULTS[fault].1 == group && passed == all,
            };
            if is_wrong {
                failures.push(format!("{name}: {} of {all} cases of {group} fail", all - passed));
            }
            if passed < all {
                failing.push(format!("{} of {all} {group}", all - passed));
            }
        }
        cells.push(if failing.is_empty() { "passes".to_owned() } else { failing.join(", ") + " fail" });
    }
    Ok((cells, failures))
}

/// Returns how many cases of a group passed, and how many ran.
fn of_group(group: &str, counts: &Counts) -> (usize, usize) {
    GROUPS.iter().zip(counts).find(|(name, _)| **name == group).map_or((0, 0), |(_, found)| *found)
}

fn has_failed(group: &str, counts: &Counts) -> bool {
    let (passed, all) = of_group(group, counts);
    passed < all
}

/// Copies a client and the conformance cases.
fn copy_client(language: &Language, faults: &Faults, repository: &Path, copy: &Path) -> Result<(), Failure> {
    let in_copy = |error: io::Error| format!("{}: {error}", copy.display());
    match fs::remove_dir_all(copy) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(in_copy(error)),
        _ => {}
    }
    for path in sources(language, repository)? {
        let target = copy.join(&path);
        fs::create_dir_all(target.parent().unwrap_or(copy)).map_err(in_copy)?;
        fs::copy(repository.join(&path), &target).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let folder = Path::new("clients").join(language.folder);
    for linked in faults.linked {
        symlink(repository.join(&folder).join(linked), copy.join(&folder).join(linked)).map_err(in_copy)?;
    }
    (faults.complete)(repository, copy).map_err(in_copy)
}

/// Returns the files that git knows of a client and of the cases, relative to the repository.
fn sources(language: &Language, repository: &Path) -> Result<Vec<PathBuf>, Failure> {
    let output = process::Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate", "--"])
        .args([&format!("clients/{}", language.folder), "clients/conformance", "clients/proto"])
        .current_dir(repository)
        .output()
        .map_err(|error| format!("git ls-files: {error}"))?;
    let text = String::from_utf8(output.stdout).map_err(|error| error.to_string())?;
    let paths = text.split_terminator('\0').map(PathBuf::from);
    Ok(paths.filter(|path| repository.join(path).is_file()).collect())
}

/// Replaces a text that occurs once.
fn plant(folder: &Path, (file, text, replacement): (&str, &str, &str)) -> Result<(), Failure> {
    let path = folder.join(file);
    let source = source_with_place(folder, file, text)?;
    fs::write(&path, source.replace(text, replacement))
        .map_err(|error| format!("{}: {error}", path.display()))
}

/// Reads a source that has the text of a fault once.
fn source_with_place(folder: &Path, file: &str, text: &str) -> Result<String, Failure> {
    let path = folder.join(file);
    let source = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    if source.matches(text).count() != 1 {
        return Err(format!("{file} does not have `{text}` once; adapt the fault to the source"));
    }
    Ok(source)
}

#[cfg(test)]
mod tests {
    use super::source_with_place;
    use crate::clients::languages::LANGUAGES;
    use std::path::Path;

    #[test]
    fn each_fault_has_its_place_in_the_sources() {
        let clients = Path::new(env!("CARGO_MANIFEST_DIR")).join("../clients");
        let missing: Vec<String> = LANGUAGES
            .iter()
            .flat_map(|language| {
                language
                    .faults
                    .iter()
                    .flat_map(move |faults| faults.planted.iter().map(move |fault| (language, fault)))
            })
            .filter_map(|(language, (file, text, _))| {
                source_with_place(&clients.join(language.folder), file, text).err()
            })
            .collect();
        assert!(missing.is_empty(), "{}", missing.join("\n"));
    }
}
