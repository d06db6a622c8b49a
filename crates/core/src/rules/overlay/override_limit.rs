//! One limit of an override, and its JSON.

use crate::{
    algorithm::{
        Algorithm, Concurrency, FixedWindow, LeakyBucket, Period, Rate, Schedule, SlidingLog, SlidingWindow,
        SubWindows, TokenBucket,
    },
    limit::{Unit, Window},
    rules::{
        DefaultAlgorithm, Semantics,
        grammar::{IN_FLIGHT_MAX, LOG_LIMIT_MAX, parse_window},
    },
};
use serde::{Deserialize, Serialize};
use std::num::NonZeroU32;

/// The most limits of one override.
pub const OVERRIDE_LIMITS_MAX: usize = 8;

/// A limit that replaces a limit of a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(into = "Json", try_from = "Json")]
pub struct OverrideLimit {
    requests: u32,
    window: Window,
    algorithm: Option<DefaultAlgorithm>,
    burst: Option<u32>,
}

/// Reason why a limit of an override is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OverrideLimitError {
    /// The window is no unit and no length.
    #[error(
        "{text:?} is no window; write second, minute, hour, day, week, month or year, or a length such as 30s: {remedy}"
    )]
    Window {
        /// The text.
        text: String,
        /// The remedy for lengths.
        remedy: String,
    },
    /// There is no such algorithm.
    #[error("{0:?} is no algorithm; write one of {names}", names = DefaultAlgorithm::NAMES.join(", "))]
    Algorithm(String),
    /// Windows have no burst.
    #[error("{0} has no burst; leave it out, or write token_bucket or leaky_bucket")]
    Burst(&'static str),
    /// The log would be too long.
    #[error("a sliding_log of {0} hits is too large (at most {LOG_LIMIT_MAX}); write sliding_window")]
    Log(u32),
    /// The bucket would never be filled again.
    #[error("a bucket with 0 per window is never refilled; write 1 or more, or leave the burst out")]
    NeverRefilled,
}

/// The JSON of a limit: `unit` if the window is one, else `per`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Json {
    requests: u32,
    #[serde(alias = "unit")]
    per: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    algorithm: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    burst: Option<u32>,
}

impl OverrideLimit {
    /// No hits.
    pub(super) fn none() -> Self {
        Self { requests: 0, window: Unit::Second.window(), algorithm: None, burst: None }
    }

    /// So many hits in a window, such as `minute` or `30s`. Without an algorithm, that of the limit that it replaces.
    pub fn new(
        requests: u32,
        window: &str,
        algorithm: Option<&str>,
        burst: Option<u32>,
    ) -> Result<Self, OverrideLimitError> {
        let window = match Unit::from_name(window) {
            Some(unit) => unit.window(),
            None => parse_window(window)
                .map_err(|remedy| OverrideLimitError::Window { text: window.to_owned(), remedy })?,
        };
        let named = |name: &str| {
            DefaultAlgorithm::named(name).ok_or_else(|| OverrideLimitError::Algorithm(name.to_owned()))
        };
        let algorithm = algorithm.map(named).transpose()?;
        match algorithm.map(DefaultAlgorithm::name) {
            Some(name @ ("sliding_window" | "sliding_log" | "fixed_window")) if burst.is_some() => {
                return Err(OverrideLimitError::Burst(name));
            }
            Some("sliding_log") if requests > LOG_LIMIT_MAX => return Err(OverrideLimitError::Log(requests)),
            _ => {}
        }
        match (requests, burst) {
            (0, Some(1..)) => Err(OverrideLimitError::NeverRefilled),
            _ => Ok(Self { requests, window, algorithm, burst }),
        }
    }

    /// Hits in a window.
    pub fn requests(&self) -> u32 {
        self.requests
    }

    /// The window.
    pub fn window(&self) -> Window {
        self.window
    }

    /// The window as `new` takes it.
    pub fn window_text(&self) -> String {
        Unit::of_window(self.window).map_or_else(|| self.window.to_string(), |unit| unit.name().to_owned())
    }

