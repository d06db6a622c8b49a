//! A decision in the dynamic metadata of its stream, for access logs and later filters.
//!
//! Flat, so that one key of the namespace names each value.

use crate::{
    metrics::{Event, Outcome, Place},
    status::ShownStatus,
};
use tidegate_envoy_abi::Host;

/// The logged part of a decision.
#[derive(Debug)]
pub(crate) struct Logged {
    outcome: Outcome,
    /// Set if a server may decide.
    place: Option<Place>,
    /// Set if anything limits the request.
    limit: Option<LoggedLimit>,
}

/// A limit of the request: a limit that denies it, else the limit with the fewest remaining hits.
#[derive(Debug)]
struct LoggedLimit {
    name: String,
    requests: u32,
    remaining: u32,
    reset_seconds: u64,
}

impl Logged {
    /// The record of a request whose descriptors have these statuses.
    pub(crate) fn of<'s>(
        outcome: Outcome,
        place: Option<Place>,
        statuses: impl Iterator<Item = ShownStatus<&'s str>>,
    ) -> Self {
        let limited = statuses.filter_map(|status| Some((status, status.limit?)));
        let shown = limited.min_by_key(|(status, _)| (!status.is_over, status.remaining));
        let limit = shown.map(|(status, limit)| LoggedLimit {
            name: limit.name.to_owned(),
            requests: limit.requests,
            remaining: status.remaining,
            reset_seconds: status.reset_seconds,
        });
        Self { outcome, place, limit }
    }

    /// The record of a request that could not be decided.
    pub(crate) fn undecided(outcome: Outcome) -> Self {
        Self { outcome, place: None, limit: None }
    }

    /// Writes all of it.
    pub(crate) fn write(&self, namespace: &str, host: &mut dyn Host) {
        host.set_metadata_text(namespace, "outcome", Event::Decision(self.outcome).name());
        if let Some(place) = self.place {
            host.set_metadata_text(namespace, "decided_in", Event::DecidedIn(place).name());
        }
        let Some(limit) = &self.limit else { return };
        if !limit.name.is_empty() {
            host.set_metadata_text(namespace, "limit_name", &limit.name);
        }
        host.set_metadata_number(namespace, "requests_per_unit", limit.requests.into());
        host.set_metadata_number(namespace, "remaining", limit.remaining.into());
        // Exact up to 2^53.
        host.set_metadata_number(namespace, "reset_seconds", limit.reset_seconds as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{fake::Fake, status::ShownLimit};

    fn status(name: &str, is_over: bool, remaining: u32) -> ShownStatus<&str> {
        let limit = Some(ShownLimit { name, requests: 9, unit: None });
        ShownStatus { is_over, limit, remaining, reset_seconds: 7 }
    }

    fn written(logged: &Logged) -> Vec<String> {
        let mut host = Fake::default();
        logged.write("ns", &mut host);
        let text = |value: &Vec<u8>| String::from_utf8_lossy(value).into_owned();
        let texts = host.texts.iter().map(|(key, value)| format!("{key}={}", text(value)));
        texts.chain(host.numbers.iter().map(|(key, value)| format!("{key}={value}"))).collect()
    }

    #[test]
    fn a_limit_that_denies_is_shown_before_one_with_fewer_remaining_hits() {
        let free = ShownStatus { limit: None, ..status("", false, 0) };
        let statuses = [free, status("tight", false, 1), status("over", true, 3)];
        let logged = Logged::of(Outcome::OverLimit, Some(Place::Server), statuses.into_iter());
        let expected = [
            "Dynamic/ns/decided_in=server",
            "Dynamic/ns/limit_name=over",
            "Dynamic/ns/outcome=over_limit",
            "Dynamic/ns/remaining=3",
            "Dynamic/ns/requests_per_unit=9",
            "Dynamic/ns/reset_seconds=7",
        ];
        assert_eq!(written(&logged), expected);
        let logged = Logged::of(Outcome::Ok, None, statuses[..2].iter().copied());
        assert_eq!(written(&logged)[0], "Dynamic/ns/limit_name=tight");
    }

    #[test]
    fn a_request_without_limits_has_its_outcome_only() {
        let logged = Logged::of(Outcome::Ok, None, std::iter::empty());
        assert_eq!(written(&logged), ["Dynamic/ns/outcome=ok"]);
        assert_eq!(written(&Logged::undecided(Outcome::Error)), ["Dynamic/ns/outcome=error"]);
    }
}
