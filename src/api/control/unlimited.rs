//! Descriptors without a limit, unless a rule exempts them, and descriptors that state no day for their windows: `ListUnlimited`.

use super::{
    caller::Admitted,
    convert::timestamp,
    error::{Error, Result, on_thread},
    rules::page_size,
};
use crate::api::pb::control as pb;
use tidegate_core::{
    limit::Timestamp,
    rules::{Advice, DayAdvice, RuleSet},
};
use tidegate_service::{CountedKeyPath, KEY_PATHS_MAX, KeyPathCounts};

const PATHS_DEFAULT: usize = 100;

impl Admitted {
    pub(super) async fn list_unlimited(
        &self,
        message: pb::ListUnlimitedRequest,
    ) -> Result<pb::ListUnlimitedResponse> {
        let rules = self.control.limiter().ok_or_else(Error::starting)?.rules();
        let (now, meters) = (self.control.now(), self.control.service.meters());
        let unlimited = Listed::of(&meters.unlimited, &message, now);
        let unknown_days = Listed::of(&meters.unknown_days, &message, now);
        // Each path is compared with the rules.
        let advised = move || pb::ListUnlimitedResponse {
            paths: unlimited.paths.iter().map(|path| advised(&rules, path)).collect(),
            total: unlimited.total,
            others: unlimited.others,
            unknown_days: unknown_days.paths.iter().map(|path| unknown_day(&rules, path)).collect(),
            unknown_days_total: unknown_days.total,
            unknown_days_others: unknown_days.others,
        };
        on_thread("the paths could not be read", advised).await
    }
}

/// Paths that a request selects.
struct Listed {
    /// Paths, the newest first. Their number is at most the number in the request.
    paths: Vec<CountedKeyPath>,
    /// Number of all.
    total: u32,
    /// Descriptors whose paths are not counted apart.
    others: u64,
}

impl Listed {
    fn of(counts: &KeyPathCounts, message: &pb::ListUnlimitedRequest, now: Timestamp) -> Self {
        let (mut paths, others) = counts.read(now);
        paths.retain(|path| message.domain.is_empty() || *message.domain == *path.domain);
        let total = paths.len() as u32;
        paths.sort_by_key(|path| std::cmp::Reverse((path.last, path.count)));
        paths.truncate(page_size(message.limit, PATHS_DEFAULT, KEY_PATHS_MAX));
        Self { paths, total, others }
    }
}

fn advised(rules: &RuleSet, path: &CountedKeyPath) -> pb::UnlimitedPath {
    let keys = keys(path);
    let Advice { reason, nearest, declared_at, place, yaml } = rules.advise(&path.domain, &keys);
    pb::UnlimitedPath {
        domain: path.domain.to_string(),
        keys: keys.into_iter().map(str::to_owned).collect(),
        descriptors: path.count,
        first: Some(timestamp(path.first)),
        last: Some(timestamp(path.last)),
        reason,
        nearest,
        declared_at,
        yaml,
        place,
    }
}

fn unknown_day(rules: &RuleSet, path: &CountedKeyPath) -> pb::UnknownDayPath {
    let keys = keys(path);
    let DayAdvice { reason, rule, declared_at, remedy } = rules.advise_day(&path.domain, &keys);
    pb::UnknownDayPath {
        domain: path.domain.to_string(),
        keys: keys.into_iter().map(str::to_owned).collect(),
        descriptors: path.count,
        first: Some(timestamp(path.first)),
        last: Some(timestamp(path.last)),
        reason,
        rule,
        declared_at,
        remedy,
    }
}

fn keys(path: &CountedKeyPath) -> Vec<&str> {
    path.keys.iter().map(|key| &**key).collect()
}
