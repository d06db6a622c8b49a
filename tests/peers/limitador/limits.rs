//! Random limits of a namespace, in the form of a file of limits.

use crate::rng::Rng;
use std::{collections::BTreeSet, fmt::Write};

/// A namespace and its limits.
pub struct Domain {
    pub name: String,
    limits: Vec<Limit>,
}

struct Limit {
    max_value: u64,
    seconds: u64,
    name: Option<String>,
    conditions: Vec<String>,
    variables: Vec<String>,
}

/// Keys that requests have.
pub const KEYS: [&str; 4] = ["method", "path", "user", "plan"];

/// Values of these keys; each key may have any of them.
pub const VALUES: [&str; 6] = ["GET", "POST", "/api/v1", "/img", "ann", "7"];

/// Windows that do not end while the test runs.
const SECONDS: [u64; 3] = [36_000, 86_400, 604_800];

impl Domain {
    pub fn random(rng: &mut Rng, number: u64) -> Self {
        let name = format!("n{number}");
        let mut limits: Vec<Limit> = (0..rng.between(1, 5)).map(|_| Limit::random(rng)).collect();
        // Two limits with equal seconds, conditions and variables are an error here, and one limit there.
        let mut known = BTreeSet::new();
        limits.retain(|limit| {
            let sorted = |texts: &[String]| texts.iter().cloned().collect::<BTreeSet<_>>();
            known.insert((limit.seconds, sorted(&limit.conditions), sorted(&limit.variables)))
        });
        Self { name, limits }
    }

    pub fn yaml(&self) -> String {
        let mut yaml = String::new();
        for limit in &self.limits {
            let quoted = |texts: &[String]| {
                texts.iter().map(|text| format!("'{text}'")).collect::<Vec<_>>().join(", ")
            };
            let Limit { max_value, seconds, .. } = limit;
            let _ = write!(
                yaml,
                "- {{ namespace: {}, max_value: {max_value}, seconds: {seconds}, conditions: [{}], variables: [{}]",
                self.name,
                quoted(&limit.conditions),
                quoted(&limit.variables)
            );
            let name = limit.name.iter().fold(String::new(), |_, name| format!(", name: {name}"));
            let _ = writeln!(yaml, "{name} }}");
        }
        yaml
    }
}

impl Limit {
    fn random(rng: &mut Rng) -> Self {
        let conditions = (0..rng.pick(&[0, 1, 1, 2])).map(|_| condition(rng)).collect();
        let variables: BTreeSet<String> = (0..rng.pick(&[0, 0, 1, 1, 2])).map(|_| entry(rng)).collect();
        Self {
            max_value: rng.pick(&[0, 1, 2, 3, 5, 10, 20, 40]),
            seconds: rng.pick(&SECONDS),
            name: rng.once_in(3).then(|| format!("limit-{}", rng.below(4))),
            conditions,
            variables: variables.into_iter().collect(),
        }
    }
}

fn entry(rng: &mut Rng) -> String {
    format!("descriptors[0].{}", rng.pick(&KEYS))
}

/// A condition. Entries alone can decide half of the conditions; the rest has to be evaluated. Functions use only entries that are there: a
/// call that lacks an entry fails there, and counts nothing.
fn condition(rng: &mut Rng) -> String {
    let (one, value) = (entry(rng), rng.pick(&VALUES));
    let (other, key) = (entry(rng), rng.pick(&KEYS));
    match rng.below(14) {
        0..5 => format!("{one} == \"{value}\""),
        5 => format!("{one} != \"{value}\""),
        6 => format!("has({one})"),
        7 => format!("\"{key}\" in descriptors[0]"),
        8 => format!("{one} in [\"{value}\", \"ann\"]"),
        9 => format!("has({one}) && {one}.startsWith(\"/\") && {other} == \"{value}\""),
        10 => format!("has({one}) && {one}.endsWith(\"T\") || has({other}) && {other} != \"{value}\""),
        11 => format!("has({one}) && has({other}) && !({one} == {other})"),
        12 => format!("has({one}) && size({one}) > 3"),
        _ => format!("has({one}) && ({one}.contains(\"i\") ? true : {other} == \"{value}\")"),
    }
}
