//! `tidegate.test.v1.Clock`: sets the clock of a server under test.

use super::{
    pb::test::{
        SetRequest, SetResponse,
        clock_server::{Clock, ClockServer},
    },
    time::{from_timestamp, timestamp},
};
use std::sync::Arc;
use tidegate_core::clock::{Clock as _, ManualClock};
use tonic::{Request, Response, Status};

/// The service over the server's clock.
#[derive(Clone, Debug)]
pub struct TestClock(pub Arc<ManualClock>);

impl TestClock {
    /// The service to be routed.
    pub fn service(self) -> ClockServer<Self> {
        ClockServer::new(self)
    }
}

#[tonic::async_trait]
impl Clock for TestClock {
    async fn set(&self, request: Request<SetRequest>) -> Result<Response<SetResponse>, Status> {
        let now = request.into_inner().now.ok_or_else(|| Status::invalid_argument("now is missing"))?;
        self.0.advance_to(from_timestamp(now).ok_or_else(|| {
            Status::invalid_argument("now is not a time from 1970 to 2554 with nanos from 0 to 999999999")
        })?);
        Ok(Response::new(SetResponse { now: Some(timestamp(self.0.now())) }))
    }
}
