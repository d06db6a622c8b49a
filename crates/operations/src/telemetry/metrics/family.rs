//! Metric families: their names, kinds and texts, which `families.txt` lists.

use std::{collections::HashMap, sync::LazyLock};

/// Kind of a metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Counter,
    /// A counter whose samples have the name of the family, without a suffix.
    PlainCounter,
    Gauge,
    Histogram,
}

/// Head of a metric family.
#[derive(Clone, Copy, Debug)]
pub(super) struct Family {
    /// The whole name, without the suffix that counters have in texts.
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) kind: Kind,
}

/// All families, by their names.
static FAMILIES: LazyLock<HashMap<&'static str, Family>> = LazyLock::new(|| {
    let families = include_str!("families.txt").lines().map(Family::of_line);
    let families = families.map(|family| family.expect("each line has a kind, a name and a text"));
    families.map(|family| (family.name, family)).collect()
});

impl Family {
    /// The family of this whole name.
    pub(super) fn named(name: &str) -> Self {
        *FAMILIES.get(name).expect("tests write all metrics, and families.txt has them")
    }

    fn of_line(line: &'static str) -> Option<Self> {
        let (kind, rest) = line.split_once(' ')?;
        let (name, help) = rest.split_once(' ')?;
        let kind = match kind {
            "counter" => Kind::Counter,
            "plain_counter" => Kind::PlainCounter,
            "gauge" => Kind::Gauge,
            "histogram" => Kind::Histogram,
            _ => return None,
        };
        Some(Self { name, help, kind })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, path::Path};

    /// Prefixes of the names that pages write.
    const PREFIXES: [&str; 4] = ["tidegate_", "ratelimit_service_", "ratelimit_service_rate_limit_", ""];

    /// The code of this folder, without tests.
    fn code() -> String {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/telemetry/metrics");
        let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let sources = files.filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
        sources
            .map(|path| fs::read_to_string(path).unwrap().split("#[cfg(test)]").next().unwrap().to_owned())
            .collect()
    }

    /// A page whose family has no line could not be written.
    #[test]
    fn families_that_pages_write_are_those_of_the_list() {
        let code = code();
        let calls = [".value(", ".counts(", ".counts_by(", ".family(", ".samples("];
        let literals = calls.iter().flat_map(|call| code.split(call).skip(1)).filter_map(|rest| {
            let (name, _) = rest.trim_start().strip_prefix('"')?.split_once('"')?;
            Some(name)
        });
        let mut written = 0;
        for name in literals {
            let is_listed = PREFIXES.iter().any(|prefix| FAMILIES.contains_key(&*format!("{prefix}{name}")));
            assert!(is_listed, "{name} is not in families.txt");
            written += 1;
        }
        assert!(written > 80, "only {written} names were found");
        for name in FAMILIES.keys() {
            let is_written = PREFIXES.iter().any(|prefix| {
                name.strip_prefix(prefix).is_some_and(|name| code.contains(&format!("\"{name}\"")))
            });
            assert!(is_written, "no page writes {name} of families.txt");
        }
    }
}
