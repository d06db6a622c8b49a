//! Exposition formats of the metrics: the text format of Prometheus, and OpenMetrics for clients that prefer it.

/// A format of the metrics page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MetricsFormat {
    /// Prometheus text format, version 0.0.4.
    Prometheus,
    /// OpenMetrics text, version 1.0.0.
    OpenMetrics,
}

impl MetricsFormat {
    /// The format for an `Accept` header. OpenMetrics only if the header names it and does not prefer text.
    pub fn negotiate(accept: Option<&str>) -> Self {
        let (mut openmetrics, mut text) = (0.0, 0.0);
        for range in accept.unwrap_or_default().split(',') {
            let mut parts = range.split(';').map(str::trim);
            let media_type = parts.next().unwrap_or_default().to_ascii_lowercase();
            let weight = parts.find_map(|part| part.strip_prefix("q=").or(part.strip_prefix("Q=")));
            let weight = weight.map_or(1.0, |weight| weight.parse().unwrap_or(0.0));
            let best: &mut f32 = match &*media_type {
                "application/openmetrics-text" => &mut openmetrics,
                "text/plain" | "text/*" => &mut text,
                _ => continue,
            };
            *best = best.max(weight);
        }
        if openmetrics > 0.0 && openmetrics >= text { Self::OpenMetrics } else { Self::Prometheus }
    }

    /// The content type of the page.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openmetrics_is_sent_only_to_clients_that_prefer_it() {
        let prometheus = [
            None,
            Some(""),
            Some("*/*"),
            Some("text/plain"),
            Some("text/html,application/xhtml+xml,*/*;q=0.8"),
            Some("application/openmetrics-text;version=1.0.0;q=0.2,text/plain;q=0.5"),
            Some("application/openmetrics-text;q=0"),
        ];
        for accept in prometheus {
            assert_eq!(MetricsFormat::negotiate(accept), MetricsFormat::Prometheus, "{accept:?}");
        }
        let of_prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;\
                             version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        for accept in
            ["application/openmetrics-text", "Application/OpenMetrics-Text; q=0.9, */*", of_prometheus]
        {
            assert_eq!(MetricsFormat::negotiate(Some(accept)), MetricsFormat::OpenMetrics, "{accept}");
        }
    }
}
