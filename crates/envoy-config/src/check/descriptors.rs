//! The descriptors that the entries of a route send, and their limits.

use super::{
    charges::Uncharged,
    collected::{Collected, SentDescriptor, Shapes},
    finding::Kind,
    hints,
    reach::{Reach, Shape, ShapeEntry},
};
use crate::{
    actions::{PossibleEntry, Sent},
    configuration::{Level, RateLimitEntry, Target},
    part::Part,
    policy::Policy,
    selection::{OfRoute, Selection},
};
use std::rc::Rc;
use tidegate_core::rules::Rule;

/// Most entries of a descriptor that may be left out: each doubles the number of possible descriptors.
const LEFT_OUT_MAX: usize = 6;

/// The ticket's key in Tidegate's calls.
const TICKET_KEY: &str = "slot";

/// An entry that applies, and the values that it can send.
struct Applied<'c, 'd> {
    entry: &'c RateLimitEntry<'d>,
    policy: &'c Policy,
    /// The entries that its actions can add.
    possible: Vec<PossibleEntry>,
    shapes: Vec<Shape>,
}

pub(super) fn check(
    selection: &Selection<'_>,
    of_route: &OfRoute<'_, '_>,
    place: &str,
    collected: &mut Collected<'_>,
) {
    let shapes = Shapes { domain: selection.domain, place };
    let namespace = of_route.settings.metadata_namespace();
    let mut applied = Vec::new();
    for entry in &selection.applied {
        check_fields(entry, place, collected);
        match &entry.policy {
            Ok(policy) => {
                let possible: Vec<_> =
                    policy.actions.iter().map(|action| action.possible(namespace)).collect();
                let shapes = shapes_of(&possible, &of_route.route.target);
                applied.push(Applied { entry, policy, possible, shapes });
            }
            Err(problems) => not_evaluated(entry, problems, &shapes, collected),
        }
    }
    let mut rules: Vec<(&Rule, &Applied<'_, '_>)> = Vec::new();
    for one in &applied {
        let is_at_end = one.policy.on_stream_done;
        for shape in &one.shapes {
            if shape.0.is_empty() {
                empty(one, place, collected);
                continue;
            }
            check_values(shape, one.entry.part, place, collected);
            let reach = collected.add(&shapes, shape, one.entry.part.origin(), is_at_end, one.policy.limit);
            judge(&reach, shape, one.entry.part, &shapes, collected);
            let (Reach::Limited(reached) | Reach::Conditional(reached, _) | Reach::Partly(reached, _)) =
                &reach
            else {
                continue;
            };
            add_charge(one, shape, &shapes, collected);
            if !is_at_end {
                // Zero hits take no ticket.
                let taking = reached.iter().filter(|_| one.policy.charges());
                rules.extend(taking.map(|rule| (*rule, one)));
            } else if !is_asked_before(shape, &applied) {
                only_at_end(one.entry.part, shape, place, collected);
            }
        }
    }
    // An entry that cannot be evaluated may be the missing one.
    if applied.len() < selection.applied.len() {
        return;
    }
    // A module returns tickets itself.
    if !of_route.settings.is_module {
        check_tickets(&rules, &applied, namespace, place, collected);
    }
    check_absent(&applied, place, collected);
}

/// Checks for values that differ from what they seem to be.
fn check_values(shape: &Shape, part: Part<'_>, place: &str, collected: &mut Collected<'_>) {
    for ShapeEntry { key, value } in &shape.0 {
        match value {
            Sent::Ticket if key != TICKET_KEY => {
                let message = format!(
                    "the ticket is sent as `{key}`, and Tidegate expects `slot`; write `descriptor_key: slot`"
                );
                collected.findings.add(Kind::TicketKey, part, place, message);
            }
            Sent::Text(what) if what == "header :path" => {
                let message = format!(
                    "`{key}` has the query of the path too: with another query, a request misses rules for exact paths and gets a \
                     counter of its own; write values with wildcards, such as /login*, or generic_key on the route"
                );
                collected.findings.add(Kind::PathWithQuery, part, place, message);
            }
            _ => {}
        }
    }
}

