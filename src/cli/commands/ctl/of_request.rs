//! `ctl explain`, `peek`, `counters` and `give-back`: what concerns the counters of one request.

use super::{
    complete,
    connection::Caller,
    show,
    shown::{Reason, Shown},
};
use crate::api::pb::control as pb;
use clap::Args;
use clap_complete::ArgValueCompleter;
use tidegate_core::limit::DescriptorText;
use tonic::{Response, Status};

/// A request.
#[derive(Args)]
pub(super) struct RequestArgs {
    /// Domain of the request.
    #[arg(add = ArgValueCompleter::new(complete::domains))]
    domain: String,
    /// Descriptors of the request.
    #[arg(required = true, value_name = "KEY=VALUE,…")]
    descriptors: Vec<DescriptorText>,
}

/// Descriptors as the API has them.
pub(super) fn wire(descriptors: &[DescriptorText]) -> Vec<pb::Descriptor> {
    let entry = |(key, value): &(String, String)| pb::Entry { key: key.clone(), value: value.clone() };
    let descriptor = |text: &DescriptorText| pb::Descriptor { entries: text.0.iter().map(entry).collect() };
    descriptors.iter().map(descriptor).collect()
}

impl Caller<'_> {
    pub(super) async fn explain(&mut self, of: &RequestArgs) -> Result<Shown, Status> {
        let RequestArgs { domain, descriptors } = of;
        let message = pb::ExplainRequest { domain: domain.clone(), descriptors: wire(descriptors) };
        let request = self.timed(message);
        let response = self.client.explain(request).await?;
        Ok(show::explained(descriptors, response.get_ref()))
    }

    pub(super) async fn peek(&mut self, of: &RequestArgs) -> Result<Shown, Status> {
        let RequestArgs { domain, descriptors } = of;
        let message = pb::PeekRequest { domain: domain.clone(), descriptors: wire(descriptors) };
        let request = self.timed(message);
        let response = self.client.peek(request).await.map(Response::into_inner)?;
        Ok(Shown::new("PeekResponse", &response, show::statuses(descriptors, &response.statuses)))
    }

    pub(super) async fn counters(&mut self, of: &RequestArgs) -> Result<Shown, Status> {
        let RequestArgs { domain, descriptors } = of;
        let message = pb::ListCountersRequest { domain: domain.clone(), descriptors: wire(descriptors) };
        let request = self.timed(message);
        let response = self.client.list_counters(request).await?;
        Ok(show::counters(response.get_ref()))
    }

    pub(super) async fn give_back(
        &mut self,
        of: &RequestArgs,
        hits: u32,
        reason: &Reason,
    ) -> Result<Shown, Status> {
        let RequestArgs { domain, descriptors } = of;
        let (domain, reason) = (domain.clone(), reason.reason.clone());
        let message = pb::GiveBackRequest { domain, descriptors: wire(descriptors), hits, reason };
        let request = self.timed(message);
        let response = self.client.give_back(request).await.map(Response::into_inner)?;
        Ok(Shown::new("GiveBackResponse", &response, show::statuses(descriptors, &response.statuses)))
    }
}
