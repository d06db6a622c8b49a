//! One limit of an override, and its JSON.

use crate::{
    algorithm::Algorithm,
    limit::{Unit, Window},
    rules::{DefaultAlgorithm, Semantics, grammar::parse_window},
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
    /// The algorithm does not have such large limits.
    #[error("a {name} of {requests} hits is too large (at most {most}); write sliding_window")]
    TooLarge {
        /// The algorithm.
        name: &'static str,
        /// The number.
        requests: u32,
        /// The largest number.
        most: u32,
    },
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

    /// `requests` hits in a window, such as `minute` or `30s`. Without an algorithm, by that of the limit that it replaces.
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
        if let Some(algorithm) = algorithm {
            let (name, like) = (algorithm.name(), algorithm.of(requests, window, requests));
            if burst.is_some() && !like.is_bucket() {
                return Err(OverrideLimitError::Burst(name));
            }
            if requests > like.limit_max() {
                return Err(OverrideLimitError::TooLarge { name, requests, most: like.limit_max() });
            }
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

    /// The arithmetic, given the number and the algorithm of the limit that it replaces.
    pub(in crate::rules) fn algorithm(
        &self,
        semantics: Semantics,
        behind: Option<(u32, &Algorithm)>,
    ) -> Algorithm {
        let Self { requests, window, algorithm, burst } = *self;
        match (algorithm, behind) {
            (None, Some((former, behind))) => self.like(former, behind),
            (None, None) if burst.is_some() => self.token_bucket(requests),
            (None, None) => semantics.algorithm(requests, window),
            (Some(algorithm), _) => algorithm.of(requests, window, burst.unwrap_or(requests)),
        }
    }

    /// The algorithm of a limit with other numbers. A bucket keeps its size in proportion to its requests.
    fn like(&self, former: u32, behind: &Algorithm) -> Algorithm {
        let Self { requests: limit, window, burst, .. } = *self;
        // Windows have no burst.
        if burst.is_some() && behind.has_window() {
            return self.token_bucket(limit);
        }
        let in_proportion = |size: u32| match NonZeroU32::new(former) {
            Some(former) => {
                let size = (u64::from(size) * u64::from(limit)).div_ceil(u64::from(former.get()));
                u32::try_from(size).unwrap_or(u32::MAX)
            }
            None => limit,
        };
        let size = burst.or(behind.capacity().map(in_proportion)).unwrap_or(limit);
        behind.replaced(limit, window, size)
    }

    fn token_bucket(&self, size: u32) -> Algorithm {
        Algorithm::token_bucket(self.burst.unwrap_or(size), self.requests, self.window)
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
