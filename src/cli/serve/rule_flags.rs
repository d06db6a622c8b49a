//! Flags of `serve` for the sources of rules: files, and a control plane.

use super::first_rules::{FirstSources, Started};
use crate::{
    api::XdsSettings,
    cli::{Failure, arguments::rule_files::control_plane_begin},
    server::{FirstRules, RuleSettings},
};
use clap::Args;
use http::{HeaderName, HeaderValue};
use std::{
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};
use tidegate_core::rules::{LoadOptions, RuleFilePaths, RuleSet};
use tidegate_operations::config::{
    KeptRules, ReloadRequests, log_warnings,
    watch::{WatchMode, WatchSettings},
};
use tidegate_transport::TlsClient;

/// Where rules come from.
#[derive(Args)]
pub(super) struct RuleFlags {
    /// Rule file, directory of rule files, - for standard input, or control plane as xds://host:port?node=ID; repeatable. Files
    /// may extend the rules of a control plane by keys that its messages lack (docs/xds.md).
    #[arg(long, value_name = "PATH")]
    rules: Vec<RuleSources>,
    /// File of blocked entries, as KEY=VALUE or KEY=CIDR, one per line, or a directory of such files; repeatable (docs/control.md).
    #[arg(long, value_name = "PATH", value_delimiter = ':')]
    blocks: Vec<PathBuf>,
    /// Detection of changed rule files, and files of blocks: by file events (and a check every 10 s), by a check every 2 s, or off. SIGHUP
    /// reloads them in any case.
    #[arg(long, default_value = "auto", value_name = "HOW")]
    rules_watch: WatchMode,
    /// Read every file of a directory, whatever its extension; by default .yaml and .yml files.
    #[arg(long)]
    rules_every_file: bool,
    /// Read files whose names begin with a dot too, but not those that begin with two.
    #[arg(long)]
    rules_dot_files: bool,
    /// Start although the rule files have errors: requests are refused with UNAVAILABLE until they have none.
    #[arg(long)]
    wait_for_rules: bool,
    /// Never serve the rules that the data directory has kept from a former process. By default they are served while the rule
    /// files have errors, or the control plane has not responded yet.
    #[arg(long)]
    strict_rules: bool,
    /// Report health SERVING while the server waits for its first rules, from a control plane or from valid files.
    #[arg(long)]
    healthy_without_rules: bool,
    /// Report health NOT_SERVING while no domain has rules, also when the last rule file is removed.
    #[arg(long, conflicts_with = "healthy_without_rules")]
    health_needs_rules: bool,
    /// Whether the demo rules are wanted, which are served without a warning then.
    #[arg(skip)]
    pub(super) is_demo: bool,
    #[command(flatten, next_help_heading = "Control plane of rules")]
    xds: XdsFlags,
}

/// The connection to a control plane.
#[derive(Args)]
struct XdsFlags {
    /// Metadata of this server's node, as KEY=VALUE; repeatable.
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',', value_parser = pair)]
    xds_node_metadata: Vec<(String, String)>,
    /// Request header for the control plane, as NAME=VALUE; repeatable.
    #[arg(long, hide_env_values = true, value_name = "NAME=VALUE", value_delimiter = ',', value_parser = header)]
    xds_header: Vec<(String, String)>,
    /// Time before connecting to the control plane again; doubles with each failure, with jitter.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = crate::cli::arguments::interval)]
    xds_backoff: Duration,
    /// Maximum of that time.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = crate::cli::arguments::interval)]
    xds_backoff_max: Duration,
    /// Maximum bytes of one response of the control plane.
    #[arg(long, value_name = "BYTES", default_value_t = 4 * 1024 * 1024)]
    xds_max_message_bytes: usize,
    /// Connect to the control plane with TLS, and verify it by these authorities, as PEM.
    #[arg(long, value_name = "FILE")]
    xds_tls_ca: Option<PathBuf>,
    /// Certificate chain for a control plane that requires a client certificate, as PEM. Read again for each connection.
    #[arg(long, value_name = "FILE", requires_all = ["xds_tls_key", "xds_tls_ca"])]
    xds_tls_cert: Option<PathBuf>,
    /// Private key of --xds-tls-cert, as PEM.
    #[arg(long, value_name = "FILE", requires = "xds_tls_cert")]
    xds_tls_key: Option<PathBuf>,
    /// Name that the control plane's certificate must have; by default the host of the address.
    #[arg(long, value_name = "NAME", requires = "xds_tls_ca")]
    xds_tls_server_name: Option<String>,
}

