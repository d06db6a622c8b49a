//! `tidegate.test.v1.Clock`: sets the clock of a server under test.

use super::pb::test::{
    SetRequest, SetResponse,
    clock_server::{Clock, ClockServer},
};
use prost_types::Timestamp as WireTimestamp;
use std::sync::Arc;
use tidegate_core::{
    clock::{Clock as _, ManualClock},
    limit::Timestamp,
};
use tonic::{Request, Response, Status};

const NANOS_PER_SECOND: u64 = 1_000_000_000;

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
        self.0.advance_to(timestamp(now).ok_or_else(|| {
            Status::invalid_argument("now is not a time from 1970 to 2554 with nanos from 0 to 999999999")
        })?);
        let now = self.0.now().as_nanos();
        let seconds = i64::try_from(now / NANOS_PER_SECOND).unwrap_or(i64::MAX);
        let nanos = i32::try_from(now % NANOS_PER_SECOND).unwrap_or(0);
        Ok(Response::new(SetResponse { now: Some(WireTimestamp { seconds, nanos }) }))
    }
}

/// Converts a time on the wire; None if it is malformed or out of bounds.
fn timestamp(now: WireTimestamp) -> Option<Timestamp> {
    let seconds = u64::try_from(now.seconds).ok()?;
    let nanos = u64::try_from(now.nanos).ok().filter(|nanos| *nanos < NANOS_PER_SECOND)?;
    Some(Timestamp::from_nanos(seconds.checked_mul(NANOS_PER_SECOND)?.checked_add(nanos)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_times_are_refused_and_others_are_exact() {
        let nanos = |seconds, nanos| timestamp(WireTimestamp { seconds, nanos }).map(Timestamp::as_nanos);
        assert_eq!(nanos(1_700_006_400, 999_999_999), Some(1_700_006_400_999_999_999));
        assert_eq!(nanos(0, 0), Some(0));
        for (seconds, of_second) in [(-1, 0), (0, -1), (0, 1_000_000_000), (i64::MAX, 0), (18_446_744_074, 0)]
        {
            assert_eq!(nanos(seconds, of_second), None, "{seconds} {of_second}");
        }
    }
}