/// Checks for a descriptor without entries: a client that leaves out all that the actions read makes one.
fn empty(one: &Applied<'_, '_>, place: &str, collected: &mut Collected<'_>) {
    let entries = one.possible.iter().map(PossibleEntry::what);
    let message = format!(
        "every action has skip_if_absent, so a request without {} sends a descriptor without entries, which has no limit; remove \
         skip_if_absent from one action to send none",
        entries.collect::<Vec<_>>().join(" and ")
    );
    collected.findings.add(Kind::EmptyDescriptor, one.entry.part, place, message);
}

/// Notes the effect of an entry's hits on the limit of its descriptor.
fn add_charge(one: &Applied<'_, '_>, shape: &Shape, shapes: &Shapes<'_, '_>, collected: &mut Collected<'_>) {
    if one.policy.charges() {
        collected.charges.add(shapes.domain, shape);
    } else if !one.policy.on_stream_done {
        collected.charges.add_uncharged(Uncharged {
            at: one.entry.part.origin(),
            place: shapes.place.to_owned(),
            domain: shapes.domain.to_owned(),
            shape: shape.clone(),
            is_peek: one.policy.is_peek(),
        });
    }
}

/// Whether the limit of a descriptor of the end can deny an entry at the beginning. Hits that are given back are never denied.
fn is_asked_before(shape: &Shape, applied: &[Applied<'_, '_>]) -> bool {
    // A limit of the request has a counter of its own.
    let can_be_denied = |policy: &Policy| {
        !policy.on_stream_done && policy.limit.is_none() && (policy.charges() || policy.is_peek())
    };
    let at_start = applied.iter().filter(|other| can_be_denied(other.policy));
    at_start.flat_map(|other| &other.shapes).any(|other| other.keys() == shape.keys())
}

fn only_at_end(part: Part<'_>, shape: &Shape, place: &str, collected: &mut Collected<'_>) {
    let message = format!(
        "the limit of {shape} is charged at the end of requests and never asked at their beginning, so it denies nothing; add the same \
         actions without apply_on_stream_done, with hits_addend: {{number: 0}} to charge only at the end"
    );
    collected.findings.add(Kind::OnlyAtEnd, part, place, message);
}

/// Checks limits whose requests have a ticket, which Envoy has to send at their end.
fn check_tickets(
    rules: &[(&Rule, &Applied<'_, '_>)],
    applied: &[Applied<'_, '_>],
    namespace: &str,
    place: &str,
    collected: &mut Collected<'_>,
) {
    let is_returned = applied
        .iter()
        .filter(|one| one.policy.on_stream_done)
        .flat_map(|one| &one.shapes)
        .any(Shape::is_ticket);
    if is_returned {
        return;
    }
    for (rule, one) in rules.iter().filter(|(rule, _)| rule.holds_slots() || rule.reserves()) {
        let (what, page) = match rule.holds_slots() {
            true => (
                "limits requests in flight, and their end is never sent: each counts for max_hold",
                "docs/concurrency.md",
            ),
            false => (
                "reserves an estimate, and the cost is never sent: each request counts as the estimate",
                "docs/reserve.md",
            ),
        };
        let message = format!(
            "{} ({}) {what}; add an entry with apply_on_stream_done: true and the metadata `{namespace}:slot` to the same rate_limits ({page})",
            rule.info.path, rule.origin
        );
        collected.findings.add(Kind::TicketNotReturned, one.entry.part, place, message);
    }
}

