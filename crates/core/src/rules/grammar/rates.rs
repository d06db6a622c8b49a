//! The limits of a descriptor: as declared, and registered with their numbers.

use super::{algorithm::Counting, schedule::DeclaredSchedule, walk::Walk};
use crate::{
    algorithm::{Algorithm, Ban},
    limit::Unit,
    rules::{
        Reserve,
        limits::{LimitIdentity, LimitInfo, TAG_UNNAMED, tag_of_ban, tag_of_label},
        rule_limit::{AnchorEntry, LimitSchedule, RuleLimit},
        semantics::{ChargePolicy, Semantics},
        yaml::{Field, Fields, quoted},
    },
};
use smallvec::SmallVec;
use std::sync::Arc;
use tidegate_cel::Expression;

/// The limits of a descriptor, as declared.
#[derive(Default)]
pub(super) struct Rates<'n> {
    pub(super) unlimited: bool,
    pub(super) limits: Vec<DeclaredLimit<'n>>,
    /// Replaced limits, each with the index of the limit that replaces it; none for an unlimited rate.
    pub(super) replaces: Vec<(Option<u32>, Replaced<'n>)>,
}

/// A limit that has no number yet.
pub(super) struct DeclaredLimit<'n> {
    /// Empty if it has none.
    pub(super) name: &'n str,
    pub(super) counting: Counting,
    pub(super) charge: ChargePolicy,
    pub(super) debt_max: Option<u32>,
    pub(super) schedule: Option<DeclaredSchedule>,
    /// Its condition.
    pub(super) when: Option<Arc<Expression>>,
    pub(super) ban: Option<Ban>,
    pub(super) anchor: Option<AnchorEntry>,
    pub(super) reserve: Option<Reserve>,
    pub(super) field: Field<'n>,
}

/// The name of a limit that does not apply, and its position.
pub(super) struct Replaced<'n> {
    pub(super) name: &'n str,
    pub(super) field: Field<'n>,
}

impl Rates<'_> {
    /// Whether a limit may queue requests.
    pub(super) fn queue(&self) -> bool {
        self.limits.iter().any(|limit| limit.counting.algorithm.queueing().is_some())
    }

    /// The reason why local counters of these limits cannot be beside shared counters.
    pub(super) fn of_process(&self) -> Option<&'static str> {
        let any = |is: fn(&DeclaredLimit<'_>) -> bool| self.limits.iter().any(is);
        if self.queue() {
            Some(
                "a rule that queues requests does not count beside shared ones; write it beside `domain`, or remove \
                 `max_wait`",
            )
        } else if any(|limit| limit.counting.algorithm.holds_slots()) {
            Some(
                "requests in flight are not counted beside shared counters; write it beside `domain`, or put the rule into \
                 a domain of its own",
            )
        } else if any(|limit| limit.schedule.is_some() || limit.ban.is_some() || limit.reserve.is_some()) {
            Some(
                "a limit with a schedule, a ban or `reserve` does not count beside shared ones; write it beside `domain`, or put the rule into \
                 a domain of its own",
            )
        } else {
            None
        }
    }
}

impl Walk<'_> {
    /// The limits of a descriptor, from `rate_limit` or `rate_limits`.
    pub(super) fn rates<'n>(&mut self, fields: &mut Fields<'n>) -> Rates<'n> {
        let mut rates = Rates::default();
        let (one, several) = (fields.take("rate_limit"), fields.take("rate_limits"));
        if one.is_none() && several.is_none() {
            for name in ["rate_limit", "rate_limits"] {
                let message = "has no value, so that nothing limits what the descriptor matches; write a limit, or remove the key";
                fields.doubt_null(name, message);
            }
        }
        if let (Some(_), Some(several)) = (&one, &several) {
            several.reject("is given beside rate_limit; make that one more item of rate_limits");
        }
        if let Some(one) = &one {
            self.rate_limit(one, &mut rates);
        }
        if let Some(several) = &several {
            let items = several.list();
            if items.as_ref().is_some_and(Vec::is_empty) {
                several.reject("is empty; list at least one limit, or write `rate_limit: {unlimited: true}`");
            }
            for item in &items.unwrap_or_default() {
                let unlimited = rates.unlimited;
                self.rate_limit(item, &mut rates);
                if rates.unlimited && !unlimited {
                    item.reject("one of several limits cannot be unlimited; remove it from the list");
                }
            }
        }
        for (_, replaced) in &rates.replaces {
            if rates.limits.iter().any(|limit| limit.name == replaced.name) {
                let name = quoted(replaced.name);
                replaced.field.reject(format!("{name} is this descriptor's own limit; name another one"));
            }
        }
        rates
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
            let Counting { requests, window, algorithm } = &declared.counting;
            let (tag, label): (u32, Arc<str>) = match declared.name {
                "" if unnamed == 1 => (TAG_UNNAMED, Arc::clone(path)),
                "" => (tag_of_label(&window.to_string()), format!("{path} ({window})").into()),
                name => (tag_of_label(name), name.into()),
            };
            if limits.iter().any(|limit| limit.tag == tag) {
                declared.field.reject(match declared.name {
                    "" => format!("a second limit per {window} without a name; give each a name"),
                    name => format!("a second limit named {}; give each a name of its own", quoted(name)),
                });
            }
            let identity = LimitIdentity { domain: Arc::clone(&self.domain), path: Arc::clone(path), tag };
            let info = LimitInfo { identity, algorithm: algorithm.clone() };
            let unit = Unit::of_window(*window).filter(|_| !algorithm.holds_slots());
            // The joined texts of a counter do not name the limit: one limit of each window can have it.
            let is_joined = self.semantics.joins(algorithm, declared.charge, unit)
                && declared.when.is_none()
                && declared.debt_max.is_none()
                && !limits.iter().any(|limit| limit.is_joined && limit.window == *window);
            let numbers = self.limits.register(info, label);
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
                ..RuleLimit::new(numbers, tag, (*requests, *window), algorithm.clone())
            };
            let schedule = declared.schedule.as_ref();
            limit.schedule = schedule.map(|declared| {
                Box::new(LimitSchedule::new(declared.timetable.clone(), &limit, &declared.requests))
            });
            limit = limit.with_anchors(declared.anchor.as_ref());
            limit.ban = declared.ban.map(|ban| Box::new(self.register_ban(&limit, path, ban)));
            limits.push(limit);
        }
        limits
    }

    /// Registers the counter of a limit's denials. Statuses and metrics show it as the limit.
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
