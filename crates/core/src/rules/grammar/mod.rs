//! The grammar of rule files: reads declared descriptors from nodes.
//!
//! A key is known exactly where it is read: the functions here take each by its name, and those left over are unknown.
//! After an error reading continues with the rest, to find all errors; the result is then discarded.

mod algorithm;
mod ban;
mod descriptor;
mod extension;
mod limits_file;
mod on_deny;
mod rate_limit;
mod schedule;
mod value;
mod window;

pub use algorithm::DefaultAlgorithm;
pub(super) use algorithm::{IN_FLIGHT_MAX, LOG_LIMIT_MAX};
pub(super) use extension::{ExtensionDocuments, Extensions};
pub(super) use window::length as parse_window;

use super::{
    conditions::ConditionalLimit,
    error::{Origin, Problems},
    files::Source,
    limits::Registrar,
    pattern::Pattern,
    redaction::Redaction,
    rule::{Rule, Semantics},
    set::LoadOptions,
    value_set::ValueSet,
    yaml::{self, Field, Node, Report},
};
use crate::limit::MetricLabel;
use std::sync::Arc;

/// One file's part of a domain.
pub(super) struct DeclaredDomain {
    pub(super) name: Arc<str>,
    pub(super) origin: Origin,
    pub(super) descriptors: Vec<Declared>,
    /// Limits that apply by conditions: those of a LIMITS_FILE. A domain has these or descriptors.
    pub(super) limits: Vec<ConditionalLimit>,
    /// Whether its counters are in a shared store.
    pub(super) is_shared: bool,
}

/// One descriptor with those below it.
pub(super) struct Declared {
    pub(super) key: DeclaredKey,
    pub(super) value: DeclaredValue,
    /// Whether all values that match share one counter.
    pub(super) is_shared: bool,
    pub(super) rule: Rule,
    pub(super) below: Vec<Declared>,
    /// How the decision log writes values of the key; none if the descriptor does not declare it.
    pub(super) redaction: Option<Redaction>,
    /// The keys and indices that lead to it in the file, for messages.
    pub(super) path_in_file: String,
}

/// The keys that a descriptor is for.
pub(super) enum DeclaredKey {
    /// This one.
    Exact(Box<str>),
    /// Those that the pattern matches.
    Wildcard(Pattern),
}

/// The values of its key that a descriptor is for.
#[derive(Clone, Debug)]
pub(super) enum DeclaredValue {
    /// Those that no other descriptor of the key matches.
    Any,
    /// This one.
    Exact(Box<str>),
    /// Those that the pattern matches; all of them share one counter, or each has its own.
    Wildcard { pattern: Pattern, shared: bool },
    /// Those of the set; only for an exact key.
    Set(Box<ValueSet>),
}

impl Declared {
    /// The text by which the reference server finds it.
    pub(super) fn joined(&self) -> String {
        joined(&self.key, &self.value)
    }
}

/// `key_value`, or the key alone.
fn joined(key: &DeclaredKey, value: &DeclaredValue) -> String {
    let key = match key {
        DeclaredKey::Exact(key) => key,
        DeclaredKey::Wildcard(pattern) => pattern.as_str(),
    };
    match value {
        DeclaredValue::Any => key.to_owned(),
        DeclaredValue::Exact(value) => format!("{key}_{value}"),
        DeclaredValue::Wildcard { pattern, .. } => format!("{key}_{pattern}"),
        // The reference server has none: metrics show its entry as that of a key alone.
        DeclaredValue::Set(set) if set.is_shared => format!("{key}_{}", set.label()),
        DeclaredValue::Set(_) => key.to_owned(),
    }
}

impl DeclaredValue {
    /// Whether the descriptor is for this value.
    pub(super) fn matches(&self, value: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Exact(exact) => **exact == *value,
            Self::Wildcard { pattern, .. } => pattern.matches(value),
            // Asked for wildcard keys, which have none.
            Self::Set(_) => false,
        }
    }

    /// Whether both are for the same values.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Any, Self::Any) => true,
            (Self::Exact(one), Self::Exact(other)) => one == other,
            (Self::Wildcard { pattern: one, .. }, Self::Wildcard { pattern: other, .. }) => one == other,
            _ => false,
        }
    }
}

/// The state of reading one file.
struct Walk<'w, 'p> {
    report: Report<'p>,
    limits: &'w mut Registrar,
    semantics: Semantics,
    default_algorithm: Option<DefaultAlgorithm>,
    /// Whether counters are in a shared store.
    is_shared: bool,
    domain: Arc<str>,
    /// Of the descriptors that contain the one being read.
    above: ShownValues,
    /// The keys of the same descriptors, the outermost first; none in the place of a wildcard.
    keys_above: Vec<Option<Box<str>>>,
    /// Of the descriptors that contain the one being read, as the reference server names them; empty with Tidegate's semantics.
    labels_above: Vec<MetricLabel>,
}

/// The entries on the path to a descriptor whose values metrics show.
#[derive(Clone, Copy, Default)]
struct ShownValues {
    /// Entries on the path.
    entries: u32,
    /// By entry, the first one in the lowest bit.
    mask: u64,
}

