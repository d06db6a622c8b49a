//! Figures under the names that the reference server sends to statsd: `ratelimit.service.rate_limit.DOMAIN.KEY.KEY….total_hits`.

use super::reference::{OUTCOMES, ReferenceFigures, sanitized};
use std::collections::BTreeMap;

/// Name of the durations of calls.
pub(super) const RESPONSE_TIME: &str = "ratelimit_server.ShouldRateLimit.response_time";

/// Maximum bytes of the domain and the keys in a name, so that a line fits a packet.
const KEY_BYTES_MAX: usize = 1000;

/// The counters by name. Keys share a counter if they differ only in characters that a name cannot have.
pub(super) fn counters(figures: &ReferenceFigures) -> BTreeMap<String, u64> {
    let mut counters = BTreeMap::from([
        ("ratelimit.service.call.should_rate_limit.service_error".to_owned(), figures.errors),
        ("ratelimit.service.config_load_success".to_owned(), figures.loads),
        ("ratelimit.service.config_load_error".to_owned(), figures.failed_loads),
        ("ratelimit_server.ShouldRateLimit.total_requests".to_owned(), figures.requests),
    ]);
    for (key, hits) in &figures.hits {
        let key = key_of_name(key);
        for (outcome, read) in OUTCOMES {
            let sum = counters.entry(format!("ratelimit.service.rate_limit.{key}.{outcome}")).or_default();
            *sum = sum.wrapping_add(read(hits));
        }
    }
    counters
}

/// The domain and the keys as the reference server writes them, without line ends and cut to the bound.
fn key_of_name(key: &str) -> String {
    let mut key = sanitized(key).replace(char::is_control, "_");
    key.truncate(key.floor_char_boundary(KEY_BYTES_MAX));
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_end_no_line_and_fit_a_packet() {
        assert_eq!(key_of_name("d.a_x.b.c_10.0.0.1.e_f:g|c"), "d.a_x.b.c_10_0_0_1.e_f_g_c");
        assert_eq!(key_of_name("d.a_1\nforged:1|c"), "d.a_1_forged_1_c");
        assert_eq!(key_of_name(&format!("d.{}", "é".repeat(1000))).len(), KEY_BYTES_MAX);
    }
}
