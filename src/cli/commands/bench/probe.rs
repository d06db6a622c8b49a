//! Whether a limit applies to the requests of a run.

use crate::{
    api::pb::service::{
        RateLimitRequest,
        rate_limit_response::{Code, DescriptorStatus},
        rate_limit_service_client::RateLimitServiceClient,
    },
    cli::{arguments::client_tls::ClientTlsFlags, commands::target},
    server::ListenAddress,
};
use prost::Message as _;
use std::time::Duration;
use tidegate_bench::Template;

const TIMEOUT: Duration = Duration::from_secs(5);

/// Sends the request for key 0 with zero hits, which consumes nothing. None if there was no usable response.
pub(super) fn is_limited(
    address: &ListenAddress,
    tls: &ClientTlsFlags,
    template: &mut Template,
) -> Option<bool> {
    let mut request = RateLimitRequest::decode(template.body(0)).ok()?;
    for descriptor in &mut request.descriptors {
        descriptor.hits_addend = Some(0);
    }
    let runtime = tidegate_threads::runtime().ok()?;
    let response = runtime.block_on(async {
        let channel = target::connect(address, tls, TIMEOUT).await.ok()?;
        let mut request = tonic::Request::new(request);
        request.set_timeout(TIMEOUT);
        RateLimitServiceClient::new(channel).should_rate_limit(request).await.ok()
    })?;
    let is_limited =
        |status: &DescriptorStatus| status.current_limit.is_some() || status.code() == Code::OverLimit;
    Some(response.get_ref().statuses.iter().any(is_limited))
}
