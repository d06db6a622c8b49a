//! `tidegate rlqs envoy-config`: the filter of Envoy for the rules of a domain.
//!
//! What Envoy 1.40 ignores or fails on is not part of it: a token bucket without an assignment crashes it, and `reuse_last_assignment`,
//! `filter_enabled` and `filter_enforced` have no effect.

use super::matchers::{self, KeyInput};
use crate::cli::{
    Failure,
    arguments::{Choice, choice, rule_files::ReadAs},
    output::{table, yaml::Yaml},
};
use base64::prelude::*;
use clap::Args;
use std::{collections::BTreeMap, path::PathBuf, process::ExitCode};
use tidegate_core::{
    limit::{OnDeny, Reply},
    rules::{DeclaredPath, DomainRules, REPORT_INTERVAL, RuleSet},
};
use tidegate_envoy_config::KeySource;

const FILTER: &str = "envoy.extensions.filters.http.rate_limit_quota.v3.RateLimitQuotaFilterConfig";
const SETTINGS: &str = "envoy.extensions.filters.http.rate_limit_quota.v3.RateLimitQuotaBucketSettings";

/// The most headers that the filter adds to a denial.
const DENIAL_HEADERS_MAX: usize = 10;

/// Prints the filter rate_limit_quota of Envoy for a domain with `rlqs`: a matcher with its bucket for each rule.
///
/// A request counts in one bucket, that of the first matcher. Keys are read from headers of their names (api_key from api-key),
/// remote_address, path, method, host and generic_key as in Envoy's rate limit actions; --input states others.
#[derive(Args)]
pub(in crate::cli) struct EnvoyConfig {
    /// A rule file, or a directory of them; repeat for more.
    #[arg(long, env = "TIDEGATE_RULES", value_name = "PATH", value_delimiter = ':', required = true)]
    rules: Vec<PathBuf>,
    #[command(flatten)]
    read_as: ReadAs,
    /// The domain, if several have `rlqs`.
    #[arg(long)]
    domain: Option<String>,
    /// Name of the cluster with Tidegate's gRPC port.
    #[arg(long, default_value = "tidegate")]
    cluster: String,
    /// The part of a request that is the value of a key: KEY=header:NAME, KEY=source_ip or KEY=constant; repeat for more.
    #[arg(long, value_name = "KEY=INPUT")]
    input: Vec<KeyInput>,
    /// Verdict on requests of a bucket before its first assignment, and when Tidegate cannot be reached for longer than an assignment
    /// holds.
    #[arg(long, default_value = "allow", value_parser = choice(FALLBACKS))]
    fallback: &'static str,
}