/// Checks for requests without a descriptor: every entry needs a part that clients may leave out.
fn check_absent(applied: &[Applied<'_, '_>], place: &str, collected: &mut Collected<'_>) {
    let at_start: Vec<&Applied<'_, '_>> = applied.iter().filter(|one| !one.policy.on_stream_done).collect();
    // Any of the parts of an entry is enough to have none of its descriptors.
    let needed = |one: &&Applied<'_, '_>| {
        let parts = one.possible.iter().filter_map(|entry| match &entry.value {
            Sent::Text(what) if !entry.may_be_left_out && !what.starts_with("header :") => Some(&**what),
            _ => None,
        });
        let parts: Vec<&str> = parts.collect();
        (!parts.is_empty()).then(|| format!("without {}", parts.join(" or ")))
    };
    let all: Option<Vec<String>> = at_start.iter().map(needed).collect();
    if let (Some(all), Some(first)) = (all, at_start.first()) {
        let message = format!(
            "a request {} has no descriptor on such a route, and no limit; add an entry that every request has, such as remote_address",
            all.join(" and ")
        );
        collected.findings.add(Kind::MissingPart, first.entry.part, place, message);
    }
}

/// Checks fields that make an entry do less than it seems to.
fn check_fields(entry: &Rc<RateLimitEntry<'_>>, place: &str, collected: &mut Collected<'_>) {
    let part = entry.part;
    if entry.level.is_of_routes() && part.has("hits_addend") {
        let message = "Envoy ignores hits_addend in the rate_limits of routes and virtual hosts: each request counts one hit; move the \
                       entry to a RateLimitPerRoute in typed_per_filter_config";
        collected.findings.add(Kind::HitsIgnored, part.at("hits_addend"), place, message);
    }
    let format = part.get_in(["hits_addend", "format"]).filter(|format| format.as_text().contains("%REQ("));
    if let Some(format) = format.filter(|_| !entry.level.is_of_routes() && !entry.is_at_end()) {
        let message = "a client states the hits of its request: with 0 it consumes nothing, and without a number there Envoy sends no \
                       descriptor, so that the request has no limit; set this header in a filter before, whatever the client sends";
        collected.findings.add(Kind::HitsOfClient, format, place, message);
    }
    if entry.level == Level::PerRoute && (part.has("stage") || part.has("disable_key")) {
        let message = "Envoy refuses stage and disable_key here; remove them";
        collected.findings.add(Kind::StageNotSupported, part, place, message);
    }
    if entry.level.is_of_routes() && part.has("disable_key") {
        let message = format!(
            "runtime can disable this entry by the key ratelimit.{}.http_filter_enabled",
            part.text("disable_key")
        );
        collected.findings.add(Kind::CanBeDisabled, part.at("disable_key"), place, message);
    }
    if part.has("limit") {
        let message = "the limit comes with the request, instead of that of a rule";
        collected.findings.add(Kind::LimitOfRequest, part.at("limit"), place, message);
    }
    if !part.list("actions").any(|_| true) {
        let message =
            "this entry has no actions, so it makes no descriptor, and Envoy refuses it; add an action";
        collected.findings.add(Kind::EntryWithoutActions, part, place, message);
    }
}