    /// The name of the algorithm; none for that of the rule.
    pub fn algorithm_name(&self) -> Option<&'static str> {
        self.algorithm.map(DefaultAlgorithm::name)
    }

    /// The size of a bucket; none for that of the rule, in proportion.
    pub fn burst(&self) -> Option<u32> {
        self.burst
    }

    /// The arithmetic, instead of a limit of so many requests with this one.
    pub(in crate::rules) fn algorithm(
        &self,
        semantics: Semantics,
        behind: Option<(u32, &Algorithm)>,
    ) -> Algorithm {
        let Self { requests, window, algorithm, burst } = *self;
        match (algorithm.map(DefaultAlgorithm::name), behind) {
            (None, Some((former, behind))) => self.like(former, behind),
            (None, None) if burst.is_some() => self.token_bucket(requests),
            (None, None) => semantics.algorithm(requests, window),
            (Some("sliding_log"), _) => Algorithm::SlidingLog(SlidingLog { limit: requests, window }),
            (Some("fixed_window"), _) => {
                Algorithm::FixedWindow(FixedWindow { limit: requests, schedule: Schedule::Clock(window) })
            }
            (Some("token_bucket"), _) => self.token_bucket(requests),
            (Some("leaky_bucket"), _) => Algorithm::LeakyBucket(self.leaky_bucket(requests)),
            (Some(_), _) => Algorithm::SlidingWindow(SlidingWindow { limit: requests, window }),
        }
    }

    /// The algorithm of a limit with other numbers. A bucket keeps its size in proportion to its requests.
    fn like(&self, former: u32, behind: &Algorithm) -> Algorithm {
        let Self { requests: limit, window, burst, .. } = *self;
        let in_proportion = |size: u32| match NonZeroU32::new(former) {
            Some(former) => {
                let size = (u64::from(size) * u64::from(limit)).div_ceil(u64::from(former.get()));
                u32::try_from(size).unwrap_or(u32::MAX)
            }
            None => limit,
        };
        match behind {
            // A burst is wanted, which windows do not have.
            Algorithm::SlidingWindow(_)
            | Algorithm::SubWindows(_)
            | Algorithm::SlidingLog(_)
            | Algorithm::FixedWindow(_)
                if burst.is_some() =>
            {
                self.token_bucket(limit)
            }
            Algorithm::SlidingLog(_) if limit <= LOG_LIMIT_MAX => {
                Algorithm::SlidingLog(SlidingLog { limit, window })
            }
            Algorithm::SlidingWindow(_) | Algorithm::SlidingLog(_) => {
                Algorithm::SlidingWindow(SlidingWindow { limit, window })
            }
            Algorithm::SubWindows(parts) => {
                Algorithm::SubWindows(SubWindows::new(limit, window, parts.precision()))
            }
            Algorithm::FixedWindow(fixed) => {
                let schedule = match &fixed.schedule {
                    Schedule::FirstHit(_) => Schedule::FirstHit(window),
                    Schedule::Calendar(calendar)
                        if Unit::of_window(window) == Some(unit_of(calendar.period())) =>
                    {
                        Schedule::Calendar(calendar.clone())
                    }
                    Schedule::Clock(_) | Schedule::Calendar(_) => Schedule::Clock(window),
                };
                Algorithm::FixedWindow(FixedWindow { limit, schedule })
            }
            // Requests in flight have no window: what an override changes is their number.
            Algorithm::Concurrency(slots) => {
                Algorithm::Concurrency(Concurrency { limit: limit.min(IN_FLIGHT_MAX), ..*slots })
            }
            // No limit of a rule is a ban.
            Algorithm::Ban(_) => behind.clone(),
            Algorithm::TokenBucket(bucket) => self.token_bucket(in_proportion(bucket.size)),
            Algorithm::LeakyBucket(bucket) => Algorithm::LeakyBucket(LeakyBucket {
                queue: bucket.queue,
                ..self.leaky_bucket(in_proportion(bucket.burst))
            }),
        }
    }

    fn rate(&self) -> NonZeroU32 {
        // A bucket without room admits nothing, at whatever rate.
        NonZeroU32::new(self.requests).unwrap_or(NonZeroU32::MIN)
    }

    fn token_bucket(&self, size: u32) -> Algorithm {
        Algorithm::TokenBucket(TokenBucket::greedy(self.burst.unwrap_or(size), self.rate(), self.window))
    }

    fn leaky_bucket(&self, size: u32) -> LeakyBucket {
        let (burst, rate) = (self.burst.unwrap_or(size), Rate::new(self.rate(), self.window));
        LeakyBucket { burst, rate, queue: None }
    }
}

/// The unit that a rule file has for a period.
fn unit_of(period: Period) -> Unit {
    match period {
        Period::Day => Unit::Day,
        Period::Week => Unit::Week,
        Period::Month => Unit::Month,
        Period::Year => Unit::Year,
    }
}

impl From<OverrideLimit> for Json {
    fn from(limit: OverrideLimit) -> Self {
        Self {
            requests: limit.requests,
            per: limit.window_text(),
            algorithm: limit.algorithm_name().map(str::to_owned),
            burst: limit.burst,
        }
    }
}

impl TryFrom<Json> for OverrideLimit {
    type Error = OverrideLimitError;

    fn try_from(json: Json) -> Result<Self, Self::Error> {
        Self::new(json.requests, &json.per, json.algorithm.as_deref(), json.burst)
    }
}

/// One limit as an object, several as a list of them.
pub(super) mod one_or_several {
    use super::OverrideLimit;
    use serde::{Deserialize, Deserializer, Serialize as _, Serializer};

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum OneOrSeveral {
        One(OverrideLimit),
        Several(Vec<OverrideLimit>),
    }

    pub(in super::super) fn serialize<S: Serializer>(
        limits: &[OverrideLimit],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match limits {
            [limit] => limit.serialize(serializer),
            limits => limits.serialize(serializer),
        }
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<OverrideLimit>, D::Error> {
        Ok(match OneOrSeveral::deserialize(deserializer)? {
            OneOrSeveral::One(limit) => vec![limit],
            OneOrSeveral::Several(limits) => limits,
        })
    }
}
