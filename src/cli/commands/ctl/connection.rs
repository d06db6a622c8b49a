//! The connection of `tidegate ctl` to a server, and the calls' credentials.

use crate::{
    api::{control::Method, pb::control::control_client::ControlClient},
    cli::{Failure, arguments::client_tls::ClientTlsFlags, commands::target},
    server::ListenAddress,
};
use clap::Args;
use std::{path::PathBuf, time::Duration};
use tonic::{Request, Response, Status, metadata::MetadataValue, transport::Channel};

/// Maximum length of a response, which is that of a server's file of overrides: a list of thousands exceeds tonic's default of 4 MiB.
const RESPONSE_BYTES_MAX: usize = 256 << 20;

/// The server, the caller, and the form of the output.
#[derive(Args)]
pub(super) struct Connection {
    /// Address of the gRPC port: host:port or unix:/path/of/socket.
    #[arg(long, env = "TIDEGATE_ADDR", default_value = "127.0.0.1:8081", global = true)]
    pub(super) addr: ListenAddress,
    /// Bearer token of the caller; better in the variable or in a file than on the command line. A Unix socket of a server of the
    /// same user needs no token.
    #[arg(long, env = "TIDEGATE_TOKEN", hide_env_values = true, global = true)]
    token: Option<String>,
    /// File that contains the token.
    #[arg(long, env = "TIDEGATE_TOKEN_FILE", value_name = "FILE", conflicts_with = "token", global = true)]
    token_file: Option<PathBuf>,
    /// Timeout for connecting and for each response.
    #[arg(long, default_value = "10s", value_parser = humantime::parse_duration, global = true)]
    pub(super) timeout: Duration,
    /// Print JSON: the response in the JSON mapping of protobuf.
    #[arg(long, global = true)]
    pub(super) json: bool,
    /// Repeat a command that only reads at this interval until interrupted; without a value every 2 s.
    #[arg(
        long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "2s",
        value_parser = crate::cli::arguments::interval, global = true
    )]
    pub(super) watch: Option<Duration>,
    #[command(flatten, next_help_heading = "TLS")]
    pub(super) tls: ClientTlsFlags,
}

impl Connection {
    /// Connects.
    pub(super) async fn caller(&self) -> Result<Caller<'_>, Failure> {
        let channel = target::connect(&self.addr, &self.tls, self.timeout).await?;
        let client = ControlClient::new(channel).max_decoding_message_size(RESPONSE_BYTES_MAX);
        Ok(Caller { client, token: self.token()?, connection: self, has_answered: false })
    }

    fn token(&self) -> Result<Option<MetadataValue<tonic::metadata::Ascii>>, Failure> {
        let (token, source) = match (&self.token, &self.token_file) {
            (Some(token), _) => (token.clone(), "--token or TIDEGATE_TOKEN".to_owned()),
            (None, Some(path)) => {
                (std::fs::read_to_string(path).map_err(Failure::at(path))?, path.display().to_string())
            }
            (None, None) => return Ok(None),
        };
        let token = token.trim();
        if token.is_empty() {
            return Err(Failure(format!("{source}: the token is empty")));
        }
        let value = format!("Bearer {token}").parse();
        value
            .map(Some)
            .map_err(|_| Failure(format!("{source}: the token has characters that no header may have")))
    }
}

/// A connected caller.
pub(super) struct Caller<'c> {
    pub(super) client: ControlClient<Channel>,
    token: Option<MetadataValue<tonic::metadata::Ascii>>,
    pub(super) connection: &'c Connection,
    /// Whether a call has succeeded: the address and the settings of TLS are right.
    pub(super) has_answered: bool,
}

impl Caller<'_> {
    pub(super) fn request<M>(&self, message: M) -> Request<M> {
        let mut request = Request::new(message);
        if let Some(token) = &self.token {
            request.metadata_mut().insert("authorization", token.clone());
        }
        request
    }

    /// Calls the method of a request.
    pub(super) async fn call<M: Method>(&mut self, message: M) -> Result<M::Response, Failure> {
        let mut request = self.request(message);
        request.set_timeout(self.connection.timeout);
        let called = M::call(&mut self.client, request).await;
        self.has_answered |= called.is_ok();
        called.map(Response::into_inner).map_err(|status| self.failure(&status))
    }

    pub(super) fn failure(&self, status: &Status) -> Failure {
        if let Some(failure) = target::connection_failure(&self.connection.addr, status)
            && self.has_answered
        {
            return failure;
        }
        let remedy = match status.code() {
            tonic::Code::Unimplemented => "; start the server with `serve --control loopback`",
            tonic::Code::Unauthenticated => {
                "; set TIDEGATE_TOKEN, made by `tidegate token NAME --role operate`"
            }
            _ => return target::call_failure(&self.connection.addr, &self.connection.tls, status),
        };
        Failure(format!("{}: {:?}: {}{remedy}", self.connection.addr, status.code(), status.message()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use std::fs;

    #[derive(Parser)]
    struct Ctl {
        #[command(flatten)]
        connection: Connection,
    }

    #[test]
    fn a_wrong_token_is_refused_with_its_source() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let path = file.path().to_str().expect("UTF-8");
        let refusal = |args: [&str; 2]| {
            let ctl = Ctl::try_parse_from([&["ctl"], &args[..]].concat()).expect("arguments");
            ctl.connection.token().expect_err("a refusal").to_string()
        };
        assert_eq!(refusal(["--token", " "]), "--token or TIDEGATE_TOKEN: the token is empty");
        assert_eq!(refusal(["--token-file", path]), format!("{path}: the token is empty"));
        fs::write(path, "one\ntwo").expect("written");
        assert!(refusal(["--token-file", path]).starts_with(&format!("{path}: the token has characters")));
    }
}
