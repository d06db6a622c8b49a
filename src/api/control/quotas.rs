//! Limits that clients enforce by themselves (RLQS), and their shares: `ListQuotas`.

use super::{
    caller::Admitted,
    convert::{duration, timestamp},
    error::{Error, Result},
    live::entry,
    rules::page_size,
};
use crate::api::pb::control::{self as pb, quota_bucket::Division, quota_subscriber::Assignment};
use std::sync::Arc;
use tidegate_core::{
    limit::Entry,
    rules::{DomainRules, RuleSet},
};
use tidegate_operations::control::ShownEntry;
use tidegate_service::{BucketFilter, BucketName, QuotaBucket, QuotaQuery, QuotaSubscriber};
use tidegate_shared::quota::{BucketView, PartView, ShareView};

const BUCKETS_DEFAULT: usize = 100;
const BUCKETS_MAX: usize = 1_000;

impl Admitted {
    pub(super) async fn list_quotas(&self, message: pb::ListQuotasRequest) -> Result<pb::ListQuotasResponse> {
        let rules = self.control.limiter().ok_or_else(Error::starting)?.rules();
        let quotas = self.control.service.quotas();
        let limit = page_size(message.limit, BUCKETS_DEFAULT, BUCKETS_MAX);
        let query = QuotaQuery { selects: self.selects(message, &rules), limit };
        let list = quotas.list(query).await;
        Ok(pb::ListQuotasResponse {
            buckets: list.buckets.into_iter().map(|bucket| self.quota_bucket(bucket, &rules)).collect(),
            total: u32::try_from(list.total).unwrap_or(u32::MAX),
            streams: quotas.figures().streams,
            undivided: list.undivided,
            is_learning: list.is_learning,
        })
    }

    /// Whether a bucket is listed. The filter sees redacted values as they are shown.
    fn selects(&self, message: pb::ListQuotasRequest, rules: &Arc<RuleSet>) -> BucketFilter {
        let (control, rules) = (Arc::clone(&self.control), Arc::clone(rules));
        Box::new(move |domain, bucket| {
            if !message.domain.is_empty() && message.domain != domain {
                return false;
            }
            let of_domain = rules.domain(domain);
            message.contains.is_empty() || {
                let text = |Entry { key, value }| {
                    let shown = control.values.show(of_domain, key, value);
                    format!("{key}={}", shown.value.unwrap_or_default())
                };
                bucket.entries().map(text).collect::<Vec<_>>().join(",").contains(&message.contains)
            }
        })
    }

    fn quota_bucket(&self, listed: QuotaBucket, rules: &RuleSet) -> pb::QuotaBucket {
        let QuotaBucket { domain, bucket, view, subscribers } = listed;
        let of_domain = rules.domain(&domain);
        let show = |Entry { key, value }| self.control.values.show(of_domain, key, value);
        let entries: Vec<ShownEntry> = bucket.entries().map(show).collect();
        let is_redacted = entries.iter().any(|entry| entry.is_redacted);
        let (rule, requests, window) =
            of_domain.and_then(|domain| rule_of(domain, &bucket)).unwrap_or_default();
        let BucketView { is_sliced, clients, demand, rate, tokens, gone_rate, gone_tokens, part, key: _ } =
            view;
        pb::QuotaBucket {
            domain: domain.to_string(),
            entries: entries.into_iter().map(entry).collect(),
            is_redacted,
            // The path of a rule contains values of the rule file, which are those of the bucket.
            rule: if is_redacted { String::new() } else { rule },
            requests,
            window,
            division: if is_sliced { Division::Slices } else { Division::Rates }.into(),
            demand: per_second(demand),
            rate: per_second(rate),
            tokens,
            gone_rate: per_second(gone_rate),
            gone_tokens,
            subscriber_count: u32::try_from(clients).unwrap_or(u32::MAX),
            subscribers: subscribers.into_iter().map(subscriber).collect(),
            part: part.map(quota_part),
        }
    }
}

/// The path of the rule of a bucket, and its limit.
fn rule_of(
    domain: &DomainRules,
    bucket: &BucketName,
) -> Option<(String, u32, Option<prost_types::Duration>)> {
    let entries: Vec<Entry<'_>> = bucket.entries().collect();
    let rule = domain.find(&domain.in_order_of_rules(&entries))?.rule;
    let limit = rule.limits.first();
    let window = limit.map(|limit| duration(limit.window.duration()));
    Some((rule.info.path.to_string(), limit.map_or(0, |limit| limit.requests), window))
}

fn quota_part(of: PartView) -> pb::QuotaPart {
    let PartView { own, end, others, servers } = of;
    pb::QuotaPart {
        rate: per_second(own.rate),
        tokens: own.burst,
        expires: Some(timestamp(end)),
        other_servers: u32::try_from(servers).unwrap_or(u32::MAX),
        others_rate: per_second(others.rate),
        others_tokens: others.burst,
    }
}

fn subscriber(of: QuotaSubscriber) -> pb::QuotaSubscriber {
    let QuotaSubscriber { stream, address, names, share } = of;
    let ShareView { stream: _, place: _, demand, rate, tokens, is_denied, reported, idle, ends } = share;
    let assignment = match ends {
        None => Assignment::None,
        Some(_) if is_denied => Assignment::DenyAll,
        Some(_) => Assignment::Tokens,
    };
    pb::QuotaSubscriber {
        stream,
        peer: address.to_string(),
        names: names.to_vec(),
        assignment: assignment.into(),
        demand: per_second(demand),
        rate: per_second(rate),
        tokens: tokens.into(),
        last_report: Some(timestamp(reported)),
        idle_reports: idle.into(),
        expires: ends.map(timestamp),
    }
}

/// Requests per second, of thousandths.
fn per_second(millihits: u64) -> f64 {
    millihits as f64 / 1_000.0
}
