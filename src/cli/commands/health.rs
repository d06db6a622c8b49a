//! `tidegate health`: the probe of images that have no shell.

use crate::{
    api::pb::health::{
        HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
    },
    cli::{Failure, arguments::client_tls::ClientTlsFlags, commands::target},
    server::ListenAddress,
};
use clap::Args;
use std::{net::IpAddr, process::ExitCode, time::Duration};
use tonic::Request;

/// The server's address where nothing names another.
const DEFAULT: &str = "127.0.0.1:8081";

/// Checks whether a server is serving, by its gRPC health service.
///
/// Exits with 0 if it is, and with 1 and the reason if not: a probe for images without a shell.
#[derive(Args)]
pub(in crate::cli) struct Health {
    /// Address of the gRPC port: host:port or unix:/path/of/socket. By default the first address of TIDEGATE_LISTEN, or
    /// 127.0.0.1:8081.
    #[arg(long, env = "TIDEGATE_ADDR")]
    addr: Option<ListenAddress>,
    /// Addresses that the server listens on.
    #[arg(long, env = "TIDEGATE_LISTEN", value_delimiter = ',', hide = true)]
    listen: Vec<ListenAddress>,
    /// Name of the service to check; by default the server as a whole.
    #[arg(long, default_value = "", hide_default_value = true)]
    service: String,
    /// Timeout for connecting and for the response.
    #[arg(long, default_value = "1s", value_parser = humantime::parse_duration)]
    timeout: Duration,
    #[command(flatten, next_help_heading = "TLS")]
    tls: ClientTlsFlags,
}

impl Health {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let runtime = tidegate_threads::runtime()?;
        let status = runtime.block_on(self.status())?;
        println!("{}", status.as_str_name());
        Ok(if status == ServingStatus::Serving { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    async fn status(&self) -> Result<ServingStatus, Failure> {
        let address = self.address()?;
        let late = |_| Failure(format!("{address} does not answer within {:?}", self.timeout));
        let connected = target::connect(&address, &self.tls, self.timeout);
        let channel = tokio::time::timeout(self.timeout, connected).await.map_err(late)??;
        let mut client = HealthClient::new(channel);
        let request = Request::new(HealthCheckRequest { service: self.service.clone() });
        let called = tokio::time::timeout(self.timeout, client.check(request)).await.map_err(late)?;
        let response = called.map_err(|status| target::call_failure(&address, &self.tls, &status))?;
        Ok(response.into_inner().status())
    }

    fn address(&self) -> Result<ListenAddress, Failure> {
        match (&self.addr, self.listen.first()) {
            (Some(address), _) => Ok(address.clone()),
            (None, Some(listen)) => local(listen),
            (None, None) => DEFAULT.parse().map_err(|error| Failure(format!("{DEFAULT}: {error}"))),
        }
    }
}

/// The address at which this machine reaches a listener.
fn local(listen: &ListenAddress) -> Result<ListenAddress, Failure> {
    let ListenAddress::Tcp(text) = listen else { return Ok(listen.clone()) };
    let (host, port) = text.rsplit_once(':').unwrap_or((text, ""));
    let host = match host.trim_matches(['[', ']']).parse() {
        Ok(IpAddr::V4(ip)) if ip.is_unspecified() => "127.0.0.1",
        Ok(IpAddr::V6(ip)) if ip.is_unspecified() => "[::1]",
        _ => host,
    };
    format!("{host}:{port}").parse().map_err(|error| Failure(format!("TIDEGATE_LISTEN: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_to_check_is_that_of_a_listener_at_this_machine() {
        let checked = |listen: &str| local(&listen.parse().expect("an address")).unwrap().to_string();
        assert_eq!(checked("0.0.0.0:8081"), "127.0.0.1:8081");
        assert_eq!(checked("[::]:9000"), "[::1]:9000");
        assert_eq!(checked("10.0.0.3:1"), "10.0.0.3:1");
        assert_eq!(checked("unix:/run/t.sock"), "unix:/run/t.sock");
    }
}
