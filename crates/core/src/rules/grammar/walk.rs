//! The state of reading a rule file, and the keys of each kind of map.

use super::{DefaultAlgorithm, declared::DeclaredQuotas};
use crate::{
    limit::MetricLabel,
    rules::{
        QuotaSettings,
        limits::Registrar,
        percent::Percent,
        semantics::Semantics,
        yaml::{Field, Fields},
    },
};
use std::sync::Arc;

/// Default of `unrecorded`: most of a limit that clients of quotas have if nothing records assignments.
const UNRECORDED: Percent = Percent::new(50).expect("it is a percentage");

/// Default of `min_use`: the least part of a limit that clients of quotas together must get at worst.
const MIN_USE: Percent = Percent::new(80).expect("it is a percentage");

/// The state of reading one file.
pub(super) struct Walk<'w> {
    pub(super) limits: &'w mut Registrar,
    pub(super) semantics: Semantics,
    pub(super) default_algorithm: Option<DefaultAlgorithm>,
    /// Whether counters are in a shared store.
    pub(super) is_shared: bool,
    /// Whether counters in the store are leased.
    pub(super) is_leased: bool,
    pub(super) domain: Arc<str>,
    /// Shown values of the enclosing descriptors.
    pub(super) above: ShownValues,
    /// Keys of the enclosing descriptors, the outermost first.
    pub(super) keys_above: Vec<KeyAbove>,
    /// Labels of the enclosing descriptors, as the reference server names them; empty with Tidegate's semantics.
    pub(super) labels_above: Vec<MetricLabel>,
}

/// The key of the descriptor being read, or of an enclosing descriptor.
pub(super) struct KeyAbove {
    /// None instead of a wildcard.
    pub(super) key: Option<Box<str>>,
    /// Whether several of its values share a counter.
    pub(super) shares_counter: bool,
}

/// The entries on the path to a descriptor whose values metrics show.
#[derive(Clone, Copy, Default)]
pub(super) struct ShownValues {
    /// Entries on the path.
    entries: u32,
    /// A bit for each entry, the first in the lowest bit.
    pub(super) mask: u64,
}

impl ShownValues {
    /// Adds an entry. Values of entries beyond the 64th are never shown.
    pub(super) fn and(self, is_shown: bool) -> Self {
        let bit = u64::from(is_shown).checked_shl(self.entries).unwrap_or(0);
        Self { entries: self.entries + 1, mask: self.mask | bit }
    }
}

impl Walk<'_> {
    /// `rlqs`: how the domain is served over RLQS.
    pub(super) fn quotas(&mut self, field: &Field<'_>) -> Option<DeclaredQuotas> {
        let mut fields = field.fields()?;
        let clients = fields.take("clients");
        let number = clients.as_ref().map_or(Some(1), |clients| clients.whole());
        if let (Some(clients), Some(0)) = (&clients, number) {
            clients.reject("is 0; write the number of Envoys that share each limit");
        }
        let max_share = max_share(&mut fields, number.unwrap_or(u32::MAX));
        let unrecorded = percentage(&mut fields, "unrecorded", UNRECORDED);
        let min_use = percentage(&mut fields, "min_use", MIN_USE);
        fields.finish(|_| None);
        Some(DeclaredQuotas {
            settings: QuotaSettings {
                clients: number?,
                max_share: max_share?,
                unrecorded: unrecorded?,
                min_use: min_use?,
            },
            origin: field.origin(),
            is_shared: self.is_shared,
            is_leased: self.is_leased,
            semantics: self.semantics,
        })
    }
}

/// A percentage from 1% to 100%.
fn percentage(fields: &mut Fields<'_>, name: &'static str, default: Percent) -> Option<Percent> {
    let Some(field) = fields.take(name) else { return Some(default) };
    let text = field.text()?;
    let percent = text.strip_suffix('%').and_then(|number| number.parse().ok()).and_then(Percent::new);
    percent.or_else(|| {
        field.refuse(format!("{text:?} is not a percentage from 1% to 100%; write for example 40%"))
    })
}

/// `max_share`: a percentage that is no less than an equal part for each client.
fn max_share(fields: &mut Fields<'_>, clients: u32) -> Option<Percent> {
    let percent = percentage(fields, "max_share", Percent::ALL)?;
    let Some(field) = fields.take("max_share") else { return Some(percent) };
    if u64::from(percent.get()) * u64::from(clients) < 100 {
        return field.refuse(format!(
            "is less than an equal part for each client (`rlqs.clients`: {clients}), so that a part of each limit could not be used; \
             raise it, or state more `clients`"
        ));
    }
    Some(percent)
}

/// Whether `counters` of a file or a descriptor is `local`.
pub(super) fn is_local(counters: Option<&Field<'_>>) -> bool {
    let Some(field) = counters else { return false };
    let text = field.text();
    if text.is_some_and(|text| text != "local") {
        field.reject("has one value: write `local`, or leave it out for the store of `--counters`");
    }
    text.is_some()
}

/// Keys of a `rate_limit` that have no effect in an unlimited one.
pub(super) const COUNTING_KEYS: [&str; 22] = [
    "unit",
    "unit_multiplier",
    "per",
    "algorithm",
    "charge",
    "debt_max",
    "when",
    "precision",
    "aligned",
    "calendar",
    "time_zone",
    "size",
    "refill",
    "burst",
    "max_wait",
    "max_queue",
    "requests_in_flight",
    "max_hold",
    "schedule",
    "ban",
    "reserve",
    "on_lost_end",
];

/// The kinds of map in a file.
pub(super) enum Home {
    File,
    Descriptor,
    RateLimit,
    Schedule,
    Ban,
    OnDeny,
}

impl Home {
    /// The place of its keys, seen from a descriptor or what it contains.
    pub(super) fn remedy(self) -> Option<&'static str> {
        Some(match self {
            Self::File => "it belongs to the file, beside the outermost `descriptors`",
            Self::Descriptor => "it belongs to a descriptor",
            Self::RateLimit => "it belongs under `rate_limit`",
            Self::Schedule => "it belongs to the items of `schedule`, under `rate_limit`",
            Self::Ban => "it belongs under `ban` of `rate_limit`",
            Self::OnDeny => "it belongs under `on_deny`",
        })
    }
}

/// The kind of map that a key belongs to, for errors about keys one level too high or too low.
pub(super) fn home(name: &str) -> Option<Home> {
    match name {
        "domain" | "rlqs" => Some(Home::File),
        "key" | "value" | "values" | "value_network" | "value_regex" | "value_ignore_case"
        | "descriptors" | "rate_limit" | "rate_limits" | "shadow_mode" | "quota_mode" | "detailed_metric"
        | "value_to_metric" | "share_threshold" | "shard_by" | "metadata" | "on_deny" | "log"
        | "counters" | "lease" | "request_limits" => Some(Home::Descriptor),
        "requests_per_unit" | "unlimited" | "name" | "replaces" => Some(Home::RateLimit),
        _ if COUNTING_KEYS.contains(&name) => Some(Home::RateLimit),
        "days" | "hours" => Some(Home::Schedule),
        "after" | "within" | "for" => Some(Home::Ban),
        "body" | "headers" | "mark" => Some(Home::OnDeny),
        _ => None,
    }
}
