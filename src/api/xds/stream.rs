//! The stream: connect, subscribe, accept or refuse each response, and connect again when it ends.

use super::{
    backoff::{Backoff, random},
    connect::connect,
    resource::{TYPE_URL, source},
    settings::XdsSettings,
};
use crate::api::{
    channel::root_cause,
    pb::{
        core::{Node, node::UserAgentVersionType},
        discovery::{
            DiscoveryRequest, DiscoveryResponse,
            aggregated_discovery_service_client::AggregatedDiscoveryServiceClient,
        },
        rpc,
    },
    protobuf_struct::to_struct,
};
use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use tidegate_core::{
    clock::Clock,
    rules::{RuleErrors, SourceId},
};
use tidegate_operations::config::{self, Config, ControlPlaneCounts, Update};
use tokio::sync::{mpsc, watch};
use tonic::{
    Code, Request, Status,
    codegen::tokio_stream::wrappers::ReceiverStream,
    metadata::{AsciiMetadataKey, AsciiMetadataValue},
    transport::Channel,
};

/// Time between two attempts to free rules that are not used any more.
const FREE_INTERVAL: Duration = Duration::from_secs(1);

/// Bounds of the wait between two refusals of one version: a control plane may send it again at once.
const REFUSAL_BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

/// Errors in one refusal; further ones are counted.
const ERRORS_SENT_MAX: usize = 20;

/// The feed, across connections.
pub(super) struct Feed {
    pub(super) config: Arc<Config>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) settings: XdsSettings,
    pub(super) state: State,
    pub(super) counts: Arc<ControlPlaneCounts>,
}

/// The protocol's state. That of refusals outlives a connection.
#[derive(Debug)]
pub(super) struct State {
    /// The version accepted last on this stream; empty before the first.
    accepted: String,
    /// The version refused last, until another is accepted.
    refused: Option<String>,
    refusals: Backoff,
}

impl Default for State {
    fn default() -> Self {
        Self { accepted: String::new(), refused: None, refusals: Backoff::new(REFUSAL_BACKOFF) }
    }
}

impl State {
    /// Returns the first request of a stream. It names no version: a restarted control plane may count versions from the beginning, and
    /// would then send no resources to a client that claims its version.
    pub(super) fn subscribe(&mut self) -> DiscoveryRequest {
        self.accepted.clear();
        self.request("")
    }

    /// The request that accepts a response.
    pub(super) fn accept(&mut self, response: &DiscoveryResponse) -> DiscoveryRequest {
        self.accepted.clone_from(&response.version_info);
        self.refused = None;
        self.refusals.reset();
        self.request(&response.nonce)
    }

    /// The request that refuses a response, and the wait before it is sent. The first refusal of a version is sent at once.
    pub(super) fn refuse(
        &mut self,
        response: &DiscoveryResponse,
        message: String,
        random: u32,
    ) -> (DiscoveryRequest, Duration) {
        let is_repeated = self.refused.as_ref() == Some(&response.version_info);
        self.refused = Some(response.version_info.clone());
        let wait = if is_repeated { self.refusals.next(random) } else { Duration::ZERO };
        let error_detail = Some(rpc::Status { code: Code::InvalidArgument as i32, message });
        (DiscoveryRequest { error_detail, ..self.request(&response.nonce) }, wait)
    }

    fn request(&self, nonce: &str) -> DiscoveryRequest {
        DiscoveryRequest {
            version_info: self.accepted.clone(),
            response_nonce: nonce.to_owned(),
            type_url: TYPE_URL.to_owned(),
            ..DiscoveryRequest::default()
        }
    }
}

impl Feed {
    /// Runs until `stopped` is true.
    pub(super) async fn run(mut self, mut stopped: watch::Receiver<bool>) {
        let config = Arc::clone(&self.config);
        let free = async {
            loop {
                tokio::time::sleep(FREE_INTERVAL).await;
                config.free_unused();
            }
        };
        tokio::select! {
            _ = stopped.wait_for(|stopped| *stopped) => {}
            never = self.connect_forever() => match never {},
            () = free => {}
        }
    }

