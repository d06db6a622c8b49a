//! One entry of `rate_limits`: the actions that make a descriptor, and its hits.

use crate::{
    actions::{Action, hits::Format},
    node::{Node, Problems},
    stream::Envoy,
};
use tidegate_core::limit::{RequestLimit, Unit};

/// One entry of `rate_limits`.
#[derive(Debug, PartialEq)]
pub struct Policy {
    pub(crate) actions: Vec<Action>,
    pub(crate) hits: HitsAddend,
    /// Whether the hits are given back.
    pub(crate) is_negative: bool,
    /// Whether it is applied when the stream has ended, not when the request arrives.
    pub on_stream_done: bool,
    /// Whether `x-ratelimit-*` show the limit of this descriptor; none to follow the filter.
    pub(crate) x_ratelimit: Option<bool>,
    /// A limit instead of the rule's.
    pub(crate) limit: Option<RequestLimit>,
}

/// The hits of a descriptor.
#[derive(Debug, PartialEq)]
pub(crate) enum HitsAddend {
    /// The hits of the request.
    Unset,
    Number(u64),
    Format(Format),
}

impl Policy {
    /// Reads an entry of the filter or of a `RateLimitPerRoute`.
    pub fn read(node: &Node, envoy: &Envoy, problems: &Problems) -> Self {
        for name in ["stage", "disable_key"] {
            if node.has(name) {
                problems.add(&node.path_of(name), "is not supported here by Envoy either; remove it");
            }
        }
        let mut policy = Self::of_route(node, envoy, problems);
        if let Some(node) = node.node("hits_addend") {
            policy.hits = hits(node, policy.on_stream_done, problems);
            policy.is_negative = node.bool("is_negative_hits");
        }
        policy
    }

    /// The keys of its descriptors: of all actions, also of those that may have no value.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.actions.iter().map(|action| &*action.key)
    }

    /// Whether it charges its hits: zero hits are a peek, and others may be given back.
    pub(crate) fn charges(&self) -> bool {
        !self.is_negative && !self.is_peek()
    }

    /// Whether it has zero hits, which ask a limit and charge nothing.
    pub(crate) fn is_peek(&self) -> bool {
        self.hits == HitsAddend::Number(0)
    }

    /// Reads an entry of a route or a virtual host, whose hits Envoy ignores.
    pub(crate) fn of_route(node: &Node, envoy: &Envoy, problems: &Problems) -> Self {
        let actions: Vec<Action> =
            node.nodes("actions").filter_map(|node| Action::read(node, envoy, problems)).collect();
        if !node.has("actions") {
            problems.add(&node.path_of("actions"), "is empty; add an action");
        }
        Self {
            actions,
            hits: HitsAddend::Unset,
            is_negative: false,
            on_stream_done: node.bool("apply_on_stream_done"),
            x_ratelimit: match node.number_of("x_ratelimit_option") {
                0 => None,
                option => Some(option == 2),
            },
            limit: node.node("limit").and_then(|node| limit(node, problems)),
        }
    }
}

fn hits(node: &Node, on_stream_done: bool, problems: &Problems) -> HitsAddend {
    let (path, problem) = match (node.unsigned("number"), node.text("format")) {
        (Some(number), "") if number <= crate::actions::hits::HITS_MAX => return HitsAddend::Number(number),
        (Some(_), "") => (node.path_of("number"), "is above 1000000000".to_owned()),
        (None, format) if !format.is_empty() => match Format::parse(format, on_stream_done) {
            Ok(format) => return HitsAddend::Format(format),
            Err(error) => (node.path_of("format"), format!("{format:?} {error}")),
        },
        (None, _) if node.bool("is_negative_hits") || node.names().next().is_none() => {
            return HitsAddend::Unset;
        }
        _ => (node.path.clone(), "has a number and a format; leave one of them".to_owned()),
    };
    problems.add(&path, problem);
    HitsAddend::Unset
}

fn limit(node: &Node, problems: &Problems) -> Option<RequestLimit> {
    if node.has("dynamic_metadata") {
        let path = node.path_of("dynamic_metadata");
        problems
            .add(&path, "is a struct in metadata, which only Envoy can read; use `rate_limit`, or a rule");
        return None;
    }
    let Some(limit) = node.node("rate_limit") else {
        problems.add(&node.path, "is empty; set `rate_limit`");
        return None;
    };
    // By their enumeration number, less one.
    let units = [Unit::Second, Unit::Minute, Unit::Hour, Unit::Day, Unit::Month, Unit::Year];
    let unit = limit.number_of("unit").checked_sub(1).and_then(|index| units.get(index as usize));
    let Some(unit) = unit else {
        problems.add(&limit.path_of("unit"), "is not set; set SECOND, MINUTE, HOUR, DAY, MONTH or YEAR");
        return None;
    };
    let requests = limit.unsigned("requests_per_unit").unwrap_or(0);
    Some(RequestLimit { requests: u32::try_from(requests).unwrap_or(u32::MAX), unit: *unit })
}
