//! The headers of Limitador's DRAFT_VERSION_03: the tightest limit, and after its number all limits that apply.

use smol_str::SmolStr;
use std::fmt::Write as _;
use tidegate_core::limit::ServiceLimit;

const NAMES: [SmolStr; 3] = [
    SmolStr::new_static("X-RateLimit-Limit"),
    SmolStr::new_static("X-RateLimit-Remaining"),
    SmolStr::new_static("X-RateLimit-Reset"),
];

/// The headers for a request with these limits; none if there are none.
pub(super) fn headers(limits: &[ServiceLimit<'_>]) -> Vec<(SmolStr, String)> {
    let mut sorted: Vec<&ServiceLimit<'_>> = limits.iter().collect();
    sorted.sort_by_key(|limit| limit.available);
    let Some(tightest) = sorted.first() else { return Vec::new() };
    let mut all = tightest.limit.requests.to_string();
    for ServiceLimit { limit, in_flight, .. } in &sorted {
        let _ = write!(all, ", {}", limit.requests);
        if !in_flight {
            let _ = write!(all, ";w={}", limit.window.duration().as_secs());
        }
        if !limit.name.is_empty() {
            let _ = write!(all, ";name=\"{}\"", limit.name.replace('"', "'"));
        }
    }
    let reset = tightest.effective_window.seconds_rounded_up();
    let reset = reset.unwrap_or(tightest.window.as_secs());
    NAMES.into_iter().zip([all, tightest.available.to_string(), reset.to_string()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tidegate_core::limit::{CurrentLimit, Reset, Window};

    #[test]
    fn the_tightest_limit_is_first_and_all_limits_follow() {
        let limit = |name, requests, available, seconds| ServiceLimit {
            descriptor: 0,
            limit: CurrentLimit {
                name,
                requests,
                capacity: requests,
                window: Window::from_secs(seconds).unwrap(),
                unit: None,
            },
            quota: requests,
            window: Duration::from_secs(seconds),
            in_flight: false,
            available,
            effective_window: Reset::After(Duration::from_millis(1_500)),
            denied_for: None,
            banned_for: None,
            slots: None,
            reserved: None,
        };
        let in_flight = ServiceLimit { in_flight: true, ..limit("", 50, 20, 60) };
        let limits = [limit("", 1_000, 999, 60), in_flight, limit("per \"user\"", 5, 2, 10)];
        let headers = headers(&limits);
        let text = |index: usize| (headers[index].0.as_str(), headers[index].1.as_str());
        assert_eq!(text(0), ("X-RateLimit-Limit", "5, 5;w=10;name=\"per 'user'\", 50, 1000;w=60"));
        assert_eq!(text(1), ("X-RateLimit-Remaining", "2"));
        assert_eq!(text(2), ("X-RateLimit-Reset", "2"));
        assert!(super::headers(&[]).is_empty());
    }
}
