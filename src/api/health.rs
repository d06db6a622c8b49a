//! `grpc.health.v1.Health`: the health of the server as a whole (the empty name) and of the rate limit service, which are the
//! same.

use super::pb::{
    health::{
        HealthCheckRequest, HealthCheckResponse, HealthListRequest, HealthListResponse,
        health_check_response::ServingStatus, health_server,
    },
    service::rate_limit_service_server::SERVICE_NAME,
};
use prost::Message as _;
use tokio::sync::watch;
use tokio_stream::{StreamExt, wrappers::WatchStream};
use tonic::{Request, Response, Status, codegen::BoxStream};

/// The server as a whole, its service, and the name that the reference server has.
const NAMES: [&str; 3] = ["", SERVICE_NAME, "ratelimit"];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    NotServing,
    Serving,
    /// Not serving, and watches end.
    Ended,
}

/// The health of the server. Clones share it.
#[derive(Clone)]
pub struct Health(watch::Sender<State>);

impl Default for Health {
    /// Not serving.
    fn default() -> Self {
        Self(watch::Sender::new(State::NotServing))
    }
}

impl Health {
    /// Sets whether requests are decided.
    pub fn set_serving(&self, serving: bool) {
        self.set(if serving { State::Serving } else { State::NotServing });
    }

    /// Ends the streams of all watches, so that their connections can close.
    pub fn end_watches(&self) {
        self.set(State::Ended);
    }

    fn set(&self, state: State) {
        self.0.send_replace(state);
    }

    fn status(&self) -> ServingStatus {
        status(*self.0.borrow())
    }

    /// Whether a message is a request for the health of a name that is known.
    pub(super) fn is_known(message: &[u8]) -> bool {
        HealthCheckRequest::decode(message).is_ok_and(|request| NAMES.contains(&&*request.service))
    }

    /// Appends the response to such a request, as a message of gRPC.
    pub(super) fn write_response(&self, out: &mut Vec<u8>) {
        let response = response(self.status());
        let length = u32::try_from(response.encoded_len()).expect("a response of one number");
        out.push(0);
        out.extend_from_slice(&length.to_be_bytes());
        response.encode(out).expect("a vector has room");
    }
}

fn status(state: State) -> ServingStatus {
    match state {
        State::Serving => ServingStatus::Serving,
        State::NotServing | State::Ended => ServingStatus::NotServing,
    }
}

fn response(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}

#[tonic::async_trait]
impl health_server::Health for Health {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        if !NAMES.contains(&&*request.get_ref().service) {
            return Err(Status::not_found("unknown service; List has the names of all"));
        }
        Ok(Response::new(response(self.status())))
    }

    async fn list(&self, _: Request<HealthListRequest>) -> Result<Response<HealthListResponse>, Status> {
        let status = self.status();
        let statuses = NAMES.iter().map(|name| ((*name).to_owned(), response(status))).collect();
        Ok(Response::new(HealthListResponse { statuses }))
    }

    type WatchStream = BoxStream<HealthCheckResponse>;

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let is_known = NAMES.contains(&&*request.get_ref().service);
        let mut last = None;
        let changes = WatchStream::new(self.0.subscribe()).take_while(|state| *state != State::Ended);
        let statuses = changes.filter_map(move |state| {
            // An unknown service is no error: the protocol lets it become known later.
            let status = if is_known { status(state) } else { ServingStatus::ServiceUnknown };
            (last.replace(status) != Some(status)).then(|| Ok(response(status)))
        });
        Ok(Response::new(Box::pin(statuses)))
    }
}