/// The sources of one value of --rules: paths separated by colons, and a control plane at its end.
#[derive(Clone, Default)]
struct RuleSources {
    paths: Vec<PathBuf>,
    xds: Option<ControlPlane>,
}

/// `xds://host:port?node=ID`.
#[derive(Clone, PartialEq, Eq, Debug)]
struct ControlPlane {
    server: String,
    node: String,
}

impl FromStr for RuleSources {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (paths, xds) = text.split_at(control_plane_begin(text).unwrap_or(text.len()));
        let paths = paths.split(':').filter(|path| !path.is_empty()).map(PathBuf::from).collect();
        let xds = xds.strip_prefix("xds://").map(control_plane).transpose()?;
        Ok(Self { paths, xds })
    }
}

fn control_plane(text: &str) -> Result<ControlPlane, String> {
    let (server, query) = text.split_once('?').unwrap_or((text, ""));
    let is_address =
        server.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    if server.contains('@') {
        return Err("the address of a control plane has no user; send credentials with --xds-header".into());
    }
    match query.strip_prefix("node=") {
        Some(node) if is_address && !node.is_empty() && !node.contains('&') => {
            Ok(ControlPlane { server: server.into(), node: node.into() })
        }
        _ => Err("write a control plane as xds://host:port?node=ID".into()),
    }
}

/// `NAME=VALUE` of a request header. No error shows the text: it may have a password.
fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = pair(text).map_err(|_| "write NAME=VALUE")?;
    match (HeaderName::try_from(&name), HeaderValue::try_from(&value)) {
        (Ok(_), Ok(_)) => Ok((name, value)),
        (Err(_), _) => Err("the text before the `=` is no name of a header; write NAME=VALUE".into()),
        (_, Err(_)) => Err("the value has bytes that a header cannot have".into()),
    }
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write KEY=VALUE")?;
    Ok((key.trim().into(), value.trim().into()))
}

impl RuleFlags {
    /// Makes [`Self::load`] fail if rule files have errors, even where the server would wait for better files.
    pub(super) fn require_rules(&mut self) {
        (self.wait_for_rules, self.strict_rules) = (false, true);
    }

