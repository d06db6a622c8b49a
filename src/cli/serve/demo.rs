//! `serve --demo`: the demo rules with a console that anybody on this machine can open by a printed link, and traffic to look at.

use super::{control_flags::ControlFlags, http_flags::HttpFlags, rule_flags::RuleFlags};
use crate::{
    api::{
        NewToken,
        pb::{
            common::{RateLimitDescriptor, rate_limit_descriptor::Entry},
            service::{RateLimitRequest, rate_limit_service_client::RateLimitServiceClient},
        },
    },
    cli::Failure,
    server::ListenAddress,
};
use clap::Args;
use std::{fs, time::Duration};
use tempfile::TempDir;
use tidegate_operations::control::{Reach, Role};
use tidegate_threads::{BackgroundThread, Priority};
use tonic::transport::Endpoint;

/// Address of the console, unless `--http-listen` names another.
const HTTP_ADDRESS: &str = "127.0.0.1:8082";

/// Keys of the traffic, each with its requests per second: the demo rules admit half a request a second. `alice` is left out: the README's
/// commands send her requests, and count what is admitted.
const KEYS: [(&str, u32); 5] = [("mallory", 4), ("bob", 2), ("carol", 1), ("dave", 1), ("erin", 1)];

/// What `--demo` adds to a server.
#[derive(Args)]
pub(super) struct DemoFlags {
    /// Serve the demo rules with the console open on loopback, and print a link that carries a token for this run.
    #[arg(long, conflicts_with_all = ["rules", "http_token_file", "control"])]
    demo: bool,
    /// Send requests of five keys to the demo rules, so that the console has something to show.
    #[arg(long, requires = "demo")]
    demo_traffic: bool,
}

/// A run with its token file.
pub(super) struct DemoRun {
    /// Removed when dropped. After a kill it stays, with only the hash of a token of a server that is gone. It has a name of its own, since
    /// in a container every process has the same id.
    _folder: TempDir,
    /// The line with the link, for the time when the console can be opened.
    pub(super) link: String,
}

impl DemoFlags {
    /// Opens the console of a `--demo`, makes its link, and starts its traffic to the first address that is listened on.
    pub(super) fn start(
        &self,
        http: &mut HttpFlags,
        control: &mut ControlFlags,
        rules: &mut RuleFlags,
        listen: &[ListenAddress],
    ) -> Result<Option<DemoRun>, Failure> {
        if !self.demo {
            return Ok(None);
        }
        // Only its owner can open it.
        let folder = tempfile::Builder::new().prefix("tidegate-demo-").tempdir();
        let folder = folder.map_err(Failure::at(&std::env::temp_dir()))?;
        let name = "demo".parse().map_err(Failure)?;
        let token = NewToken::generate(name, Role::Operate)?;
        let file = folder.path().join("tokens");
        fs::write(&file, format!("{}\n", token.line())).map_err(Failure::at(&file))?;
        if http.http_listen.is_empty() {
            let address =
                HTTP_ADDRESS.parse().map_err(|error| Failure(format!("{HTTP_ADDRESS}: {error}")))?;
            http.http_listen.push(address);
        }
        let address = http.http_listen[0].clone();
        http.open_console(file);
        control.control = Some(Reach::Loopback);
        rules.is_demo = true;
        let link = format!("Console: http://{address}/console#token={}", token.text());
        if self.demo_traffic {
            start_traffic(listen)?;
        }
        Ok(Some(DemoRun { _folder: folder, link }))
    }
}

/// Sends requests until the process ends.
fn start_traffic(listen: &[ListenAddress]) -> Result<(), Failure> {
    let Some(ListenAddress::Tcp(address)) = listen.first() else {
        return Err(Failure("--demo-traffic calls the first address of --listen: give a host:port".into()));
    };
    let endpoint = Endpoint::from_shared(format!("http://{address}"))?;
    BackgroundThread::start_async("demo-traffic", Priority::Full, async move || send(&endpoint).await)?;
    Ok(())
}

/// Sends the requests of every key, evenly over each second. Failed calls are ignored: the server starts and stops meanwhile.
async fn send(endpoint: &Endpoint) {
    let mut client = RateLimitServiceClient::new(endpoint.connect_lazy());
    let mut ticks = tokio::time::interval(Duration::from_millis(250));
    for quarter in 0.. {
        ticks.tick().await;
        for (at, (key, a_second)) in (0..).zip(KEYS) {
            // Keys with one request a second use different quarters of it.
            if (quarter + at) % (4 / a_second) != 0 {
                continue;
            }
            let entries = vec![Entry { key: "api_key".into(), value: key.into() }];
            let descriptors = vec![RateLimitDescriptor { entries, ..Default::default() }];
            let request = RateLimitRequest { domain: "demo".into(), descriptors, hits_addend: 0 };
            let _ = client.should_rate_limit(request).await;
        }
    }
}
