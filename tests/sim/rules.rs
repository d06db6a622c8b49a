//! Random rules: as a rule file, and as the oracle's models.

use crate::{
    oracle::{BERLIN_BILLING, BERLIN_MONTHS, Model},
    rng::Rng,
    schedule::{Schedule, is_window},
    world::{Kind, Settings},
};
use std::fmt::Write;

/// The rules of the domain `sim`; rule number `n` matches the key `kn`.
#[derive(Clone, Debug)]
pub struct Rules<L = Limit>(pub Vec<Rule<L>>);

#[derive(Clone, Debug)]
pub struct Rule<L = Limit> {
    pub limits: Vec<L>,
    pub shadow: bool,
    pub quota: bool,
}

#[derive(Clone, Debug)]
pub struct Limit {
    /// The keys of the limit in the file.
    keys: String,
    /// For a leaky bucket: bounds of its queue, if it has a queue.
    pub queue: Option<QueueLimits>,
    /// The limit in statuses. With reference semantics, a peek is compared with it.
    pub requests: u64,
    pub model: Model,
    pub always: bool,
    /// The most hits that it counts beyond the limit, in its requests per window; none if they are not bounded.
    pub debt_max: Option<u64>,
    /// Other numbers at times of the week.
    pub schedule: Option<Schedule>,
    /// Denials and the bans that they begin, as a model of their own.
    pub ban: Option<Model>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub struct QueueLimits {
    /// The longest wait, in nanoseconds.
    pub wait: u64,
    /// The maximum number of queued hits.
    pub hits: u64,
}

/// Limits are references to their keys in the file.
impl<L: AsRef<str> + Clone> Rules<L> {
    /// The same rules with one limit replaced; `make` gets the former limit, and whether it is a quota's limit.
    pub fn with_one_limit_changed(&self, rng: &mut Rng, make: impl FnOnce(&mut Rng, &L, bool) -> L) -> Self {
        let mut changed = self.clone();
        let rule = rng.below(changed.0.len() as u64) as usize;
        let Rule { limits, quota, .. } = &mut changed.0[rule];
        let limit = rng.below(limits.len() as u64) as usize;
        limits[limit] = make(rng, &limits[limit], *quota);
        changed
    }

    /// The rule file.
    pub fn yaml(&self) -> String {
        let mut yaml = String::from("domain: sim\ndescriptors:\n");
        for (number, rule) in self.0.iter().enumerate() {
            let Rule { limits, shadow, quota } = rule;
            let _ = writeln!(
                yaml,
                "- key: k{number}\n  shadow_mode: {shadow}\n  quota_mode: {quota}\n  rate_limits:"
            );
            for (limit, keys) in limits.iter().map(AsRef::as_ref).enumerate() {
                let _ = writeln!(yaml, "  - {{name: l{limit}, {keys}}}");
            }
        }
        yaml
    }
}

impl AsRef<str> for Limit {
    fn as_ref(&self) -> &str {
        &self.keys
    }
}

impl Rules {
    pub fn random(rng: &mut Rng, settings: Settings) -> Self {
        let rule = |rng: &mut Rng, number| {
            // With queues, quotas that are over without a denial should be beside queued descriptors, not instead of them.
            let quota = if settings.is_about_queues { number > 0 && rng.once_in(2) } else { rng.once_in(8) };
            let shadow = rng.once_in(8);
            let limits = 0..rng.pick(&[1, 1, 1, 2, 3]);
            Rule { limits: limits.map(|_| Limit::random(rng, settings, quota)).collect(), shadow, quota }
        };
        let most = if settings.is_about_queues { 3 } else { 4 };
        Self((0..rng.between(1, most)).map(|number| rule(rng, number)).collect())
    }

    pub fn changed(&self, rng: &mut Rng, settings: Settings) -> Self {
        self.with_one_limit_changed(rng, |rng, _, is_quota| Limit::random(rng, settings, is_quota))
    }

    /// The length of some window, in nanoseconds: the scale of the gaps between requests.
    pub fn some_length(&self, rng: &mut Rng) -> u64 {
        let rule = rng.pick(&self.0);
        let limit = rng.pick(&rule.limits);
        if limit.schedule.is_some() && rng.once_in(2) {
            return rng.pick(&[1_800_000_000_000, 3_600_000_000_000, 86_400_000_000_000]);
        }
        if let Some(Model::Ban { within, lasts, .. }) = limit.ban
            && rng.once_in(2)
        {
            return rng.pick(&[within, lasts]);
        }
        match limit.model {
            Model::SlidingWindow { window, precision, .. } => rng.pick(&[window, window.div_ceil(precision)]),
            Model::SlidingLog { window, .. }
            | Model::FixedWindow { window, .. }
            | Model::FirstHitWindow { window, .. } => window,
            Model::CalendarWindow { .. } => 86_400_000_000_000,
            Model::GreedyBucket { tokens, interval, .. } => rng.pick(&[interval, interval.div_ceil(tokens)]),
            Model::IntervalBucket { interval, .. } => interval,
            Model::LeakyBucket { hits, per, .. } => rng.pick(&[per, per.div_ceil(hits)]),
            Model::Ban { .. } => unreachable!("no limit of a rule"),
        }
    }
}

impl Limit {
    fn random(rng: &mut Rng, settings: Settings, is_quota: bool) -> Self {
        let mut limit = Self::plain(rng, settings, is_quota);
        if settings.kind == Kind::Times {
            limit.add_times(rng, settings, is_quota);
        }
        limit
    }