/// Requests without an assignment.
const FALLBACKS: [Choice<&'static str>; 2] =
    [("allow", "Admit them", "ALLOW_ALL"), ("deny", "Deny them", "DENY_ALL")];

impl EnvoyConfig {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let rules = self.read_as.load(&self.rules)?;
        let domain = self.domain(&rules)?;
        let inputs: BTreeMap<String, KeySource> =
            self.input.iter().map(|KeyInput { key, input }| (key.clone(), input.clone())).collect();
        let mut matchers = Vec::new();
        let mut on_no_match = None;
        for path in domain.declared_paths() {
            match matchers::bucket(&path, &inputs) {
                Err(reason) => eprintln!("no bucket for {}: {reason}", path.rule.info.path),
                Ok(_) if on_no_match.is_some() => {
                    eprintln!(
                        "no bucket for {}: a rule before it matches every request",
                        path.rule.info.path
                    );
                }
                Ok((Some(predicate), values)) => {
                    let action = self.action(&path, values);
                    matchers.push(Yaml::map([("predicate", predicate), ("on_match", action)]));
                }
                Ok((None, values)) => on_no_match = Some(self.action(&path, values)),
            }
        }
        if matchers.is_empty() && on_no_match.is_none() {
            return Err(Failure(format!("no rule of the domain `{}` has a bucket in Envoy", domain.name())));
        }
        table::print_line(self.filter(domain, matchers, on_no_match).to_item().trim_end());
        Ok(ExitCode::SUCCESS)
    }

    fn domain<'r>(&self, rules: &'r RuleSet) -> Result<&'r DomainRules, Failure> {
        let with_quotas: Vec<&DomainRules> =
            rules.domains().filter(|domain| domain.quotas().is_some()).collect();
        let names = || with_quotas.iter().map(|domain| domain.name()).collect::<Vec<_>>().join(", ");
        match (&self.domain, &*with_quotas) {
            (_, []) => Err(Failure("no domain has `rlqs`; write `rlqs: {}` beside its `domain`".to_owned())),
            (None, [only]) => Ok(only),
            (None, _) => {
                Err(Failure(format!("several domains have `rlqs`; choose one with --domain: {}", names())))
            }
            (Some(name), all) => all.iter().find(|domain| domain.name() == name).copied().ok_or_else(|| {
                Failure(format!("the domain `{name}` has no `rlqs`; domains that have: {}", names()))
            }),
        }
    }

    fn filter(&self, domain: &DomainRules, matchers: Vec<Yaml>, on_no_match: Option<Yaml>) -> Yaml {
        let mut tree = Vec::new();
        if !matchers.is_empty() {
            let list = Yaml::map([("matchers", Yaml::List(matchers))]);
            tree.push(("matcher_list".to_owned(), list));
        }
        tree.extend(on_no_match.map(|action| ("on_no_match".to_owned(), action)));
        let server = Yaml::map([("envoy_grpc", Yaml::map([("cluster_name", Yaml::text(&self.cluster))]))]);
        Yaml::extension(
            "envoy.filters.http.rate_limit_quota",
            FILTER,
            [
                ("rlqs_server", server),
                ("domain", Yaml::text(domain.name())),
                ("bucket_matchers", Yaml::Map(tree)),
            ],
        )
    }

    /// The settings of a bucket with these values.
    fn action(&self, path: &DeclaredPath<'_>, values: Yaml) -> Yaml {
        let fallback = || Yaml::map([("blanket_rule", Yaml::text(self.fallback))]);
        let interval = || Yaml::Text(format!("{}s", REPORT_INTERVAL.as_secs()));
        let expired = Yaml::map([
            ("expired_assignment_behavior_timeout", interval()),
            ("fallback_rate_limit", fallback()),
        ]);
        let settings = Yaml::extension(
            "bucket",
            SETTINGS,
            [
                ("bucket_id_builder", Yaml::map([("bucket_id_builder", values)])),
                ("reporting_interval", interval()),
                ("deny_response_settings", denial(path)),
                ("no_assignment_behavior", Yaml::map([("fallback_rate_limit", fallback())])),
                ("expired_assignment_behavior", expired),
            ],
        );
        Yaml::map([("action", settings)])
    }
}

/// The response to denied requests: that of `on_deny`.
fn denial(path: &DeclaredPath<'_>) -> Yaml {
    let mut pairs = vec![("http_status".to_owned(), Yaml::map([("code", Yaml::text("TooManyRequests"))]))];
    match path.rule.info.on_deny.as_deref() {
        Some(OnDeny::Reply(Reply { body, headers })) => {
            if !body.is_empty() {
                pairs.push(("http_body".to_owned(), Yaml::text(BASE64_STANDARD.encode(body.as_bytes()))));
            }
            let header = |header: &tidegate_core::limit::Header| {
                let value = String::from_utf8_lossy(header.value.as_bytes()).into_owned();
                let pair =
                    Yaml::map([("key", Yaml::text(header.name.as_str())), ("value", Yaml::Text(value))]);
                Yaml::map([("header", pair)])
            };
            if headers.len() > DENIAL_HEADERS_MAX {
                let path = &path.rule.info.path;
                eprintln!(
                    "{path}: Envoy adds {DENIAL_HEADERS_MAX} headers to a denial; the others are left out"
                );
            }
            let headers: Vec<Yaml> = headers.iter().take(DENIAL_HEADERS_MAX).map(header).collect();
            if !headers.is_empty() {
                pairs.push(("response_headers_to_add".to_owned(), Yaml::List(headers)));
            }
        }
        Some(OnDeny::Mark(_)) => {
            eprintln!("{}: `mark` of `on_deny` has no effect: Envoy denies by itself", path.rule.info.path);
        }
        None => {}
    }
    Yaml::Map(pairs)
}