    async fn connect_forever(&mut self) -> std::convert::Infallible {
        let mut backoff = Backoff::new(self.settings.backoff);
        loop {
            let server = self.settings.server.clone();
            let connected = connect(&self.settings).await;
            self.counts.connected(connected.is_ok());
            let (what, error) = match connected {
                Ok(channel) => {
                    tracing::info!(server, node = self.settings.node, "connected to the control plane");
                    let mut has_accepted = false;
                    let ended = self.stream(channel, &mut has_accepted).await;
                    self.counts.is_connected.store(false, Ordering::Relaxed);
                    if has_accepted {
                        backoff.reset();
                    }
                    ("the stream of the control plane ended", describe(&ended))
                }
                Err(error) => ("cannot connect to the control plane", root_cause(&*error)),
            };
            let wait = backoff.next(random());
            tracing::warn!(server, error, ?wait, "{what}; the rules in force stay");
            tokio::time::sleep(wait).await;
        }
    }

    /// Runs one stream to its end.
    async fn stream(&mut self, channel: Channel, has_accepted: &mut bool) -> Result<(), Status> {
        let mut client = AggregatedDiscoveryServiceClient::new(channel)
            .max_decoding_message_size(self.settings.message_bytes_max);
        let (requests, outgoing) = mpsc::channel(1);
        let mut first = self.state.subscribe();
        first.node = Some(self.node());
        let mut request = Request::new(ReceiverStream::new(outgoing));
        self.add_headers(&mut request)?;
        let send = |request| {
            let requests = requests.clone();
            async move { requests.send(request).await.map_err(|_| Status::unavailable("the stream was closed")) }
        };
        send(first).await?;
        let mut responses = client.stream_aggregated_resources(request).await?.into_inner();
        while let Some(response) = responses.message().await? {
            if response.type_url == TYPE_URL && response.resources.is_empty() {
                tracing::warn!("the control plane sent no resources: none of its rules stay in force");
            }
            match self.put_in_force(&response) {
                Ok(()) => {
                    *has_accepted = true;
                    self.counts.accepted(self.clock.now());
                    send(self.state.accept(&response)).await?;
                }
                Err(message) => {
                    self.counts.updates.count(Update::Refused);
                    let (request, wait) = self.state.refuse(&response, message, random());
                    tokio::time::sleep(wait).await;
                    send(request).await?;
                }
            }
        }
        Ok(())
    }

    /// Puts the resources of a response in force, or returns why not.
    fn put_in_force(&self, response: &DiscoveryResponse) -> Result<(), String> {
        let sources = if response.type_url == TYPE_URL {
            response.resources.iter().map(source).collect()
        } else {
            Err(format!("a response of type {:?}; send {TYPE_URL}", response.type_url))
        };
        let read =
            || sources.map_err(|message| RuleErrors::of_source(SourceId::Xds("response".into()), message));
        config::load(&self.config, config::Feed::Xds, read, &*self.clock, false)
            .map_err(|errors| refusal(&errors))
            .map(drop)
    }

    fn node(&self) -> Node {
        let metadata = self.settings.node_metadata.iter();
        let metadata = metadata.map(|(key, value)| (key.clone(), value.as_str().into())).collect();
        Node {
            id: self.settings.node.clone(),
            metadata: Some(to_struct(metadata)),
            user_agent_name: "tidegate".to_owned(),
            user_agent_version_type: Some(UserAgentVersionType::UserAgentVersion(
                env!("CARGO_PKG_VERSION").to_owned(),
            )),
            ..Node::default()
        }
    }

    fn add_headers<T>(&self, request: &mut Request<T>) -> Result<(), Status> {
        for (name, value) in &self.settings.headers {
            let wrong = |_| Status::invalid_argument(format!("`{name}` is not a header that can be sent"));
            let key = name.parse::<AsciiMetadataKey>().map_err(|error| wrong(error.to_string()))?;
            let value = value.parse::<AsciiMetadataValue>().map_err(|error| wrong(error.to_string()))?;
            request.metadata_mut().insert(key, value);
        }
        Ok(())
    }
}

/// The errors as the message of a refusal.
fn refusal(errors: &RuleErrors) -> String {
    let count = errors.iter().count();
    let mut lines: Vec<String> = errors.iter().take(ERRORS_SENT_MAX).map(ToString::to_string).collect();
    if count > ERRORS_SENT_MAX {
        lines.push(format!("and {} more errors", count - ERRORS_SENT_MAX));
    }
    lines.join("\n")
}

fn describe(ended: &Result<(), Status>) -> String {
    match ended {
        Ok(()) => "closed by the control plane".to_owned(),
        Err(status) => format!("{:?}: {}", status.code(), status.message()),
    }
}
