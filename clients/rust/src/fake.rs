//! A client for tests of applications, and the decisions that it returns.

use crate::{
    builder::Builder,
    client::{OnFailure, Tidegate},
    decision::{Decision, Limit, Reason, Status},
    request::{Descriptor, Request, Unit},
};
use std::{sync::Arc, time::Duration};

pub(crate) type Decide = Arc<dyn Fn(Call) -> Decision + Send + Sync>;

/// A call to a fake client; see [`Tidegate::fake`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Call {
    /// The domain.
    pub domain: String,
    /// The descriptors.
    pub descriptors: Vec<Descriptor>,
    /// The hits of each descriptor; 0 of [`Tidegate::peek`].
    pub costs: Vec<u64>,
    /// Whether the hits of any descriptor are given back.
    pub gives_back: bool,
}

impl Call {
    pub(crate) fn new(request: &Request, domain: &str) -> Self {
        Self {
            domain: domain.to_owned(),
            descriptors: request.descriptors().to_vec(),
            costs: request.costs().collect(),
            gives_back: request.gives_back(),
        }
    }
}

impl Tidegate {
    /// Creates a client for tests of applications: it connects to nothing, and its calls return what a function decides.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tidegate_client::{Decision, Tidegate};
    /// let client = Tidegate::fake(|_| Decision::denied(Some(Duration::from_secs(60))));
    /// ```
    pub fn fake(decide: impl Fn(Call) -> Decision + Send + Sync + 'static) -> Self {
        Builder::new(String::new()).domain("fake").client(Vec::new(), Some(Arc::new(decide)))
    }
}

impl Decision {
    /// Creates the decision of a server that admits a request, to which no limit applies.
    pub fn admitted() -> Self {
        Self::new(true, Reason::Decided, Vec::new())
    }

    /// Creates the decision of a server that denies a request for some time, or forever, by an unnamed limit of one request per second.
    pub fn denied(retry_after: Option<Duration>) -> Self {
        let limit = Limit {
            requests: 1,
            unit: Some(Unit::Second),
            name: String::new(),
            window: Some(Duration::from_secs(1)),
        };
        let status = Status {
            over_limit: true,
            limit: Some(limit),
            remaining: 0,
            reset_after: retry_after,
            mode: None,
        };
        Self::new(false, Reason::Decided, vec![status])
    }

    /// Creates the decision of a policy on a request without an answer, with the name of a gRPC status code such as
    /// `DEADLINE_EXCEEDED`.
    pub fn failed(policy: OnFailure, error: &'static str) -> Self {
        let (allowed, reason) = match policy {
            OnFailure::Open => (true, Reason::FailedOpen),
            OnFailure::Closed => (false, Reason::FailedClosed),
        };
        let decision = Self::new(allowed, reason, Vec::new());
        Self { error: Some(error), error_message: Some("a fake client has no server".into()), ..decision }
    }
}
