//! Log lines about requests that pass without a limit, or are denied for another reason than a limit: descriptors that no rule decides, and
//! counters without room.
//!
//! Pure: [`Notices::round`] is called once a second, and returns the lines that are due by the figures and the time.

use super::logging;
use std::{collections::HashMap, fmt, time::Duration};
use tidegate_core::{
    limit::Timestamp,
    rules::{Advice, RuleSet},
    store::{COUNTER_BYTES, OnFull, Store},
};
use tidegate_service::CountedKeyPath;

/// Time between two lines about one path.
const REPEATED_AFTER: Duration = Duration::from_secs(3_600);
/// The most lines about paths in one second: as many as the log writes. A line that the log suppresses would be due again only after
/// [`REPEATED_AFTER`].
const LINES_MAX: usize = logging::LINES_MAX as usize / logging::PERIOD.as_secs() as usize;
/// If no request found the store full for this time, there is room again.
const ROOM_AFTER: Duration = Duration::from_secs(30);

/// A domain and keys.
type Path = (Box<str>, Box<[Box<str>]>);

/// The notices of a server, from one round to the next.
#[derive(Default)]
pub struct Notices {
    /// By domain and keys: time and count of the last line.
    unlimited: HashMap<Path, (Timestamp, u64)>,
    /// As `unlimited`, for descriptors without a day.
    unknown_days: HashMap<Path, (Timestamp, u64)>,
    /// Requests that found no room, as of the last round.
    no_room: usize,
    full: Option<Full>,
    /// The line about counters that do not fit, if there is one for the rules in force.
    memory: Option<Notice>,
}

/// A time without room.
struct Full {
    since: Timestamp,
    /// Number of requests that had found no room before it.
    before: usize,
    /// The last round in which requests found no room.
    last: Timestamp,
}

/// One line of the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// No rule decides descriptors of a domain with these keys.
    Unlimited {
        /// The domain.
        domain: Box<str>,
        /// `key → key`.
        keys: String,
        /// Descriptors since the last line.
        descriptors: u64,
        /// The reason, and the most similar rules.
        advice: Advice,
        /// Whether the conditions of limits do not hold, as their author wrote them.
        is_by_condition: bool,
    },
    /// For these keys, an entry for the day on which their windows begin is not a day.
    UnknownDay {
        /// The domain.
        domain: Box<str>,
        /// `key → key`.
        keys: String,
        /// Descriptors since the last line.
        descriptors: u64,
    },
    /// New keys have no room from now on.
    Full {
        /// The bound.
        counters_max: usize,
        /// The handling of requests with new keys.
        on_full: OnFull,
    },
    /// The largest permitted number of counters would take more memory than there is.
    Memory {
        /// The limit with the widest counters. None if the counters of all limits are equally wide.
        limit: Option<String>,
        /// Bytes of each such counter.
        bytes: u64,
        /// The bound on counters.
        counters_max: usize,
        /// The memory that the process may use.
        memory_max: u64,
    },
    /// New keys have room again.
    HasRoom {
        /// Requests that found no room.
        requests: usize,
        /// The time without room.
        took: Duration,
    },
}

impl Notices {
    /// The lines that are due.
    pub fn round(
        &mut self,
        (unlimited, unknown_days): (&[CountedKeyPath], &[CountedKeyPath]),
        rules: &RuleSet,
        (store, memory_max): (&Store, Option<u64>),
        now: Timestamp,
    ) -> Vec<Notice> {
        let mut notices: Vec<Notice> = self.room(store, now).into_iter().collect();
        notices.extend(memory_max.and_then(|bytes| self.memory(rules, store, bytes)));
        let unlimited = unlimited.iter().filter_map(|path| {
            let descriptors = since_last_line(&mut self.unlimited, path, now)?;
            let keys: Vec<&str> = path.keys.iter().map(|key| &**key).collect();
            let (domain, advice) = (path.domain.clone(), rules.advise(&path.domain, &keys));
            let of_domain = rules.domain(&domain);
            let is_by_condition = of_domain.is_some_and(|domain| domain.conditional().is_some());
            Some(Notice::Unlimited { domain, keys: path.path(), descriptors, advice, is_by_condition })
        });
        let unknown_days = unknown_days.iter().filter_map(|path| {
            let descriptors = since_last_line(&mut self.unknown_days, path, now)?;
            Some(Notice::UnknownDay { domain: path.domain.clone(), keys: path.path(), descriptors })
        });
        let room = LINES_MAX.saturating_sub(notices.len());
        notices.extend(unlimited.chain(unknown_days).take(room));
        notices
    }