    /// Adds a schedule and a ban. Quotas and limits with queues cannot have bans. If there is no room for its counter, a denial is not
    /// counted; which of several counters has room depends on keys, so there are no bans if counters are scarce.
    fn add_times(&mut self, rng: &mut Rng, settings: Settings, is_quota: bool) {
        if is_window(&self.model) && !rng.once_in(3) {
            let schedule = Schedule::random(rng, &self.model);
            let _ = write!(self.keys, ", {}", schedule.yaml());
            if !matches!(self.model, Model::CalendarWindow { .. }) {
                let _ = write!(self.keys, ", time_zone: {}", schedule.zone());
            }
            self.schedule = Some(schedule);
        }
        if self.queue.is_none() && !is_quota && !settings.may_fill_up() && rng.once_in(2) {
            let after = rng.pick(&[1, 2, 3, 5]);
            let [within, lasts] = [0; 2].map(|_| rng.pick(&[250, 1_000, 10_000, 600_000, 7_200_000]));
            let _ = write!(self.keys, ", ban: {{after: {after}, within: {within}ms, for: {lasts}ms}}");
            self.ban = Some(Model::Ban { after, within: within * 1_000_000, lasts: lasts * 1_000_000 });
        }
    }

    /// With reference semantics, half of the limits use the reference's defaults. A quota cannot have a queue.
    fn plain(rng: &mut Rng, settings: Settings, is_quota: bool) -> Self {
        let limit = rng.pick(&[0, 1, 1, 2, 3, 5, 8, 20]);
        let millis = rng.pick(&[1, 3, 250, 1_000, 7_000, 10_000, 60_000, 3_600_000]);
        let (window, size) = (millis * 1_000_000, rng.pick(&[1, 2, 5, 12]));
        let rate = limit.max(1);
        if settings.is_reference && rng.once_in(2) {
            let keys = format!("requests_per_unit: {limit}, per: {millis}ms");
            let model = Model::FixedWindow { limit, window };
            return Self {
                keys,
                queue: None,
                requests: limit,
                model,
                always: true,
                debt_max: None,
                schedule: None,
                ban: None,
            };
        }
        let is_bucket = settings.is_about_queues && !rng.once_in(6);
        let (requests, other, model) = match if is_bucket { 8 } else { rng.below(9) } {
            0 => (
                limit,
                "algorithm: sliding_window".to_owned(),
                Model::SlidingWindow { limit, window, precision: 1 },
            ),
            1 => {
                let precision = rng.pick(&[2, 3, 8, 60, 255]);
                (
                    limit,
                    format!("algorithm: sliding_window, precision: {precision}"),
                    Model::SlidingWindow { limit, window, precision },
                )
            }
            2 => (limit, "algorithm: sliding_log".to_owned(), Model::SlidingLog { limit, window }),
            3 => (limit, "algorithm: fixed_window".to_owned(), Model::FixedWindow { limit, window }),
            4 => {
                let keys = "algorithm: fixed_window, aligned: first_hit".to_owned();
                (limit, keys, Model::FirstHitWindow { limit, window })
            }
            5 => {
                let (calendar, ends) = match limit % 2 {
                    0 => ("true", &BERLIN_MONTHS[..]),
                    _ => ("{month: 31 02:30}", &BERLIN_BILLING[..]),
                };
                let keys = format!(
                    "unit: month, algorithm: fixed_window, calendar: {calendar}, time_zone: Europe/Berlin"
                );
                (limit, keys, Model::CalendarWindow { limit, ends })
            }
            6 => {
                let keys = format!("algorithm: token_bucket, size: {size}");
                (rate, keys, Model::GreedyBucket { size, tokens: rate, interval: window })
            }
            7 => {
                let keys = format!("algorithm: token_bucket, refill: intervals, size: {size}");
                (rate, keys, Model::IntervalBucket { size, tokens: rate, interval: window })
            }
            _ => {
                let burst = if settings.is_about_queues { rng.pick(&[1, 1, 2, 3]) } else { size };
                let keys = format!("algorithm: leaky_bucket, burst: {burst}");
                (rate, keys, Model::LeakyBucket { burst, hits: rate, per: window })
            }
        };
        let per = if other.starts_with("unit:") { String::new() } else { format!("per: {millis}ms, ") };
        let always = rng.once_in(5);
        let charge = if always { "always" } else { "admitted" };
        let mut keys = format!("charge: {charge}, requests_per_unit: {requests}, {per}{other}");
        let queues = matches!(model, Model::LeakyBucket { .. }) && !is_quota && !rng.once_in(8);
        let queue = queues.then(|| QueueLimits::random(rng, millis));
        if let Some(QueueLimits { wait, hits }) = queue {
            let _ = write!(keys, ", max_wait: {}ms, max_queue: {hits}", wait / 1_000_000);
        }
        let is_bucket = matches!(
            model,
            Model::GreedyBucket { .. } | Model::IntervalBucket { .. } | Model::LeakyBucket { .. }
        );
        let mut debt_max = is_bucket.then_some(2);
        if always && rng.once_in(2) {
            let windows = rng.pick(&[0, 1, 3]);
            let _ = write!(keys, ", debt_max: {windows}");
            debt_max = Some(windows);
        }
        Self { keys, queue, requests, model, always, debt_max, schedule: None, ban: None }
    }
}

impl QueueLimits {
    /// The longest wait is of the order of the time in which the hits of the rate leak.
    fn random(rng: &mut Rng, per_millis: u64) -> Self {
        let wait_millis = rng.pick(&[per_millis, per_millis / 3, 4 * per_millis]).clamp(1, 3_600_000);
        Self { wait: wait_millis * 1_000_000, hits: rng.pick(&[3, 1, 2, 10, 100]) }
    }
}
