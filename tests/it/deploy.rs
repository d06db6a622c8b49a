//! Files that users copy, and pages that they read: variables and links exist.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Every file of `deploy/`, and `docs/deployment.md`.
fn files() -> Vec<PathBuf> {
    fn walk(directory: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(directory).expect("a directory of deploy/") {
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

/// Words of a text that start with `prefix` and continue with characters that `continues` accepts.
fn words(text: &str, prefix: &str, continues: fn(char) -> bool) -> BTreeSet<String> {
    let word = |(at, _): (usize, &str)| text[at..].chars().take_while(|&c| continues(c)).collect();
    text.match_indices(prefix).map(word).collect()
}

#[test]
fn every_variable_in_deploy_is_a_flag_of_serve() {
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

/// The instructions of the last stage of a Dockerfile, without its base and the copy of the binary.
fn image(file: &str) -> Vec<String> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/docker").join(file))
        .expect(file);
    let stage = &text[text.rfind("\nFROM ").expect("a stage")..];
    let instructions = stage.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let differs = |line: &str| {
        ["FROM ", "ARG "].iter().any(|word| line.starts_with(word)) || line.ends_with("/bin/tidegate")
    };
    let instructions = instructions.filter(|line| !differs(line));
    // The stage that the other files are copied from has another name.
    let instructions = instructions.map(|line| {
        line.split(' ').filter(|word| !word.starts_with("--from=")).collect::<Vec<_>>().join(" ")
    });
    instructions.collect()
}

#[test]
fn the_image_of_a_release_has_what_the_image_of_the_sources_has() {
    let release = image("release.Dockerfile");
    assert_eq!(release, image("Dockerfile"));
    let has = |text: &str| release.iter().any(|line| line.contains(text));
    assert!(has("/links/ /bin/"), "/bin/ratelimit is missing: {release:#?}");
    assert!(has("--chown=65534:65534 /data /var/lib/tidegate"), "no writable data directory: {release:#?}");
}

#[test]
fn ci_tests_every_crate() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let crates = fs::read_dir(root.join("crates")).expect("a directory");
    let names = crates.map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"));
    let workflow = fs::read_to_string(root.join(".github/workflows/ci.yaml")).expect("the workflow");
    let listed =
        workflow.split_once("crate: [").and_then(|(_, rest)| rest.split_once(']')).expect("a matrix").0;
    assert_eq!(names.collect::<BTreeSet<_>>(), listed.split(", ").map(str::to_owned).collect());
}

/// The package of the Rust client had the path `../../LICENSE` as the text of its licence.
#[test]
fn the_packages_of_clients_have_the_licence() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let licence = fs::read_to_string(root.join("LICENSE")).unwrap();
    for (client, manifest) in
        [("python", "pyproject.toml"), ("rust", "Cargo.toml"), ("typescript", "package.json")]
    {
        let client = root.join("clients").join(client);
        let own = fs::read_to_string(client.join("LICENSE")).unwrap();
        assert!(own == licence, "{} has another licence: {own}", client.display());
        let manifest = fs::read_to_string(client.join(manifest)).unwrap();
        assert!(manifest.contains("Apache-2.0"), "{} does not name it", client.display());
    }
}

/// The anchor of a heading as GitHub makes it: lower case, hyphens for spaces.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

/// The Markdown pages at the root and below the directories that contain pages.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let docs = ["", "docs", "docs/decisions", "docs/gateways", "docs/perf", "tests", "benches", "fuzz"];
    let clients =
        ["conformance", "go", "java", "python", "rust", "typescript"].map(|name| format!("clients/{name}"));
    let directories: Vec<_> = docs.map(str::to_owned).into_iter().chain(clients).collect();
    let files = directories.iter().flat_map(|name| fs::read_dir(root.join(name)).expect("a directory"));
    let paths = files.map(|file| file.expect("an entry").path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
}

#[test]
fn every_link_of_the_pages_leads_to_a_file_and_a_heading() {
    let mut found = 0;
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        let links = text.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
        for link in links.filter(|link| !link.contains("://")) {
            found += 1;
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { page.clone() } else { page.with_file_name(file) };
            assert!(target.exists(), "{link} in {} leads nowhere", page.display());
            if !heading.is_empty() {
                let target = fs::read_to_string(target).unwrap();
                let mut headings = target.lines().filter(|line| line.starts_with('#'));
                let is_there = headings.any(|line| anchor(line.trim_start_matches(['#', ' '])) == heading);
                assert!(is_there, "{link} in {} leads to no heading", page.display());
            }
        }
    }
    assert!(found > 50, "only {found} links were found");
}
