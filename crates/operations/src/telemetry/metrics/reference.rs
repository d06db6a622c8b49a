//! Figures under the reference server's Prometheus names and labels.
//!
//! A statsd metric of the reference server, `ratelimit.service.rate_limit.DOMAIN.KEY.KEY….total_hits`, becomes a series with the labels
//! `domain`, `key1` and `key2`. Keys after the second have no label.

use super::{page::Page, sink::Label};
use crate::config::RulesStatus;
use std::{collections::BTreeMap, fmt};
use tidegate_core::limit::Code;
use tidegate_counts::HistogramSums;
use tidegate_service::{DecisionEvent, Meters, ReferenceHits, Refusal};

/// The figures of the reference server.
pub(super) struct ReferenceFigures {
    /// Hits by domain and keys, with dots between them.
    pub(super) hits: BTreeMap<Box<str>, ReferenceHits>,
    /// Requests that are malformed or have no rules.
    pub(super) errors: u64,
    /// Calls.
    pub(super) requests: u64,
    /// Durations of the responses.
    pub(super) responses: HistogramSums,
    /// Loads of rules.
    pub(super) loads: u64,
    /// Loads of rules that failed.
    pub(super) failed_loads: u64,
}

impl ReferenceFigures {
    /// The figures now; none if they are not configured.
    pub(super) fn read(meters: &Meters, status: &RulesStatus) -> Option<Self> {
        let hits = meters.reference.as_ref()?.sums();
        let decided = |event| meters.decisions.sum(event);
        let of_service = [Refusal::EmptyDomain, Refusal::NoDescriptors, Refusal::NoRules];
        let errors: u64 = of_service.into_iter().map(|refusal| meters.refusals.sum(refusal)).sum();
        let calls = decided(DecisionEvent::Admitted) + decided(DecisionEvent::Denied) + errors;
        let [admitted, denied] = [Code::Ok, Code::OverLimit].map(|code| meters.responses(code).sums());
        Some(Self {
            hits,
            errors,
            // The reference server only counts gRPC calls.
            requests: calls.saturating_sub(decided(DecisionEvent::JsonCall)),
            responses: sum(admitted, &denied),
            loads: status.loads,
            failed_loads: status.failed,
        })
    }
}

/// An outcome of hits: its name and its count.
pub(super) type Outcome = (&'static str, fn(&ReferenceHits) -> u64);

/// The outcomes.
pub(super) const OUTCOMES: [Outcome; 5] = [
    ("total_hits", |hits| hits.total),
    ("over_limit", |hits| hits.over_limit),
    ("near_limit", |hits| hits.near_limit),
    ("within_limit", |hits| hits.within_limit),
    ("shadow_mode", |hits| hits.shadow_mode),
];

/// Labels of a series: domain, first key, and second key if there is one.
type Labels = (String, String, Option<String>);

impl Page<'_> {
    /// The metrics of the reference server.
    pub(super) fn reference(&mut self, figures: &ReferenceFigures) -> fmt::Result {
        let mut by_labels: BTreeMap<Labels, ReferenceHits> = BTreeMap::new();
        for (key, counts) in &figures.hits {
            if let Some(labels) = labels(key) {
                by_labels.entry(labels).or_default().add(counts);
            }
        }
        for (name, read) in OUTCOMES {
            self.samples(&format!("rate_limit_{name}"), &mut |samples| {
                by_labels.iter().try_for_each(|((domain, key1, key2), hits)| {
                    let key2 = key2.as_deref().map(|key2| ("key2", key2));
                    let labels: [Label<'_>; 2] = [("domain", domain), ("key1", key1)];
                    let labels: Vec<Label<'_>> = labels.into_iter().chain(key2).collect();
                    samples.sample(&labels, read(hits).into())
                })
            })?;
        }
        let ReferenceFigures { errors, requests, responses, loads, failed_loads, .. } = figures;
        let error = [("err_type", "service_error")];
        self.family("should_rate_limit_error", &[(error, (*errors).into())])?;
        let method = [("grpc_method", "ShouldRateLimit")];
        self.family("total_requests", &[(method, (*requests).into())])?;
        self.family("response_time_seconds", &[(method, responses.into())])?;
        self.value("config_load_success", *loads)?;
        self.value("config_load_error", *failed_loads)
    }
}

fn sum(mut one: HistogramSums, other: &HistogramSums) -> HistogramSums {
    one.buckets.iter_mut().zip(&other.buckets).for_each(|(sum, more)| *sum += more);
    one.sum += other.sum;
    one
}

/// The labels of a key. None if it only has a domain.
fn labels(key: &str) -> Option<Labels> {
    let key = sanitized(key);
    let mut parts = key.split('.').map(str::to_owned);
    Some((parts.next()?, parts.next()?, parts.next()))
}

/// The key as the reference server writes it: without `:` and `|`, and with `_` instead of the dots of IPv4 addresses.
pub(super) fn sanitized(key: &str) -> String {
    let mut text = key.replace([':', '|'], "_");
    let mut from = 0;
    while let Some(start) = text[from..].find(|c: char| c.is_ascii_digit()).map(|at| from + at) {
        match ipv4_length(&text[start..]) {
            Some(length) => {
                let address = text[start..start + length].replace('.', "_");
                text.replace_range(start..start + length, &address);
                from = start + length;
            }
            None => from = start + 1,
        }
    }
    text
}

/// Length of the address at the start of a text: four numbers of one to three digits.
fn ipv4_length(text: &str) -> Option<usize> {
    let mut length = 0;
    for part in 0..4 {
        if part > 0 {
            length += text[length..].starts_with('.').then_some(1)?;
        }
        let digits = text[length..].bytes().take(3).take_while(u8::is_ascii_digit).count();
        length += (digits > 0).then_some(digits)?;
    }
    Some(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_beyond_the_second_have_no_label() {
        let own = |text: &str| Some(text.to_owned());
        assert_eq!(labels("d.a_x"), Some(("d".into(), "a_x".into(), None)));
        assert_eq!(labels("d.a_x.b.c.e"), Some(("d".into(), "a_x".into(), own("b"))));
        assert_eq!(labels("d"), None);
    }

    #[test]
    fn addresses_keep_to_one_part_of_a_name() {
        assert_eq!(sanitized("d.ip_10.0.0.1.k"), "d.ip_10_0_0_1.k");
        assert_eq!(sanitized("d.v_1.2.3"), "d.v_1.2.3", "three numbers are no address");
        assert_eq!(sanitized("a:b|c.1234.5.6.7"), "a_b_c.1234_5_6_7", "as the regular expression matches it");
    }
}
