//! A holder of credits: decides requests to `d`, each with one descriptor of one entry `a=VALUE`, by leases of a server.

use std::{
    collections::HashMap,
    hash::{BuildHasher as _, RandomState},
    time::Duration,
};
use tidegate::api::pb::{
    leases::{
        ExchangeRequest, ExchangeResponse,
        exchange_request::Claim,
        exchange_response::{Counter, Grant, Supply as WireSupply, decision::Result as Decided},
        leases_client::LeasesClient,
    },
    service::{RateLimitRequest, rate_limit_response::Code},
};
use tidegate_shared::lease::{
    Holder, HolderDecision, HolderTerms, LeaseRequest, LeaseResponse, Monotonic, NodeId, Settings,
    StoreDenial, Supply,
};
use tonic::{Request, Status, transport::Channel};

/// The fate of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Fate {
    #[default]
    Answered,
    RequestLost,
    ResponseLost,
}

/// The outcome of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Decided by credits, or by a kept denial.
    Here(bool),
    /// Decided by the server.
    There(bool),
}

impl Outcome {
    pub fn is_admitted(self) -> bool {
        matches!(self, Self::Here(true) | Self::There(true))
    }
}

/// A process that holds credits.
pub struct Node {
    pub number: u64,
    pub client: LeasesClient<Channel>,
    pub epoch: u64,
    pub generation: u64,
    settings: Option<Settings>,
    /// The counter identifier of each value.
    known: HashMap<String, Vec<u8>>,
    holders: HashMap<Vec<u8>, Holder>,
    /// Sent with every call.
    pub token: Option<String>,
    /// The last call with claims.
    pub last: Option<ExchangeRequest>,
}

fn request(value: &str) -> RateLimitRequest {
    let descriptors = vec![crate::support::descriptor(&[("a", value)])];
    RateLimitRequest { domain: "d".into(), descriptors, hits_addend: 0 }
}

fn claim(counter: &[u8], request: &LeaseRequest) -> Claim {
    Claim {
        counter: counter.to_vec(),
        holder: request.holder,
        sequence: request.sequence,
        spent: request.spent,
        acknowledged: request.acknowledged,
        spent_ago_us: request.spent_ago / 1_000,
        kept: request.kept,
        demand: request.demand,
    }
}

fn lease_response(epoch: u64, grant: &Grant) -> LeaseResponse {
    LeaseResponse {
        sequence: grant.sequence,
        epoch,
        spend_to: grant.spend_to,
        valid_for: Duration::from_micros(grant.valid_us),
        supply: match grant.supply() {
            WireSupply::Ample => Supply::Ample,
            WireSupply::Scarce => Supply::Scarce,
            WireSupply::TooSmall => Supply::TooSmall,
            WireSupply::Learning => Supply::Learning,
        },
        report_after: Duration::from_micros(grant.report_after_us),
        free: grant.free,
        empty_for: Duration::from_micros(grant.empty_us),
        until_full: Duration::from_micros(grant.until_full_us),
    }
}

impl Node {
    pub fn new(number: u64, channel: Channel) -> Self {
        Self {
            number,
            client: LeasesClient::new(channel),
            epoch: 0,
            generation: 0,
            settings: None,
            known: HashMap::new(),
            holders: HashMap::new(),
            token: None,
            last: None,
        }
    }

    /// Credits in hand, of all counters.
    pub fn credits(&self, now: Monotonic) -> u64 {
        self.holders.values().map(|holder| holder.credits(now)).sum()
    }

    /// Decides one hit.
    pub async fn decide(&mut self, value: &str, now: Monotonic) -> Result<Outcome, Status> {
        if let Some(holder) = self.known.get(value).and_then(|counter| self.holders.get_mut(counter)) {
            match holder.decide(1, now) {
                HolderDecision::Covered => return Ok(Outcome::Here(true)),
                HolderDecision::Denied { .. } => return Ok(Outcome::Here(false)),
                HolderDecision::Undecided => {}
            }
        }
        let call = ExchangeRequest {
            node: self.number,
            epoch: self.epoch,
            generation: self.generation,
            decisions: vec![request(value)],
            claims: Vec::new(),
        };
        let response = self.client.exchange(self.authorized(call)).await?.into_inner();
        self.see(&response, now).await?;
        let decision = &response.decisions[0];
        let Some(Decided::Response(decided)) = &decision.result else { panic!("{decision:?}") };
        let is_admitted = decided.overall_code() == Code::Ok;
        if let [counter] = &*decision.counters
            && !counter.id.is_empty()
        {
            let status = &decided.statuses[0];
            let reset = status.duration_until_reset.as_ref().map_or(0, |reset| reset.seconds);
            let reset = Duration::from_secs(u64::try_from(reset).unwrap_or(0));
            self.learn(value, counter, now);
            let holder = self.holders.get_mut(&counter.id).expect("it was just learned");
            if is_admitted {
                holder.admitted(status.limit_remaining.into(), now);
            } else {
                let denied_for = Duration::from_micros(counter.denied_for_us);
                let remaining = status.limit_remaining.into();
                let denied = StoreDenial { hits: 1, remaining, denied_for, reset, state: None };
                holder.keep_denial(denied, now, now);
            }
        }
        Ok(Outcome::There(is_admitted))
    }