    /// The line about counters that do not fit. It is repeated only after a change of the rules that changes it.
    fn memory(&mut self, rules: &RuleSet, store: &Store, memory_max: u64) -> Option<Notice> {
        let widest = rules.widest_limit();
        let bytes = COUNTER_BYTES + widest.map_or(0, |limit| limit.heap_bytes().most);
        let counters_max = store.counters_max();
        let exceeds = bytes.saturating_mul(counters_max as u64) > memory_max;
        let limit = widest.map(|limit| rules.limit_name(limit).to_string());
        let notice = exceeds.then_some(Notice::Memory { limit, bytes, counters_max, memory_max });
        let is_new = notice != self.memory;
        self.memory.clone_from(&notice);
        notice.filter(|_| is_new)
    }

    fn room(&mut self, store: &Store, now: Timestamp) -> Option<Notice> {
        let before = std::mem::replace(&mut self.no_room, store.no_room());
        match &mut self.full {
            None if self.no_room > before => {
                self.full = Some(Full { since: now, before, last: now });
                Some(Notice::Full { counters_max: store.counters_max(), on_full: store.on_full() })
            }
            Some(full) if self.no_room > before => {
                full.last = now;
                None
            }
            Some(full) if now.since(full.last) >= ROOM_AFTER => {
                let (requests, took) = (self.no_room - full.before, full.last.since(full.since));
                self.full = None;
                Some(Notice::HasRoom { requests, took })
            }
            _ => None,
        }
    }
}

/// The number of descriptors of a path since the last line about it, if another line is due.
fn since_last_line(
    logged: &mut HashMap<Path, (Timestamp, u64)>,
    path: &CountedKeyPath,
    now: Timestamp,
) -> Option<u64> {
    let last = logged.entry((path.domain.clone(), path.keys.clone())).or_insert((now, 0));
    let (at, count) = *last;
    let is_due = count == 0 || now.since(at) >= REPEATED_AFTER;
    if path.count == count || !is_due {
        return None;
    }
    *last = (now, path.count);
    Some(path.count - count)
}

