//! The store's side: a counter with its leases, and the claims of nodes to credits. The store's script does the same (`script/lease.lua`).

use super::{LeaseRequest, LeaseResponse, Supply, Terms, allocation::Claims, epoch::Epoch};
use std::time::Duration;
use tidegate_core::{
    algorithm::{Lease, Leased, State},
    limit::{Reset, Timestamp},
};

/// Credits for one node.
struct Grant {
    /// Credits of the node in total.
    share: u64,
    /// Credits beyond those that the node keeps.
    credits: u64,
    supply: Supply,
    report_after: Duration,
}

/// The lease of a node after its report.
struct Settled {
    /// Credits that the node keeps.
    kept: u64,
    /// End of the lease by which they were granted; none if they were declared.
    end: Option<Timestamp>,
}

/// Counts the credits of a counter that the node has spent, takes back credits that the node does not keep, and grants the node its share.
/// None if the request is not newer than the last one of the node.
pub fn lease(
    leased: &mut Leased,
    terms: Terms<'_>,
    epoch: Epoch,
    request: &LeaseRequest,
    now: Timestamp,
) -> Option<LeaseResponse> {
    leased.expire(terms.algorithm, now);
    let is_learning = epoch.is_learning(terms.settings.length_nanos(), now);
    let Settled { kept, end: former_end } = settle(leased, terms, request, is_learning, now)?;
    let end = terms.end(&leased.state, now);
    // Without an end no credits are possible: the credits that the node keeps have ended with their window.
    let kept = if end.is_some() { kept } else { 0 };
    let free = free_of(leased, terms, now).saturating_sub(kept);
    let none = |supply| Grant { share: 0, credits: 0, supply, report_after: terms.settings.length / 2 };
    let granted = match end {
        _ if is_learning => none(Supply::Learning),
        Some(end) => grant(leased, terms, request, kept, free, (now, end)),
        None => none(Supply::TooSmall),
    };
    // Credits that a node keeps beyond its share are not renewed. They cannot be taken back at once, as the node goes on to spend them.
    let former_end = former_end.filter(|_| !is_learning && kept > granted.share);
    let end = end.map(|end| former_end.map_or(end, |former| former.min(end)));
    let end_or_now = end.unwrap_or(now);
    let outstanding = kept + granted.credits;
    if request.demand > 0 || outstanding > 0 {
        let (node, holder, sequence) = (request.node.0, request.holder, request.sequence);
        // The demand of a node without credits counts for the length of a lease.
        let end = if outstanding > 0 {
            end_or_now
        } else {
            now.saturating_add_nanos(terms.settings.length_nanos())
        };
        let demand = request.demand;
        leased.leases.push(Lease {
            node,
            holder,
            sequence,
            settled: request.spent,
            outstanding,
            end,
            demand,
        });
    }
    Some(LeaseResponse {
        sequence: request.sequence,
        epoch: epoch.id,
        spend_to: request.spent + outstanding,
        valid_for: end_or_now.since(now),
        supply: granted.supply,
        report_after: granted.report_after,
        free: free - granted.credits,
        empty_for: empty_for(terms, &leased.state, now),
        until_full: terms.algorithm.until_full(&leased.state, now),
    })
}

/// Counts the hits that the request reports and takes the node's lease out.
fn settle(
    leased: &mut Leased,
    terms: Terms<'_>,
    request: &LeaseRequest,
    is_learning: bool,
    now: Timestamp,
) -> Option<Settled> {
    let Some(index) =
        leased.leases.iter().position(|lease| (lease.node, lease.holder) == (request.node.0, request.holder))
    else {
        // Either the lease has ended, and all of its credits count as used. Or it was lost, and the declaration counts, except in windows
        // from the first hit, which only an exact decision opens.
        let is_declared = is_learning && !terms.algorithm.is_from_first_hit();
        if is_declared {
            leased.add(terms.algorithm, request.spent.saturating_sub(request.acknowledged), now);
        }
        return Some(Settled { kept: if is_declared { request.kept } else { 0 }, end: None });
    };
    if request.sequence <= leased.leases[index].sequence {
        return None;
    }
    let lease = leased.leases.swap_remove(index);
    let spent = request.spent.saturating_sub(lease.settled);
    leased.add_reported(terms.algorithm, spent, terms.spent_at(request.spent_ago, now));
    let rest = lease.outstanding.saturating_sub(spent);
    let kept = if is_learning { request.kept } else { request.kept.min(rest) };
    Some(Settled { kept, end: Some(lease.end) })
}

/// Credits that are granted beyond those kept, for a lease from `now` to `end` at the latest.
fn grant(
    leased: &Leased,
    terms: Terms<'_>,
    request: &LeaseRequest,
    kept: u64,
    free: u64,
    (now, end): (Timestamp, Timestamp),
) -> Grant {
    let numbers = terms.numbers();
    let demands = || leased.leases.iter().map(|lease| lease.demand).chain([request.demand]);
    let demands = || demands().filter(|&demand| demand > 0);
    let horizon = numbers.horizon(demands().sum());
    let report_after = Duration::from_micros(numbers.report_after(horizon));
    if request.demand == 0 {
        return Grant { share: 0, credits: 0, supply: Supply::Ample, report_after };
    }
    let granted_for = u64::try_from(end.since(now).as_micros()).unwrap_or(u64::MAX).min(horizon);
    // Demand varies: a quarter is added for the lease, a half for the shorter time until the next report.
    let want = |demand: u64| numbers.part(demand, granted_for) * 5 / 4 + 1;
    let need = |demand: u64| numbers.part(demand, numbers.report_min) * 3 / 2 + 1;
    let claims = Claims {
        wants: demands().map(want).collect(),
        need: demands().map(need).sum(),
        freed: numbers.freed_per_report,
    };
    // Only credits of leases: hits of quotas are not for nodes.
    let out: u64 = leased.leases.iter().map(|lease| lease.outstanding).sum();
    let available = free + kept + out;
    let share = claims.share(want(request.demand), available, terms.settings.grant_min);
    let credits = share.credits.saturating_sub(kept).min(free);
    let report_after = if kept + credits == 0 && share.supply == Supply::Scarce {
        until_worthwhile(terms, &leased.state, leased.outstanding(), now)
    } else {
        report_after
    };
    Grant { share: share.credits, credits, supply: share.supply, report_after }
}

/// Hits that are neither used nor granted.
fn free_of(leased: &Leased, terms: Terms<'_>, now: Timestamp) -> u64 {
    terms.algorithm.remaining(&leased.state, now).saturating_sub(leased.outstanding())
}

/// Time until enough hits for a grant are free, if no credits are returned: half of those that become free between two reports.
pub(super) fn until_worthwhile(
    terms: Terms<'_>,
    state: &State,
    outstanding: u64,
    now: Timestamp,
) -> Duration {
    let hits = outstanding.saturating_add(terms.numbers().freed_per_report / 2 + 1);
    match terms.algorithm.until_admits(state, hits, now) {
        Reset::After(wait) => wait,
        Reset::Never => terms.settings.length / 2,
    }
}

/// Time for which nothing can be granted: the wait for one hit if only used hits count.
pub(super) fn empty_for(terms: Terms<'_>, state: &State, now: Timestamp) -> Duration {
    match terms.algorithm.until_admits(state, 1, now) {
        Reset::After(wait) => wait,
        Reset::Never => Duration::MAX,
    }
}
