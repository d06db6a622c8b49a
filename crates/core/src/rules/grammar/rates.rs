//! The limits of a descriptor: as declared, and registered with their numbers.

use super::{
    rate_limit::{DeclaredLimit, Replaced},
    walk::Walk,
};
use crate::{
    algorithm::{Algorithm, Ban},
    limit::Unit,
    rules::{
        limits::{LimitIdentity, LimitInfo, TAG_UNNAMED, tag_of_ban, tag_of_label},
        rule_limit::{LimitSchedule, RuleLimit},
        semantics::{ChargePolicy, Semantics},
        yaml::{Field, Fields, quoted},
    },
};
use smallvec::SmallVec;
use std::sync::Arc;

/// The limits of a descriptor, as declared.
#[derive(Default)]
pub(super) struct Rates<'n> {
    pub(super) unlimited: bool,
    pub(super) limits: Vec<DeclaredLimit<'n>>,
    /// Limits that these replace, each with the index of the one that does; none for an unlimited rate.
    pub(super) replaces: Vec<(Option<u32>, Replaced<'n>)>,
}

impl Rates<'_> {
    /// Whether a limit may queue requests.
    pub(super) fn queue(&self) -> bool {
        self.limits.iter().any(|limit| limit.algorithm.queueing().is_some())
    }

    /// Whether a limit is of requests in flight.
    pub(super) fn hold_slots(&self) -> bool {
        self.limits.iter().any(|limit| limit.algorithm.holds_slots())
    }

    /// The reason why local counters of these limits cannot be beside shared ones.
    pub(super) fn of_process(&self) -> Option<&'static str> {
        let holds_slots = self.hold_slots();
        match self.queue() {
            true => Some(
                "a rule that queues requests does not count beside shared ones; write it beside `domain`, or remove \
                 `max_wait`",
            ),
            false if holds_slots => Some(
                "requests in flight are not counted beside shared counters; write it beside `domain`, or put the rule into \
                 a domain of its own",
            ),
            false => self.limits.iter().any(|limit| limit.schedule.is_some() || limit.ban.is_some() || limit.reserve.is_some()).then_some(
                "a limit with a schedule, a ban or `reserve` does not count beside shared ones; write it beside `domain`, or put the rule into \
                 a domain of its own",
            ),
        }
    }
}