impl Notice {
    /// Writes the line to the log.
    pub fn log(&self) {
        match self {
            Self::Unlimited { domain, keys, descriptors, advice, is_by_condition } => {
                let (domain, keys, nearest) = (&**domain, &**keys, &*advice.nearest);
                match is_by_condition {
                    true => tracing::info!(domain, keys, descriptors, "{self}"),
                    false => tracing::warn!(domain, keys, descriptors, nearest, "{self}"),
                }
            }
            Self::UnknownDay { domain, keys, descriptors } => {
                let (domain, keys) = (&**domain, &**keys);
                tracing::warn!(domain, keys, descriptors, "{self}");
            }
            Self::Full { counters_max, .. } => tracing::warn!(counters_max, "{self}"),
            Self::Memory { limit, bytes, counters_max, memory_max } => {
                let fitting = memory_max / bytes;
                tracing::warn!(limit, bytes, counters_max, memory_max, fitting, "{self}");
            }
            Self::HasRoom { requests, took } => tracing::info!(requests, ?took, "{self}"),
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unlimited { advice, .. } => {
                write!(f, "descriptors without a limit: {:?}; `tidegate ctl unlimited` prints a rule", advice.reason)
            }
            Self::UnknownDay { .. } => f.write_str(
                "descriptors whose entry for the day of their windows is no day: their windows begin with the first day of the calendar; send a day, or correct `entry` of the rule, which `tidegate ctl unlimited` shows",
            ),
            Self::Full { on_full: OnFull::Deny, .. } => f.write_str(
                "counters are full: requests with new keys are denied although they exceed no limit; raise --max-counters",
            ),
            Self::Full { on_full: OnFull::Allow, .. } => {
                f.write_str("counters are full: requests with new keys are admitted without a limit; raise --max-counters")
            }
            Self::Memory { .. } => f.write_str(
                "the memory does not hold as many counters of this limit as there may be; lower --max-counters, or the limit's precision or log",
            ),
            Self::HasRoom { .. } => f.write_str("counters have room again"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::{
        rules::{LoadOptions, Source},
        store::{Seed, StoreSettings},
    };

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(1_700_000_000_000 + seconds * 1_000)
    }

    fn store() -> Store {
        Store::new(StoreSettings { seed: Seed::from_bytes([1; 16]), counters_max: 5, on_full: OnFull::Deny })
    }

    fn path(key: &str, count: u64) -> CountedKeyPath {
        CountedKeyPath { domain: "d".into(), keys: [key.into()].into(), count, first: at(0), last: at(0) }
    }

    #[test]
    fn unlimited_paths_are_logged_at_once_and_then_hourly_while_they_grow() {
        let text =
            "domain: d\ndescriptors:\n- {key: user, rate_limit: {unit: minute, requests_per_unit: 5}}\n";
        let rules =
            RuleSet::parse(&[Source::file("r.yaml", text)], &LoadOptions::default()).expect("good rules");
        let (mut notices, store) = (Notices::default(), store());
        let mut lines = |paths: &[CountedKeyPath], seconds| -> Vec<(String, u64)> {
            let due = notices.round((paths, &[]), &rules, (&store, None), at(seconds)).into_iter();
            due.filter_map(|notice| match notice {
                Notice::Unlimited { keys, descriptors, .. } => Some((keys, descriptors)),
                _ => None,
            })
            .collect()
        };
        assert_eq!(lines(&[path("usr", 3)], 1), [("usr".to_owned(), 3)]);
        assert_eq!(lines(&[path("usr", 900), path("x", 1)], 2), [("x".to_owned(), 1)]);
        assert_eq!(lines(&[path("usr", 900), path("x", 1)], 3_600), []);
        assert_eq!(lines(&[path("usr", 900), path("x", 1)], 3_601), [("usr".to_owned(), 897)]);
        assert_eq!(lines(&[path("usr", 900), path("x", 1)], 8_000), []);
        // If there are many at once, each gets its line in time.
        let many: Vec<_> = (0..25).map(|key| path(&key.to_string(), 1)).collect();
        assert_eq!([0, 1, 2, 3, 4, 5].map(|round| lines(&many, 8_001 + round).len()), [5, 5, 5, 5, 5, 0]);
        let notice = notices
            .round((&[path("usr", 999)], &[]), &rules, (&store, None), at(9_000))
            .pop()
            .expect("it is due");
        assert_eq!(
            notice.to_string(),
            "descriptors without a limit: \"no descriptor has the key usr; did you mean user? Known keys: user\"; \
             `tidegate ctl unlimited` prints a rule"
        );
    }

    #[test]
    fn keys_whose_entry_is_no_day_are_logged_at_once_and_then_hourly() {
        let rules = RuleSet::parse(&[Source::file("r.yaml", "domain: d")], &LoadOptions::default());
        let (rules, mut notices, store) = (rules.expect("good rules"), Notices::default(), store());
        let mut line = |count, seconds| {
            notices.round((&[], &[path("day", count)]), &rules, (&store, None), at(seconds)).pop()
        };
        let notice = line(2, 1).expect("it is due");
        let expected = Notice::UnknownDay { domain: "d".into(), keys: "day".into(), descriptors: 2 };
        assert_eq!(notice, expected);
        assert!(notice.to_string().contains("is no day"), "{notice}");
        assert_eq!((line(3, 2), line(3, 9_000).is_some(), line(3, 20_000)), (None, true, None));
    }

    /// With `precision: 255`, a key took 1,113 bytes instead of the planned 64.
    #[test]
    fn counters_that_the_memory_does_not_hold_have_one_line_for_each_change_of_the_rules() {
        let rules = |precision: u32| {
            let text = format!(
                "domain: d\ndescriptors:\n- {{key: user, rate_limit: {{name: wide, unit: minute, requests_per_unit: 5, precision: {precision}}}}}\n"
            );
            RuleSet::parse(&[Source::file("r.yaml", text)], &LoadOptions::default()).expect("good rules")
        };
        let (mut notices, store) = (Notices::default(), store());
        let (narrow, wide) = (rules(1), rules(255));
        let mut round = |rules: &RuleSet| notices.round((&[], &[]), rules, (&store, Some(4_000)), at(0));
        let line = Notice::Memory {
            limit: Some("d: wide".into()),
            bytes: 1_159,
            counters_max: 5,
            memory_max: 4_000,
        };
        assert_eq!(round(&narrow), []);
        assert_eq!(round(&wide), std::slice::from_ref(&line));
        assert_eq!(round(&wide), []);
        assert_eq!(round(&narrow), []);
        assert_eq!(round(&wide), [line]);
    }

    #[test]
    fn a_time_without_room_has_one_line_at_its_begin_and_one_at_its_end() {
        let (mut notices, store, rules) = (Notices::default(), store(), RuleSet::default());
        let mut round = |seconds| notices.round((&[], &[]), &rules, (&store, None), at(seconds));
        assert_eq!(round(0), []);
        store.count_no_room();
        assert_eq!(round(1), [Notice::Full { counters_max: 5, on_full: OnFull::Deny }]);
        store.count_no_room();
        assert_eq!(round(20), []);
        store.count_no_room();
        assert_eq!((round(21), round(50)), (vec![], vec![]));
        assert_eq!(round(51), [Notice::HasRoom { requests: 3, took: Duration::from_secs(20) }]);
        assert_eq!(round(900), []);
        store.count_no_room();
        assert_eq!(round(901).len(), 1);
    }
}
