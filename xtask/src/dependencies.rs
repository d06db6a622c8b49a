//! `cargo xtask dependencies`: compares the licence and the source of every dependency with `deny.toml`, and checks that each is built
//! once.
//!
//! The comparison is a part of `cargo deny check` that needs nothing but Cargo, so that CI can run it on any machine.

use crate::Failure;
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    process::{Command, ExitCode},
};

pub(super) fn run() -> Result<ExitCode, Failure> {
    let rules = fs::read_to_string("deny.toml")
        .map_err(|error| format!("cannot read deny.toml (run this at the repository's root): {error}"))?;
    let licenses = list(&rules, "allow").ok_or("deny.toml has no list `allow` of licences")?;
    let registries = list(&rules, "allow-registry").ok_or("deny.toml has no list `allow-registry`")?;
    let packages = packages()?;
    let mut faults: Vec<String> =
        packages.iter().filter_map(|package| fault(package, &licenses, &registries)).collect();
    faults.extend(built_again(&tree("normal,build")?, &tree("normal,build,dev")?));
    if faults.is_empty() {
        println!("{} packages: licences and sources are allowed by deny.toml", packages.len());
        println!("each dependency has one set of features, in the server, its build script and its tests");
        return Ok(ExitCode::SUCCESS);
    }
    Err(faults.join("\n"))
}

/// The strings of the list `name = [...]` of a TOML text.
fn list<'t>(toml: &'t str, name: &str) -> Option<BTreeSet<&'t str>> {
    let start = toml.lines().position(|line| line.split('=').next().is_some_and(|key| key.trim() == name))?;
    let mut found = BTreeSet::new();
    for line in toml.lines().skip(start) {
        found.extend(line.split('"').skip(1).step_by(2));
        if line.trim_end().ends_with(']') {
            return Some(found);
        }
    }
    None
}

