//! A further path of the metrics page.

use super::paths;
use std::{str::FromStr, sync::Arc};

/// A path of the metrics besides `/metrics`, which no other route has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MetricsPath(Arc<str>);

impl MetricsPath {
    /// The path.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for MetricsPath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte);
        if !text.starts_with('/') || !text.bytes().all(is_allowed) {
            return Err("write a path of letters, digits and /-_.~, for example /stats/prometheus".to_owned());
        }
        // The folders of the control API and of the console.
        let is_below = |path: &str| {
            let folder = path.split('/').nth(1).unwrap_or_default();
            text.split('/').nth(1) == Some(folder)
        };
        let is_folder = is_below(paths::CONTROL) || is_below(paths::CONSOLE[0]);
        if is_folder || paths::ALL.contains(&text) {
            return Err("another page has this path; write a path of its own".to_owned());
        }
        Ok(Self(text.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_plain_and_those_of_no_other_route() {
        for path in ["/prometheus", "/stats/prometheus", "/metrics/", "//m"] {
            assert!(path.parse::<MetricsPath>().is_ok(), "{path}");
        }
        let taken = ["/", "/json", "/rlconfig", "/metrics", "/control/v1/x", "/console", "/console/a.js"];
        for path in taken {
            assert!(path.parse::<MetricsPath>().unwrap_err().contains("another page"), "{path}");
        }
        for path in ["", "metrics", "/{a}", "/a b", "/a?b", "/:a", "/*a"] {
            assert!(path.parse::<MetricsPath>().unwrap_err().starts_with("write a path"), "{path}");
        }
    }
}
