//! `cargo xtask clients --faults`: faults planted into copies of the clients' sources, which the conformance cases must find.
//!
//! A suite that passes whatever a client does shows nothing. Each fault changes one place in the source of a client whose tests pass; some
//! cases of its group must then fail. Others must pass, which shows that the copy runs.

use super::{
    Counts, Outcome, count,
    languages::{Command, GROUPS, Language},
    process::Place,
};
use crate::Failure;
use std::{
    collections::{BTreeMap, BTreeSet},
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

/// Stands for the group of cases that a command runs.
const SELECTED: &str = "GROUP";

/// The way in which faults are planted into a language's client.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Faults {
    /// By the names in [`FAULTS`].
    planted: BTreeMap<String, PlantedFault>,
    /// Command that runs cases in a copy of the folder; [`SELECTED`] in it stands for their group.
    test: Command,
    /// The arguments that [`SELECTED`] stands for, by the groups in [`FAULTS`].
    groups: BTreeMap<String, String>,
    /// Directories that the copy links to instead of copying them, such as installed dependencies.
    #[serde(default)]
    linked: Vec<String>,
}

/// One changed place.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct PlantedFault {
    file: String,
    /// A text that occurs in the file exactly once.
    text: String,
    replacement: String,
}

pub(super) fn names() -> Vec<&'static str> {
    FAULTS.map(|(name, _)| name).to_vec()
}

/// Plants the faults into a language's client, whose dependencies are installed and whose tests pass.
pub(super) fn run(language: &Language, place: &Place<'_>) -> Outcome {
    let faults = &language.faults;
    let copy = place.repository.join("target/client-faults").join(language.folder);
    faults.check()?;
    let (mut cells, mut failures) = (Vec::new(), Vec::new());
    for (name, group) in FAULTS {
        copy_client(language, faults, place.repository, &copy)?;
        let folder = copy.join("clients").join(language.folder);
        faults.planted[name].plant(&folder)?;
        let test: Vec<String> =
            faults.test.iter().map(|text| text.replace(SELECTED, &faults.groups[group])).collect();
        let (text, _) = place.output(&test, &folder, Stdio::null(), ("TIDEGATE_BIN", place.server))?;
        let (passed, all) = of_group(group, &count(&text));
        let cell = format!("{} of {all} {group} fail", all - passed);
        if passed == 0 || passed == all {
            failures.push(format!("{name}: {cell}"));
            eprintln!("{text}");
        }
        cells.push(cell);
    }
    Ok((cells, failures))
}

/// Returns how many cases of a group passed, and how many ran.
fn of_group(group: &str, counts: &Counts) -> (usize, usize) {
    GROUPS.iter().zip(counts).find(|(name, _)| **name == group).map_or((0, 0), |(_, found)| *found)
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
    for linked in &faults.linked {
        symlink(repository.join(&folder).join(linked), copy.join(&folder).join(linked)).map_err(in_copy)?;
    }
    if copy.join(&folder).join("Cargo.toml").exists() {
        complete_workspace(&folder, repository, copy).map_err(in_copy)?;
    }
    Ok(())
}

/// Writes the manifest of a workspace with the copied client alone, with the lints and profiles of the repository.
fn complete_workspace(folder: &Path, repository: &Path, copy: &Path) -> io::Result<()> {
    let manifest = fs::read_to_string(repository.join("Cargo.toml"))?;
    let mut is_kept = false;
    let sections = manifest.lines().filter(|line| {
        if line.starts_with('[') {
            is_kept = line.starts_with("[workspace.lints") || line.starts_with("[profile.dev");
        }
        is_kept
    });
    let sections: Vec<_> = sections.collect();
    let members = format!("[workspace]\nmembers = [{folder:?}]\nresolver = \"3\"\n\n");
    fs::write(copy.join("Cargo.toml"), members + &sections.join("\n") + "\n")?;
    fs::copy(repository.join("Cargo.lock"), copy.join("Cargo.lock"))?;
    Ok(())
}

/// Returns the files of a client and of the cases that git tracks, relative to the repository.
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

impl Faults {
    /// Refuses faults whose names are not in [`FAULTS`], and groups that are not those of [`FAULTS`].
    fn check(&self) -> Result<(), Failure> {
        let faults = BTreeSet::from(FAULTS.map(|(name, _)| name));
        if !self.planted.keys().eq(&faults) {
            return Err(format!("its faults are not these: {faults:?}"));
        }
        let groups = BTreeSet::from(FAULTS.map(|(_, group)| group));
        if self.groups.keys().eq(&groups) {
            Ok(())
        } else {
            Err(format!("its groups are not these: {groups:?}"))
        }
    }
}

impl PlantedFault {
    /// Replaces the text.
    fn plant(&self, folder: &Path) -> Result<(), Failure> {
        let source = self.source(folder)?;
        fs::write(folder.join(&self.file), source.replace(&self.text, &self.replacement))
            .map_err(|error| format!("{}: {error}", self.file))
    }

    /// Reads the file, in which the text has to occur exactly once.
    fn source(&self, folder: &Path) -> Result<String, Failure> {
        let Self { file, text, .. } = self;
        let path = folder.join(file);
        let source = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        if source.matches(text).count() != 1 {
            return Err(format!("{file} does not have `{text}` once; adapt the fault to the source"));
        }
        Ok(source)
    }
}

#[cfg(test)]
mod tests {
    use crate::clients::languages::languages;
    use std::path::Path;

    #[test]
    fn each_fault_has_its_place_in_the_sources() {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut missing = Vec::new();
        for language in languages(&repository).expect("the files are valid") {
            let folder = repository.join("clients").join(language.folder);
            missing.extend(language.faults.check().err());
            let sources = language.faults.planted.values().map(|fault| fault.source(&folder));
            missing.extend(sources.filter_map(Result::err));
        }
        assert!(missing.is_empty(), "{}", missing.join("\n"));
    }
}