    /// Spends a hit, if there are credits.
    pub fn spend(&mut self, value: &str, now: Monotonic) -> bool {
        let holder = self.known.get(value).and_then(|counter| self.holders.get_mut(counter));
        holder.is_some_and(|holder| holder.decide(1, now) == HolderDecision::Covered)
    }

    fn authorized(&self, call: ExchangeRequest) -> Request<ExchangeRequest> {
        let mut request = Request::new(call);
        if let Some(token) = &self.token {
            let value = format!("Bearer {token}").parse().expect("ASCII");
            request.metadata_mut().insert("authorization", value);
        }
        request
    }

    fn learn(&mut self, value: &str, counter: &Counter, now: Monotonic) {
        let settings = self.settings.expect("the first response has them");
        self.known.insert(value.to_owned(), counter.id.clone());
        let terms = HolderTerms { settings, limit: counter.limit, span: counter.span_us };
        let make = || {
            let number = RandomState::new().hash_one(now.as_nanos()) >> 11;
            let mut holder = Holder::new(terms, now).numbered(number);
            holder.decide(1, now);
            holder
        };
        self.holders.entry(counter.id.clone()).or_insert_with(make);
    }

    /// Sends the claims that are due.
    pub async fn exchange(&mut self, now: Monotonic, fate: Fate) -> Result<(), Status> {
        let node = NodeId(self.number);
        let due = |(counter, holder): (&Vec<u8>, &mut Holder)| {
            holder.drop_expired(now);
            holder.poll(node, now).map(|request| claim(counter, &request))
        };
        let claims: Vec<Claim> = self.holders.iter_mut().filter_map(due).collect();
        if claims.is_empty() {
            return Ok(());
        }
        let Some(response) = self.send(claims, fate).await? else { return Ok(()) };
        self.accept(&response, now);
        self.see(&response, now).await
    }

    /// Gives all credits back.
    pub async fn release(&mut self, now: Monotonic) -> Result<(), Status> {
        let node = NodeId(self.number);
        let due = |(counter, mut holder): (Vec<u8>, Holder)| {
            holder.release(node, now).map(|request| claim(&counter, &request))
        };
        let claims: Vec<Claim> = std::mem::take(&mut self.holders).into_iter().filter_map(due).collect();
        self.known.clear();
        if !claims.is_empty() {
            self.send(claims, Fate::Answered).await?;
        }
        Ok(())
    }

    async fn send(&mut self, claims: Vec<Claim>, fate: Fate) -> Result<Option<ExchangeResponse>, Status> {
        let (epoch, generation) = (self.epoch, self.generation);
        let call = ExchangeRequest { node: self.number, epoch, generation, decisions: Vec::new(), claims };
        self.last = Some(call.clone());
        if fate == Fate::RequestLost {
            return Ok(None);
        }
        let response = self.client.exchange(self.authorized(call)).await?.into_inner();
        Ok((fate == Fate::Answered).then_some(response))
    }

    fn accept(&mut self, response: &ExchangeResponse, now: Monotonic) {
        let claims = self.last.as_ref().map_or(&[][..], |call| &call.claims);
        assert_eq!(claims.len(), response.grants.len());
        for (claim, grant) in claims.iter().zip(&response.grants) {
            if let Some(holder) = self.holders.get_mut(&claim.counter) {
                holder.accept(&lease_response(response.epoch, grant), now);
            }
        }
    }

    /// Reads the epoch and the rules of a response. If they changed, counters are learned again.
    async fn see(&mut self, response: &ExchangeResponse, now: Monotonic) -> Result<(), Status> {
        if (response.epoch, response.generation) != (self.epoch, self.generation) {
            self.release(now).await?;
            (self.epoch, self.generation) = (response.epoch, response.generation);
        }
        if let Some(settings) = &response.settings {
            self.settings = Some(Settings {
                length: Duration::from_micros(settings.length_us),
                grant_min: settings.grant_min,
                limit_min: settings.limit_min,
                hold_min: Duration::from_micros(settings.hold_min_us),
            });
        }
        Ok(())
    }
}
