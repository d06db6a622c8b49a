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