impl ShownValues {
    /// The same with one more entry. Values of entries beyond the 64th are never shown.
    fn and(self, is_shown: bool) -> Self {
        let bit = u64::from(is_shown).checked_shl(self.entries).unwrap_or(0);
        Self { entries: self.entries + 1, mask: self.mask | bit }
    }
}

/// The domains that a file declares: one, or those of the limits in a LIMITS_FILE. Invalid ones are reported.
pub(super) fn domains(
    source: &Source,
    options: &LoadOptions,
    extensions: &Extensions<'_>,
    limits: &mut Registrar,
    problems: &mut Problems,
) -> Vec<DeclaredDomain> {
    let Some(root) = yaml::parse(&source.text, &mut Report::new(source, problems)) else { return Vec::new() };
    if root.is_list() {
        return limits_file::domains(&root, source, options, limits, problems);
    }
    domain(&root, source, options, extensions, limits, problems).into_iter().collect()
}

fn domain(
    root: &Node,
    source: &Source,
    options: &LoadOptions,
    extensions: &Extensions<'_>,
    limits: &mut Registrar,
    problems: &mut Problems,
) -> Option<DeclaredDomain> {
    let mut report = Report::new(source, problems);
    let mut fields = Field::root(root).fields(&mut report)?;
    let name = fields.take("domain");
    let descriptors = fields.take("descriptors");
    let extensions = name.as_ref().and_then(Field::as_text).and_then(|name| extensions.of(name));
    let is_local = is_local(fields.take("counters").as_ref(), &mut report)
        | extensions.is_some_and(|extensions| extensions.is_local);
    let (semantics, is_shared) = (options.semantics, options.shared_counters && !is_local);
    let (domain, above) = (Arc::default(), ShownValues::default());
    let (keys_above, labels_above) = (Vec::new(), Vec::new());
    let default_algorithm = options.default_algorithm;
    let mut walk = Walk {
        report,
        limits,
        semantics,
        default_algorithm,
        is_shared,
        domain,
        above,
        keys_above,
        labels_above,
    };
    let named = match &name {
        None => {
            let message = "is missing; begin the file with `domain: NAME`";
            walk.report.at(fields.place(), "domain", message);
            None
        }
        Some(name) => match name.text(&mut walk.report) {
            Some("") => {
                name.reject(&mut walk.report, "is empty; write the domain that requests name");
                None
            }
            Some(text) => {
                walk.domain = text.into();
                Some(walk.report.origin(name.place()))
            }
            None => None,
        },
    };
    let extensions = extensions.map(|extensions| &extensions.descriptors[..]).unwrap_or_default();
    let descriptors = descriptors.map(|list| walk.descriptors(&list, "", extensions)).unwrap_or_default();
    fields.finish(&mut walk.report, |name| match home(name)? {
        Home::File => None,
        Home::Descriptor => Some("it belongs to a descriptor: an item of `descriptors`"),
        Home::RateLimit => Some("it belongs under `rate_limit` of a descriptor"),
        Home::Schedule => Some("it belongs to the items of `schedule`, under `rate_limit` of a descriptor"),
        Home::Ban => Some("it belongs under `ban` of a `rate_limit`"),
        Home::OnDeny => Some("it belongs under `on_deny` of a descriptor"),
    });
    Some(DeclaredDomain { name: walk.domain, origin: named?, descriptors, limits: Vec::new(), is_shared })
}

/// Whether `counters` of a file or a descriptor is `local`.
fn is_local(counters: Option<&Field<'_>>, report: &mut Report<'_>) -> bool {
    let Some(field) = counters else { return false };
    let text = field.text(report);
    if text.is_some_and(|text| text != "local") {
        field.reject(report, "has one value: write `local`, or leave it out for the store of `--counters`");
    }
    text.is_some()
}

/// The kinds of map in a file.
enum Home {
    File,
    Descriptor,
    RateLimit,
    Schedule,
    Ban,
    OnDeny,
}

/// The kind of map that a key belongs to, for errors about keys one level too high or too low.
fn home(name: &str) -> Option<Home> {
    match name {
        "domain" => Some(Home::File),
        "key" | "value" | "values" | "value_network" | "value_regex" | "value_ignore_case"
        | "descriptors" | "rate_limit" | "rate_limits" | "shadow_mode" | "quota_mode" | "detailed_metric"
        | "value_to_metric" | "share_threshold" | "shard_by" | "metadata" | "on_deny" | "log"
        | "counters" | "lease" => Some(Home::Descriptor),
        "unit" | "requests_per_unit" | "unit_multiplier" | "per" | "unlimited" | "name" | "replaces"
        | "algorithm" | "charge" | "when" | "precision" | "aligned" | "calendar" | "time_zone" | "size"
        | "refill" | "burst" | "max_wait" | "max_queue" | "requests_in_flight" | "max_hold" | "schedule"
        | "ban" => Some(Home::RateLimit),
        "days" | "hours" => Some(Home::Schedule),
        "after" | "within" | "for" => Some(Home::Ban),
        "body" | "headers" | "mark" => Some(Home::OnDeny),
        _ => None,
    }
}