impl Walk<'_, '_> {
    /// The limits of a descriptor, from `rate_limit` or `rate_limits`.
    pub(super) fn rates<'n>(&mut self, fields: &mut Fields<'n>) -> Rates<'n> {
        let mut rates = Rates::default();
        let (one, several) = (fields.take("rate_limit"), fields.take("rate_limits"));
        if let (Some(_), Some(several)) = (&one, &several) {
            let message = "is given beside rate_limit; make that one more item of rate_limits";
            several.reject(&mut self.report, message);
        }
        if let Some(one) = &one {
            self.rate_limit(one, &mut rates);
        }
        if let Some(several) = &several {
            let items = several.list(&mut self.report);
            if items.as_ref().is_some_and(Vec::is_empty) {
                let message = "is empty; list at least one limit, or write `rate_limit: {unlimited: true}`";
                several.reject(&mut self.report, message);
            }
            for item in &items.unwrap_or_default() {
                let unlimited = rates.unlimited;
                self.rate_limit(item, &mut rates);
                if rates.unlimited && !unlimited {
                    let message = "one of several limits cannot be unlimited; remove it from the list";
                    item.reject(&mut self.report, message);
                }
            }
        }
        for (_, replaced) in &rates.replaces {
            if rates.limits.iter().any(|limit| limit.name == replaced.name) {
                let message =
                    format!("{} is this descriptor's own limit; name another one", quoted(replaced.name));
                replaced.field.reject(&mut self.report, message);
            }
        }
        rates
    }

    fn rate_limit<'n>(&mut self, field: &Field<'n>, rates: &mut Rates<'n>) {
        let Some(declared) = self.read_rate_limit(field) else {
            return;
        };
        rates.unlimited |= declared.unlimited;
        let by = declared.limit.as_ref().map(|_| rates.limits.len() as u32);
        rates.replaces.extend(declared.replaces.into_iter().map(|replaced| (by, replaced)));
        rates.limits.extend(declared.limit);
    }

    /// Registers the limits.
    pub(super) fn register(
        &mut self,
        rates: &Rates<'_>,
        path: &Arc<str>,
        is_local: bool,
    ) -> SmallVec<[RuleLimit; 1]> {
        let mut limits: SmallVec<[RuleLimit; 1]> = SmallVec::with_capacity(rates.limits.len());
        let unnamed = rates.limits.iter().filter(|limit| limit.name.is_empty()).count();
        for declared in &rates.limits {
            let tag = match declared.name {
                "" if unnamed == 1 => TAG_UNNAMED,
                "" => tag_of_label(&declared.window.to_string()),
                name => tag_of_label(name),
            };
            if limits.iter().any(|limit| limit.tag == tag) {
                let message = match declared.name {
                    "" => format!("a second limit per {} without a name; give each a name", declared.window),
                    name => format!("a second limit named {}; give each a name of its own", quoted(name)),
                };
                self.report.at(declared.place, declared.path.as_str(), message);
            }
            let identity = LimitIdentity { domain: Arc::clone(&self.domain), path: Arc::clone(path), tag };
            let label = match declared.name {
                "" if unnamed == 1 => Arc::clone(path),
                "" => format!("{path} ({})", declared.window).into(),
                name => name.into(),
            };
            let info = LimitInfo { identity, algorithm: declared.algorithm.clone() };
            let unit = Unit::of_window(declared.window).filter(|_| !declared.algorithm.holds_slots());
            // The joined texts of a counter do not name the limit: one limit of each window can have it.
            let is_joined = self.semantics.joins(&declared.algorithm, declared.charge, unit)
                && declared.when.is_none()
                && declared.debt_max.is_none()
                && !limits.iter().any(|limit| limit.is_joined && limit.window == declared.window);
            let numbers = self.limits.register(info, label);
            let amount = (declared.requests, declared.window);
            let mut limit = RuleLimit {
                name: declared.name.into(),
                unit,
                charge: declared.charge,
                debt_max: declared.debt_max,
                semantics: self.semantics,
                is_local,
                is_joined,
                when: declared.when.clone(),
                reserve: declared.reserve,
                ..RuleLimit::new(numbers, tag, amount, declared.algorithm.clone())
            };
            let schedule = declared.schedule.as_ref();
            limit.schedule = schedule.map(|declared| {
                Box::new(LimitSchedule::new(declared.timetable.clone(), &limit, &declared.requests))
            });
            limit = limit.with_anchors(declared.anchor.as_ref().and_then(|anchor| anchor.entry.as_ref()));
            limit.ban = declared.ban.map(|ban| Box::new(self.register_ban(&limit, path, ban)));
            limits.push(limit);
        }
        limits
    }

    /// Registers the counter of a limit's denials. In statuses and metrics it is the limit.
    fn register_ban(&mut self, limit: &RuleLimit, path: &Arc<str>, ban: Ban) -> RuleLimit {
        let tag = tag_of_ban(limit.tag);
        let identity = LimitIdentity { domain: Arc::clone(&self.domain), path: Arc::clone(path), tag };
        let algorithm = Algorithm::Ban(Ban { epoch: self.limits.epoch_of_ban(&identity), ..ban });
        let id = self.limits.register_beside(LimitInfo { identity, algorithm: algorithm.clone() });
        RuleLimit {
            id,
            tag,
            capacity: limit.requests,
            algorithm,
            charge: ChargePolicy::Admitted,
            debt_max: None,
            semantics: Semantics::Exact,
            is_joined: false,
            schedule: None,
            reserve: None,
            anchors: None,
            ..limit.clone()
        }
    }
}