/// Notes an entry that only Envoy can evaluate.
fn not_evaluated(
    entry: &RateLimitEntry<'_>,
    problems: &[(Part<'_>, String)],
    shapes: &Shapes<'_, '_>,
    collected: &mut Collected<'_>,
) {
    let is_named = |problem: &str| {
        // The finding about limits in requests covers a limit in metadata.
        ["actions: ", "stage", "disable_key", "limit.dynamic_metadata"]
            .iter()
            .any(|begin| problem.starts_with(begin))
    };
    for (part, problem) in problems.iter().filter(|(_, problem)| !is_named(problem)) {
        let message = format!("this entry is not evaluated here: {problem}");
        collected.findings.add(Kind::NotEvaluated, *part, shapes.place, message);
    }
    collected.incomplete.insert(shapes.domain.to_owned());
    let reason = problems.first().map_or_else(String::new, |(_, problem)| problem.clone());
    collected.note(SentDescriptor {
        at: entry.part.origin(),
        domain: shapes.domain.to_owned(),
        descriptor: "?".to_owned(),
        is_at_end: entry.is_at_end(),
        places: vec![shapes.place.to_owned()],
        reach: Reach::Unknown(reason),
    });
}

/// Judges a descriptor without a limit.
pub(super) fn judge(
    reach: &Reach<'_>,
    shape: &Shape,
    part: Part<'_>,
    shapes: &Shapes<'_, '_>,
    collected: &mut Collected<'_>,
) {
    let rules = collected.rules.domain(shapes.domain);
    let hint = || {
        let hint = rules.and_then(|rules| hints::of_descriptor(shape, rules));
        hint.map_or_else(String::new, |hint| format!("; {hint}"))
    };
    let (kind, message) = match reach {
        Reach::Nothing(why) if rules.is_some() => {
            (Kind::DescriptorWithoutRule, format!("{shape}: {why}{}", hint()))
        }
        Reach::EndsEarly(rule) => {
            let at = rule.declared_at();
            (
                Kind::DescriptorEndsEarly,
                format!("{shape} ends at {at}, which has no limit of its own{}", hint()),
            )
        }
        Reach::Partly(_, why) => {
            (Kind::SomeValues, format!("{shape}: only some values have a limit; others have {why}"))
        }
        Reach::Limited(rules) => {
            for rule in rules.iter().filter(|rule| rule.shadow) {
                let message = format!("{} is a rule with shadow_mode, which denies nothing", rule.info.path);
                collected.findings.add_at(Kind::ShadowRule, rule.origin.clone(), "", message, None);
            }
            return;
        }
        _ => return,
    };
    collected.findings.add(kind, part, shapes.place, message);
}

/// The descriptors that an entry can make.
fn shapes_of(entries: &[PossibleEntry], target: &Target<'_>) -> Vec<Shape> {
    let optional = entries.iter().filter(|entry| entry.may_be_left_out).count().min(LEFT_OUT_MAX);
    let mut shapes = Vec::new();
    for left_out in 0_usize..1 << optional {
        let mut number = 0;
        let mut is_kept = |entry: &&PossibleEntry| {
            if !entry.may_be_left_out || number == LEFT_OUT_MAX {
                return true;
            }
            number += 1;
            left_out >> (number - 1) & 1 == 0
        };
        let kept: Vec<&PossibleEntry> = entries.iter().filter(|entry| is_kept(entry)).collect();
        for cluster in clusters(target) {
            let entry = |possible: &&PossibleEntry| {
                let value = match (&possible.value, cluster) {
                    (Sent::Cluster, Some(name)) => Sent::Exact(name.to_owned()),
                    (value, _) => value.clone(),
                };
                ShapeEntry { key: possible.key.clone(), value }
            };
            let shape = Shape(kept.iter().map(entry).collect());
            if !shapes.contains(&shape) {
                shapes.push(shape);
            }
        }
    }
    shapes
}

fn clusters<'d>(target: &Target<'d>) -> Vec<Option<&'d str>> {
    match target {
        Target::Cluster(name) => vec![Some(name)],
        Target::Clusters(names) if !names.is_empty() => names.iter().map(|name| Some(*name)).collect(),
        _ => vec![None],
    }
}

/// A descriptor of a network filter, as written. `%…%` stands for what Envoy finds there.
pub(super) fn written(part: Part<'_>) -> Shape {
    let entry = |entry: Part<'_>| {
        let value = entry.text("value");
        let value = match value.contains('%') {
            true if value == "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%" => Sent::Address,
            true => Sent::Text(value.to_owned()),
            false => Sent::Exact(value.to_owned()),
        };
        ShapeEntry { key: entry.text("key").to_owned(), value }
    };
    Shape(part.list("entries").map(entry).collect())
}