fn cargo(args: &[&str]) -> Result<Vec<u8>, Failure> {
    let output = Command::new(env!("CARGO")).args(args).arg("--locked").output();
    let output = output.map_err(|error| format!("cannot run cargo: {error}"))?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

fn packages() -> Result<Vec<Value>, Failure> {
    let output = cargo(&["metadata", "--format-version", "1", "--all-features"])?;
    let metadata: Value = serde_json::from_slice(&output).map_err(|error| error.to_string())?;
    metadata["packages"].as_array().cloned().ok_or_else(|| "cargo metadata has no packages".to_owned())
}

/// The dependencies along edges of these kinds, one a line: name, version and features.
fn tree(edges: &str) -> Result<String, Failure> {
    let output = cargo(&["tree", "--edges", edges, "--prefix", "none", "--format", "{p} [{f}]"])?;
    Ok(String::from_utf8_lossy(&output).into_owned())
}

/// Packages that are built again because their features differ: between the server and its build script, or for its tests.
fn built_again(server: &str, tests: &str) -> Vec<String> {
    let features = |tree: &str| {
        let mut by_package = BTreeMap::<String, BTreeSet<String>>::new();
        for (package, rest) in tree.lines().filter_map(|line| line.split_once(" [")) {
            let features = rest.split(']').next().unwrap_or_default();
            by_package.entry(package.to_owned()).or_default().insert(features.to_owned());
        }
        by_package
    };
    let tests = features(tests);
    let is_once = |package: &String, features: &BTreeSet<String>| {
        features.len() == 1 && tests.get(package).is_none_or(|with_tests| with_tests == features)
    };
    let mut server = features(server);
    server.retain(|package, features| !is_once(package, features));
    let fault = |(package, features): (String, BTreeSet<String>)| {
        let sets = features.union(tests.get(&package).unwrap_or(&features)).cloned().collect::<Vec<_>>();
        format!(
            "{package}: is built {} times, with the features {}; declare the same ones in Cargo.toml",
            sets.len(),
            sets.join(" | ")
        )
    };
    server.into_iter().map(fault).collect()
}

/// The reason why a package is not allowed, if there is one.
fn fault(package: &Value, licenses: &BTreeSet<&str>, registries: &BTreeSet<&str>) -> Option<String> {
    let text = |key: &str| package[key].as_str();
    let name = format!("{} {}", text("name")?, text("version")?);
    // A package without a source is a member of this workspace.
    if let Some(source) = text("source")
        && !source.strip_prefix("registry+").is_some_and(|registry| registries.contains(registry))
    {
        return Some(format!("{name}: the source {source} is not allowed"));
    }
    match text("license") {
        None => Some(format!("{name}: no licence")),
        Some(license) if is_allowed(license, licenses) => None,
        Some(license) => Some(format!("{name}: the licence {license} is not allowed")),
    }
}

/// Whether the allowed licences satisfy an SPDX expression. A slash, which old packages write, means OR.
fn is_allowed(expression: &str, allowed: &BTreeSet<&str>) -> bool {
    if let Some((before, rest)) = expression.rsplit_once('(') {
        // An allowed licence, or none, has the value of the part in parentheses.
        let Some((inner, after)) = rest.split_once(')') else { return false };
        let value = allowed.first().filter(|_| is_allowed(inner, allowed)).copied().unwrap_or_default();
        return is_allowed(&format!("{before}{value}{after}"), allowed);
    }
    let expression = expression.replace('/', " OR ");
    expression.split(" OR ").any(|all| all.split(" AND ").all(|license| allowed.contains(license.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn packages_whose_features_differ_are_built_again() {
        let server =
            "root v1 (/here) []\nlog v1 [std]\nlog v1 [std] (*)\nbytes v1 []\nbytes v1 [std]\nregex v1 [a]\n";
        let tests = format!("{server}proptest v1 []\nregex v1 [a,b]\n");
        let faults = built_again(server, server);
        assert_eq!(
            faults,
            ["bytes v1: is built 2 times, with the features  | std; declare the same ones in Cargo.toml"]
        );
        let faults = built_again(server, &tests);
        assert!(
            matches!(&faults[..], [bytes, regex] if bytes.starts_with("bytes") && regex.contains("a | a,b"))
        );
    }

    #[test]
    fn expressions_are_satisfied_as_spdx_defines_them() {
        let allowed = BTreeSet::from(["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception"]);
        for good in [
            "MIT",
            "MIT/GPL-3.0",
            "GPL-3.0 OR MIT AND Apache-2.0",
            "(GPL-3.0 OR MIT) AND Apache-2.0",
            "Apache-2.0 WITH LLVM-exception",
        ] {
            assert!(is_allowed(good, &allowed), "{good}");
        }
        for bad in ["", "GPL-3.0", "MIT AND GPL-3.0", "(MIT", "MIT)", "MIT WITH LLVM-exception"] {
            assert!(!is_allowed(bad, &allowed), "{bad}");
        }
    }

    #[test]
    fn lists_are_read_over_several_lines() {
        let toml = "[licenses]\nallow = [\n  \"MIT\",\n  \"Zlib\", # why\n]\nallow-registry = [\"r\"]\n";
        assert_eq!(list(toml, "allow"), Some(BTreeSet::from(["MIT", "Zlib"])));
        assert_eq!(list(toml, "allow-registry"), Some(BTreeSet::from(["r"])));
        assert_eq!(list(toml, "deny"), None);
    }

    #[test]
    fn a_package_from_elsewhere_or_without_a_licence_is_a_fault() {
        let (licenses, registries) = (BTreeSet::from(["MIT"]), BTreeSet::from(["https://r"]));
        let fault = |package: Value| fault(&package, &licenses, &registries);
        let package = |source: Value, license: Value| json!({"name": "a", "version": "1", "source": source, "license": license});
        assert_eq!(fault(package("registry+https://r".into(), "MIT".into())), None);
        assert_eq!(fault(package(Value::Null, "MIT".into())), None);
        assert!(fault(package("git+https://r".into(), "MIT".into())).is_some());
        assert!(fault(package(Value::Null, Value::Null)).is_some());
        assert!(fault(package(Value::Null, "GPL-3.0".into())).is_some());
    }
}
