//! Routes of the reference server's debug port.

use super::{long_text::long_text, operators::starting, state::HttpState};
use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use tidegate_core::rules::{Rule, RuleLimit, RuleSet};
use tidegate_operations::telemetry::MetricsFormat;

/// `/rlconfig`: the limits in force, one a line.
pub(super) async fn rlconfig(State(state): State<HttpState>) -> Response {
    let Some(config) = state.config.get().cloned() else { return starting() };
    long_text(&state, "the rules", move || limits(&config.limiter.rules())).await.into_response()
}

/// `/stats`: the metrics as `name: value`.
pub(super) async fn stats(State(state): State<HttpState>) -> Response {
    let metrics = state.metrics.clone();
    let write = move || stats_of(&metrics.text(MetricsFormat::Prometheus));
    long_text(&state, "the metrics", write).await.into_response()
}

fn limits(rules: &RuleSet) -> String {
    let domains = rules.domains().flat_map(|domain| {
        let rules = domain.rules().into_iter();
        rules.flat_map(|rule| {
            let unlimited = rule.unlimited.then(|| line(domain.name(), rule, None));
            let limits = rule.limits.iter().map(|limit| line(domain.name(), rule, Some(limit)));
            limits.chain(unlimited)
        })
    });
    domains.collect()
}

/// `domain.key_value.key: unit=HOUR requests_per_unit=2, shadow_mode: false, quota_mode: false`. An unlimited rule has no limit and the
/// unit UNKNOWN.
fn line(domain: &str, rule: &Rule, limit: Option<&RuleLimit>) -> String {
    // The path has quotes around some values.
    let path = match &rule.info.metric_labels[..] {
        [] => rule.info.path.replace(" → ", ".").replace('=', "_"),
        labels => labels.iter().map(|label| &*label.text).collect::<Vec<_>>().join("."),
    };
    // A name may contain a line feed; a limit has one line.
    let [domain, path] = [domain, &*path].map(|text| text.replace(char::is_control, "_"));
    let unit = |limit: &RuleLimit| {
        limit.unit.map_or_else(|| limit.window.to_string(), |unit| unit.name().to_uppercase())
    };
    let unit = limit.map_or_else(|| "UNKNOWN".to_owned(), unit);
    let (requests, shadow, quota) = (limit.map_or(0, |limit| limit.requests), rule.shadow, rule.info.quota);
    format!(
        "{domain}.{path}: unit={unit} requests_per_unit={requests}, shadow_mode: {shadow}, quota_mode: {quota}\n"
    )
}

fn stats_of(page: &str) -> String {
    let samples = page.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let lines = samples.filter_map(|sample| sample.rsplit_once(' '));
    lines.map(|(name, value)| format!("{name}: {value}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::rules::{LoadOptions, Semantics, Source};

    #[test]
    fn limits_are_written_as_the_reference_server_does() {
        let text = "domain: d\ndescriptors:\n- key: plan\n  value: gold\n  descriptors:\n  - key: user\n    \
                    shadow_mode: true\n    rate_limit: {unit: hour, requests_per_unit: 2}\n- key: ip\n  \
                    rate_limit: {per: 10s, requests_per_unit: 3}\n";
        let rules =
            RuleSet::parse(&[Source::file("r.yaml", text)], &LoadOptions::default()).expect("good rules");
        assert_eq!(
            limits(&rules),
            "d.plan_gold.user: unit=HOUR requests_per_unit=2, shadow_mode: true, quota_mode: false\n\
             d.ip: unit=10s requests_per_unit=3, shadow_mode: false, quota_mode: false\n"
        );
    }

    #[test]
    fn unlimited_rules_and_quotes_are_written_as_the_reference_server_does() {
        let text = "domain: d\ndescriptors:\n- key: plan\n  value: 'a \"b\" = c'\n  rate_limit: {unlimited: true}\n- key: path\n  \
                    value: '/x*'\n  rate_limit: {unit: day, requests_per_unit: 3}\n";
        let options = LoadOptions { semantics: Semantics::Reference, ..LoadOptions::default() };
        let rules = RuleSet::parse(&[Source::file("r.yaml", text)], &options).expect("good rules");
        assert_eq!(
            limits(&rules),
            "d.plan_a \"b\" = c: unit=UNKNOWN requests_per_unit=0, shadow_mode: false, quota_mode: false\n\
             d.path_/x*: unit=DAY requests_per_unit=3, shadow_mode: false, quota_mode: false\n"
        );
    }

    #[test]
    fn a_name_with_a_line_feed_makes_no_line() {
        let text = "domain: \"d\\ne: x\"\ndescriptors: [{key: \"a\\nb\", rate_limit: {unit: hour, requests_per_unit: 2}}]";
        let rules =
            RuleSet::parse(&[Source::file("r.yaml", text)], &LoadOptions::default()).expect("good rules");
        assert_eq!(limits(&rules).lines().count(), 1, "{}", limits(&rules));
    }

    #[test]
    fn stats_are_names_and_values() {
        let page = "# HELP a A.\n# TYPE a counter\na_total{b=\"c d\"} 5\n\ne 0.5\n";
        assert_eq!(stats_of(page), "a_total{b=\"c d\"}: 5\ne: 0.5\n");
    }
}
