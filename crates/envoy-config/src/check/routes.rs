//! Routes, and entries that they leave out.

use super::finding::{Findings, Kind};
use crate::{
    configuration::{Level, Manager, Route, RouteConfig, Target},
    part::Part,
    selection::{LeftOut, Selection},
};

/// Entries that do not apply to a route, and ought to by where they stand.
pub(super) fn check_selection(
    selection: &Selection<'_>,
    manager: &Manager<'_>,
    place: &str,
    findings: &mut Findings,
) {
    for (entry, why) in &selection.left_out {
        let is_of_route = matches!(entry.level, Level::Route | Level::PerRoute);
        match why {
            LeftOut::Stage(own, _) => {
                let other = manager.rate_limits().any(|(_, settings)| settings.stage() == *own);
                if !other {
                    let message = format!(
                        "this entry is of stage {own}, which no filter of the listener has: it is never applied; set `stage: {own}` on a filter, or \
                         remove it here"
                    );
                    findings.add(Kind::StageWithoutFilter, entry.part, place, message);
                }
            }
            LeftOut::Answered(by) if is_of_route => {
                let message = format!("the route has a {by}: Envoy limits only routes to a cluster");
                findings.add(Kind::RouteAnswered, entry.part, place, message);
            }
            LeftOut::PerRoute if is_of_route => {
                let message = "this entry is replaced by the rate_limits of the RateLimitPerRoute of the same route; list all of them there";
                findings.add(Kind::EntryReplaced, entry.part, place, message);
            }
            LeftOut::Filter => {
                let message = "this entry is ignored, since the filter has rate_limits of its own; move those to the routes, or this one to the filter";
                findings.add(Kind::EntryReplaced, entry.part, place, message);
            }
            LeftOut::RouteHasOwn => {
                let message = "this entry does not apply to every route: those with rate_limits of their own leave it out; set include_vh_rate_limits: true on them to have both";
                findings.add(Kind::HostReplaced, entry.part, place, message);
            }
            _ => {}
        }
    }
}

/// Routes behind one that matches every request.
pub(super) fn check_order(config: &RouteConfig<'_>, manager: &str, findings: &mut Findings) {
    for host in &config.hosts {
        let Some(all) = host.routes.iter().position(|route| matches_all(route.part)) else { continue };
        for route in host.routes.iter().skip(all + 1).filter(|route| has_limits(route)) {
            let message = format!(
                "this route is never reached: the route at {} matches every request; move it before that one",
                host.routes[all].part.origin()
            );
            let place = format!("{manager} › {} › {}", host.name, route.title());
            findings.add(Kind::RouteNeverReached, route.part, &place, message);
        }
    }
}

fn matches_all(route: Part<'_>) -> bool {
    let Some(matched) = route.get("match") else { return false };
    let mut names = matched.fields().map(|(name, _)| name);
    matched.text("prefix") == "/"
        && names.all(|name| ["prefix", "case_sensitive", "caseSensitive"].contains(&name))
}

fn has_limits(route: &Route<'_>) -> bool {
    let own = route.part.get("typed_per_filter_config").into_iter().flat_map(Part::fields);
    let of_filter = |part: Part<'_>| part.has("rate_limits");
    !matches!(route.target, Target::Unknown)
        && (!route.entries.is_empty() || own.into_iter().any(|(_, part)| of_filter(part)))
}