    /// The settings, and the rules to start with. `data` is the data directory.
    pub(super) fn load(
        &self,
        options: LoadOptions,
        data: Option<&Path>,
    ) -> Result<(RuleSettings, RuleSet), Failure> {
        let paths = self.rules.iter().flat_map(|sources| &sources.paths).cloned().collect::<Vec<_>>();
        let mut xds = self.rules.iter().filter_map(|sources| sources.xds.as_ref());
        let control_plane = xds.next();
        if xds.next().is_some() {
            return Err(Failure("--rules has two control planes; name one".into()));
        }
        let xds = control_plane.map(|control_plane| self.xds.settings(control_plane)).transpose()?;
        if self.blocks.iter().any(|path| path.as_os_str() == "-") {
            return Err(Failure("--blocks reads files, not standard input".into()));
        }
        let is_standard_input = paths.iter().any(|path| path.as_os_str() == "-");
        let files =
            RuleFilePaths { paths, every_file: self.rules_every_file, dot_files: self.rules_dot_files };
        let block_files =
            RuleFilePaths { paths: self.blocks.clone(), every_file: true, dot_files: self.rules_dot_files };
        let kept = data.filter(|_| !is_standard_input && !self.rules.is_empty());
        let kept = kept.map(|data| KeptRules::new(data, self.given()));
        let at_start = FirstSources {
            options: &options,
            files: &files,
            block_files: &block_files,
            has_control_plane: xds.is_some(),
            awaits_files: self.wait_for_rules,
            kept: kept.as_ref().filter(|_| !self.strict_rules),
        };
        let Started { sources, rules, is_awaited, began_with_kept } = at_start.load()?;
        if self.rules.is_empty() && !self.is_demo {
            tracing::warn!(
                "no --rules: serving the demo rules only (domain `demo`, 5 per 10s for each `api_key`); every other request \
                 is admitted. Set --rules or TIDEGATE_RULES to limit your own traffic"
            );
        }
        if xds.is_none() {
            // With a control plane this is reported with its first resources.
            log_warnings(&rules);
        }
        // Standard input can be read once.
        let files = if is_standard_input { RuleFilePaths { paths: Vec::new(), ..files } } else { files };
        let rule_settings = RuleSettings {
            options,
            sources,
            files,
            block_files,
            watch: WatchSettings { mode: self.rules_watch, ..WatchSettings::default() },
            reload: ReloadRequests::default(),
            xds,
            kept,
            began_with_kept,
            first: match is_awaited {
                false => FirstRules::Loaded,
                true => FirstRules::Awaited { is_healthy: self.healthy_without_rules },
            },
            health_needs_rules: self.health_needs_rules,
        };
        Ok((rule_settings, rules))
    }

    /// The values of `--rules` and `--blocks` whose rules are kept.
    fn given(&self) -> Vec<String> {
        let path = |path: &PathBuf| path.display().to_string();
        let rules = self.rules.iter().flat_map(|sources| {
            let plane = |of: &ControlPlane| format!("xds://{}?node={}", of.server, of.node);
            sources.paths.iter().map(path).chain(sources.xds.as_ref().map(plane))
        });
        rules.chain(self.blocks.iter().map(|blocks| format!("--blocks {}", path(blocks)))).collect()
    }
}

impl XdsFlags {
    fn settings(&self, control_plane: &ControlPlane) -> Result<XdsSettings, Failure> {
        let tls = self.xds_tls_ca.as_ref().map(|ca| TlsClient {
            ca: Some(ca.clone()),
            cert_and_key: self.xds_tls_cert.clone().zip(self.xds_tls_key.clone()),
            server_name: self.xds_tls_server_name.clone(),
            insecure: false,
        });
        let settings = XdsSettings {
            server: control_plane.server.clone(),
            node: control_plane.node.clone(),
            node_metadata: self.xds_node_metadata.clone(),
            headers: self.xds_header.clone(),
            backoff: (self.xds_backoff, self.xds_backoff_max),
            message_bytes_max: self.xds_max_message_bytes,
            tls,
        };
        settings.check()?;
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_separated_by_colons_and_a_control_plane_is_last() {
        let parse = |text: &str| {
            let RuleSources { paths, xds } = text.parse()?;
            let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
            Ok::<_, String>((paths.join(" "), xds.map(|xds| format!("{} {}", xds.node, xds.server))))
        };
        assert_eq!(parse("/a:b.yaml"), Ok(("/a b.yaml".into(), None)));
        assert_eq!(parse("-"), Ok(("-".into(), None)));
        let plane = Some("rls~1 [::1]:18000".to_owned());
        assert_eq!(parse("xds://[::1]:18000?node=rls~1"), Ok((String::new(), plane.clone())));
        assert_eq!(parse("/a:/b:xds://[::1]:18000?node=rls~1"), Ok(("/a /b".into(), plane)));
        for wrong in
            ["xds://", "xds://host?node=a", "xds://host:1", "xds://host:1?node=", "xds://host:1?id=a"]
        {
            assert!(parse(wrong).is_err_and(|error| error.contains("xds://host:port?node=ID")), "{wrong}");
        }
    }
}
