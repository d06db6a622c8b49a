//! `kuadrant.service.ratelimit.v1.RateLimitService`: a check that counts nothing, and a report of hits that were used.

use super::{
    call::{Purpose, routed_call},
    tonic_service::status,
};
use crate::api::{
    grpc::BoxedResponse,
    pb::{
        kuadrant_v1::rate_limit_service_server,
        service::{RateLimitRequest, RateLimitResponse, rate_limit_response::Code},
    },
};
use std::sync::Once;
use tidegate_service::RateLimitService;
use tonic::{Request, Response, Status};

/// Guards a log line for the first call of the process to a domain that has rules for descriptors.
static FIRST_CALL: Once = Once::new();

/// Adapts the service to tonic's trait.
pub(in crate::api) struct KuadrantService(pub(in crate::api) RateLimitService);

impl KuadrantService {
    async fn call(
        &self,
        purpose: Purpose,
        request: Request<RateLimitRequest>,
    ) -> Result<RateLimitResponse, Status> {
        if !FIRST_CALL.is_completed() && self.0.has_descriptor_rules(&request.get_ref().domain) {
            FIRST_CALL.call_once(|| {
                tracing::warn!(
                    "Kuadrant's service is used: a rule applies to descriptors with exactly its entries, in its order; limits of a \
                     LIMITS_FILE also match parts of them, in any order, as Limitador's do (docs/migrate.md)"
                );
            });
        }
        let called = routed_call(&self.0, purpose, &request, request.get_ref()).await;
        called.map(|response| response.message).map_err(|error| status(error, self.0.request_limits().form))
    }

    fn boxed(
        &self,
        purpose: Purpose,
        request: Request<RateLimitRequest>,
    ) -> BoxedResponse<'_, RateLimitResponse> {
        Box::pin(async move {
            let mut response = self.call(purpose, request).await?;
            if purpose == Purpose::Report {
                // The hits are counted whatever the decision: the response is OK, without statuses.
                let overall_code = Code::Ok.into();
                response = RateLimitResponse { overall_code, ..RateLimitResponse::default() };
            }
            Ok(Response::new(response))
        })
    }
}

impl rate_limit_service_server::RateLimitService for KuadrantService {
    fn check_rate_limit<'s, 'f>(
        &'s self,
        request: Request<RateLimitRequest>,
    ) -> BoxedResponse<'f, RateLimitResponse>
    where
        's: 'f,
    {
        self.boxed(Purpose::Check, request)
    }

    fn report<'s, 'f>(&'s self, request: Request<RateLimitRequest>) -> BoxedResponse<'f, RateLimitResponse>
    where
        's: 'f,
    {
        self.boxed(Purpose::Report, request)
    }
}
