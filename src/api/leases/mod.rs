//! `tidegate.v1.Leases`: holders of credits, which decide requests to counters of this server by themselves.

mod convert;

use super::{
    bearer_token::bearer_token,
    client::Client,
    control::code_of,
    grpc::BoxedResponse,
    pb::{leases, service::RateLimitRequest},
    rls::{CallError, CallResponse, Purpose, decode, routed_call, status_of},
    tokens::Tokens,
};
use arc_swap::ArcSwap;
use convert::{Claims, claims};
use futures_util::future::join_all;
use std::sync::Arc;
use tidegate_http2::OnReset;
use tidegate_operations::control::{Access, AccessTo, Caller, Credential, Reach, Role};
use tidegate_service::{LeaseCaller, RateLimitService};
use tonic::{Request, Response, Status};

/// The service, for callers with a role. Clones share everything.
#[derive(Clone)]
pub struct LeasesApi(Arc<Shared>);

struct Shared {
    service: RateLimitService,
    access: Access,
    /// None if there are no tokens.
    tokens: Option<Arc<ArcSwap<Tokens>>>,
}

impl LeasesApi {
    /// Grants leases of the counters of `service` to callers in this reach.
    pub fn new(service: RateLimitService, reach: Reach, tokens: Option<Arc<ArcSwap<Tokens>>>) -> Self {
        Self(Arc::new(Shared { service, access: Access::new(AccessTo::Leases, reach), tokens }))
    }

    /// The caller, if it may hold credits.
    fn admit<M>(&self, request: &Request<M>) -> Result<Caller, Status> {
        let Shared { service, access, tokens } = &*self.0;
        let (peer, names) = Client::of(request.extensions());
        let tokens = tokens.as_ref().map(|tokens| tokens.load());
        let headers = request.metadata().as_ref();
        let of = |tokens: &Tokens| tokens.credential(bearer_token(headers), names, Role::Lease);
        let credential = tokens.map_or(Credential::None, |tokens| of(&tokens));
        let caller = access.admit(credential, peer, Role::Lease, service.clock().now());
        caller.map_err(|denied| Status::new(code_of(&denied), denied.to_string()))
    }

    /// The responses to claims.
    fn grants(&self, claims: &Claims) -> Result<Vec<leases::exchange_response::Grant>, Status> {
        let rules = self.0.service.grant_rules().map_err(|error| Status::unavailable(error.to_string()))?;
        let is_current = (claims.epoch, claims.generation) == (rules.granter.epoch(), rules.generation());
        let grant = |(id, claim)| convert::grant(rules.lease(id, &claim, is_current));
        Ok(claims.iter().map(grant).collect())
    }

    /// Builds the response, with the terms of the counters that the decided requests were charged to.
    fn response(
        &self,
        request: &leases::ExchangeRequest,
        decided: Vec<Result<CallResponse, CallError>>,
        grants: Vec<leases::exchange_response::Grant>,
    ) -> Result<(leases::ExchangeResponse, Vec<OnReset>), Status> {
        let service = &self.0.service;
        let (limits, mut resets) = (service.request_limits(), Vec::new());
        // One set of rules for all counters of the response.
        let rules = service.grant_rules().map_err(|error| Status::unavailable(error.to_string()))?;
        let decision =
            |(message, decided): (&RateLimitRequest, Result<CallResponse, CallError>)| match decided {
                Ok(CallResponse { message: response, on_reset, hold, .. }) => {
                    resets.extend(on_reset);
                    let texts = decode::EntryTexts::of(message, limits);
                    let counters = decode::request(message, &texts, limits).ok();
                    let counters = counters.and_then(|request| rules.counters(service, &request));
                    convert::decision(response, hold, counters.unwrap_or_default())
                }
                Err(error) => convert::error(&status_of(error, limits.form)),
            };
        let decisions = request.decisions.iter().zip(decided).map(decision).collect();
        let is_known = request.epoch == rules.granter.epoch();
        let response = leases::ExchangeResponse {
            epoch: rules.granter.epoch(),
            generation: rules.generation(),
            decisions,
            grants,
            settings: (!is_known)
                .then(|| convert::settings(rules.granter.settings(), service.shared_store().is_some())),
        };
        Ok((response, resets))
    }
}

impl leases::leases_server::Leases for LeasesApi {
    fn exchange<'s, 'f>(
        &'s self,
        request: Request<leases::ExchangeRequest>,
    ) -> BoxedResponse<'f, leases::ExchangeResponse>
    where
        's: 'f,
    {
        Box::pin(self.respond(request))
    }
}

impl LeasesApi {
    async fn respond(
        &self,
        request: Request<leases::ExchangeRequest>,
    ) -> Result<Response<leases::ExchangeResponse>, Status> {
        let Caller { actor, peer, .. } = self.admit(&request)?;
        // Reports first: the credits that they return are free for the decisions. Grants then wait for the slowest decision of the call.
        let claims = claims(request.get_ref(), &actor)?;
        let grants = self.grants(&claims)?;
        if !grants.is_empty() {
            let (number, last_claim) = (request.get_ref().node, self.0.service.clock().now());
            let caller = LeaseCaller { actor, peer, number, last_claim };
            self.0.service.note_lease_caller(claims.node, caller);
        }
        let decisions = &request.get_ref().decisions;
        let decide = |message| routed_call(&self.0.service, Purpose::Limit, &request, message);
        let decided = join_all(decisions.iter().map(decide)).await;
        let (response, resets) = self.response(request.get_ref(), decided, grants)?;
        let mut response = Response::new(response);
        if !resets.is_empty() {
            // The connection reads it from the extensions.
            response.extensions_mut().insert(OnReset::all(resets));
        }
        Ok(response)
    }
}
