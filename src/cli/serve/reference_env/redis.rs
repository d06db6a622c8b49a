//! The variables of Redis, as flags of shared counters.

use crate::cli::{
    Failure,
    serve::settings::{Environment, Flags},
};

/// A store of the reference server that keeps nothing: counters are in memory.
pub(super) const UNUSED: &str = "unused:";

impl Environment<'_> {
    /// Whether counters are in the store that `REDIS_URL` names.
    pub(super) fn is_shared(&self) -> bool {
        let is_redis = self.text("BACKEND_TYPE").is_none_or(|backend| backend == "redis");
        is_redis && self.text("REDIS_URL").is_some_and(|url| !url.starts_with(UNUSED))
    }

    pub(super) fn store(&self, flags: &mut Flags) -> Result<(), Failure> {
        // Settings of a store that flags name are flags too.
        if !self.is_shared() || self.text("TIDEGATE_COUNTERS").is_some() {
            return Ok(());
        }
        flags.push(("--counters", Some(self.store_url()?)));
        // The reference server uses such stores as well.
        flags.push(("--counters-allow-eviction", None));
        // The reference server, too, waits longer than a reply takes on a local network.
        let timeout = self.duration("REDIS_TIMEOUT")?.unwrap_or_else(|| "10s".to_owned());
        flags.push(("--counters-timeout", Some(timeout)));
        // As with the reference server, Envoy's failure mode decides.
        flags.push(("--on-store-failure", Some("error".to_owned())));
        for (variable, flag) in [
            ("CACHE_KEY_PREFIX", "--counters-prefix"),
            ("REDIS_TLS_CACERT", "--counters-ca"),
            ("REDIS_TLS_CLIENT_CERT", "--counters-cert"),
            ("REDIS_TLS_CLIENT_KEY", "--counters-key"),
        ] {
            flags.extend(self.text(variable).map(|value| (flag, Some(value.to_owned()))));
        }
        if self.is_on("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION")? {
            flags.push(("--counters-any-name", None));
        }
        Ok(())
    }

    /// The address as `--counters` has it. `REDIS_URL` is `host:port`, a URL, a path, `group,host:port,…` of sentinels, or
    /// `host:port,…` of a cluster.
    fn store_url(&self) -> Result<String, Failure> {
        let url = self.text("REDIS_URL").unwrap_or_default();
        let (scheme, address) = match url.split_once("://") {
            Some((scheme @ ("redis" | "rediss"), address)) => (scheme, address),
            Some(_) => return Err(self.wrong("REDIS_URL", "host:port, redis://host:port or a path")),
            None => ("redis", url),
        };
        let scheme = if self.is_on("REDIS_TLS")? { "rediss" } else { scheme };
        let user = self.text("REDIS_AUTH").map(|auth| match auth.split_once(':') {
            Some((user, password)) => format!("{}:{}@", encoded(user), encoded(password)),
            None => format!(":{}@", encoded(auth)),
        });
        let user = user.unwrap_or_default();
        match self.text("REDIS_TYPE").unwrap_or("single").to_ascii_lowercase().as_str() {
            "single" if address.starts_with('/') => match self.text("REDIS_AUTH") {
                None => Ok(format!("unix:{address}")),
                Some(password) => Ok(format!("unix:{address}?pass={}", encoded(password))),
            },
            "single" if address.contains(',') => Err(self.wrong(
                "REDIS_URL",
                "one host:port, or set REDIS_TYPE: cluster for host:port,host:port, sentinel for group,host:port,host:port",
            )),
            "single" => Ok(format!("{scheme}://{user}{address}")),
            "sentinel" => match address.split_once(',') {
                Some((group, sentinels)) => {
                    let auth = self.text("REDIS_SENTINEL_AUTH").map(|auth| match auth.split_once(':') {
                        Some((user, password)) => {
                            format!("?sentinel_auth={}:{}", encoded(user), encoded(password))
                        }
                        None => format!("?sentinel_auth={}", encoded(auth)),
                    });
                    Ok(format!("{scheme}+sentinel://{user}{sentinels}/{group}{}", auth.unwrap_or_default()))
                }
                None => Err(self.wrong("REDIS_URL", "group,host:port,host:port for REDIS_TYPE=sentinel")),
            },
            "cluster" => Ok(format!("{scheme}+cluster://{user}{address}")),
            _ => Err(self.wrong("REDIS_TYPE", "single, sentinel or cluster")),
        }
    }
}

/// A user or a password in a URL.
fn encoded(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let bytes = text.bytes();
    bytes
        .map(|byte| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}
