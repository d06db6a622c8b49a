//! `envoy.service.ratelimit.v3.RateLimitService` for tonic's router: calls that the fast path does not take.

use super::call::{CallError, CallResponse, Purpose, WINDOWS_HEADER, routed_call};
use crate::api::{
    grpc::BoxedResponse,
    pb::service::{RateLimitRequest, RateLimitResponse, rate_limit_service_server},
};
use tidegate_core::limit::{RequestError, RequestForm};
use tidegate_service::RateLimitService;
use tonic::{Request, Response, Status};

/// Adapts the service to tonic's trait.
pub(in crate::api) struct TonicService(pub(in crate::api) RateLimitService);

impl TonicService {
    async fn respond(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let called = routed_call(&self.0, Purpose::Limit, &request, request.get_ref()).await;
        let CallResponse { message, windows, on_reset, .. } =
            called.map_err(|error| status(error, self.0.request_limits().form))?;
        let mut response = Response::new(message);
        // Built from an ASCII text, as metadata values are.
        if let Some(windows) = windows.and_then(|windows| windows.to_str().ok()?.parse().ok()) {
            response.metadata_mut().insert(WINDOWS_HEADER, windows);
        }
        if let Some(on_reset) = on_reset {
            // The connection reads it from the extensions.
            response.extensions_mut().insert(on_reset);
        }
        Ok(response)
    }
}

impl rate_limit_service_server::RateLimitService for TonicService {
    fn should_rate_limit<'s, 'f>(
        &'s self,
        request: Request<RateLimitRequest>,
    ) -> BoxedResponse<'f, RateLimitResponse>
    where
        's: 'f,
    {
        Box::pin(self.respond(request))
    }
}

/// The status of a call that gets no response.
pub(in crate::api) fn status(error: CallError, form: RequestForm) -> Status {
    match error {
        // The reference server has no code of its own for errors.
        CallError::Request(RequestError::EmptyDomain | RequestError::NoDescriptors)
            if form == RequestForm::Reference =>
        {
            Status::unknown(error.to_string())
        }
        CallError::NotReady(_) => Status::unavailable(error.to_string()),
        CallError::Precision | CallError::Timeout(_) | CallError::Request(_) => {
            Status::invalid_argument(error.to_string())
        }
    }
}
