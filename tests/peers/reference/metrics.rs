//! Comparison of the metrics of both servers, under the names that the reference server has in Prometheus.

use std::{collections::BTreeMap, net::Ipv4Addr, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// Metrics that are compared. Metrics of the process and of Redis are not.
const NAMES: [&str; 9] = [
    "ratelimit_service_rate_limit_total_hits",
    "ratelimit_service_rate_limit_over_limit",
    "ratelimit_service_rate_limit_near_limit",
    "ratelimit_service_rate_limit_within_limit",
    "ratelimit_service_rate_limit_shadow_mode",
    "ratelimit_service_should_rate_limit_error",
    "ratelimit_service_total_requests",
    "ratelimit_service_config_load_success",
    "ratelimit_service_config_load_error",
];

/// Samples by name and labels.
pub type Samples = BTreeMap<String, u64>;

/// The samples of a page that are compared, except samples of other methods, and samples of zero, which the reference server omits.
pub async fn samples(port: u16) -> Samples {
    // HTTP 1.0, so that the page is sent in one piece.
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.expect("it listens");
    stream.write_all(b"GET /metrics HTTP/1.0\r\nhost: test\r\n\r\n").await.expect("it reads");
    let mut page = String::new();
    stream.read_to_string(&mut page).await.expect("UTF-8");
    let sample = |line: &str| {
        let (series, value) = line.rsplit_once(' ')?;
        let name = series.split('{').next()?;
        let is_compared = NAMES.contains(&name) && !series.contains("grpc_method=\"Check\"");
        Some((series.to_owned(), value.parse::<f64>().ok()? as u64))
            .filter(|(_, value)| is_compared && *value > 0)
    };
    page.lines().filter(|line| !line.starts_with('#')).filter_map(sample).collect()
}

/// The number of samples of the reference server, and the samples that differ from ours. That server writes counters one after another,
/// from time to time. So this waits for a few seconds, until it has counted all calls and nothing differs.
pub async fn compare_with(port: u16, calls: u64, ours: &Samples) -> (usize, Vec<String>) {
    let mut different = Vec::new();
    for _ in 0..100 {
        let theirs = samples(port).await;
        let counted = theirs.get("ratelimit_service_total_requests{grpc_method=\"ShouldRateLimit\"}");
        different = differences(&theirs, ours);
        if counted.is_some_and(|counted| *counted >= calls) && different.is_empty() {
            return (theirs.len(), different);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(!different.is_empty(), "the reference server has not counted all calls");
    (samples(port).await.len(), different)
}

/// The samples that differ.
fn differences(reference: &Samples, ours: &Samples) -> Vec<String> {
    let series: std::collections::BTreeSet<&String> = reference.keys().chain(ours.keys()).collect();
    let differs = |series: &&String| reference.get(*series) != ours.get(*series);
    let shown =
        |series: &String| format!("{series}: {:?} here, {:?} there", ours.get(series), reference.get(series));
    series.into_iter().filter(differs).map(shown).collect()
}
