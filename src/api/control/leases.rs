//! Nodes that hold credits of this server's counters: `ListLeases`.

use super::{caller::ControlApi, convert::timestamp, error::Error, rules::page_size};
use crate::api::pb::control as pb;
use tidegate_operations::control::Caller;
use tidegate_service::LeaseNode;
use tonic::Code;

const NODES_MAX: usize = 1_000;

impl ControlApi {
    pub(super) async fn list_leases(
        &self,
        _: &Caller,
        message: pb::ListLeasesRequest,
    ) -> Result<pb::ListLeasesResponse, Error> {
        let service = self.control.service().clone();
        // Reads each leased counter.
        let nodes = tokio::task::spawn_blocking(move || service.lease_nodes()).await;
        let nodes = nodes.map_err(|_| Error::new(Code::Internal, "the leases could not be read"))?;
        let mut nodes = nodes.map_err(|_| Error::starting())?;
        let sum = |of: fn(&LeaseNode) -> u64| nodes.iter().map(of).sum();
        let mut response = pb::ListLeasesResponse {
            nodes: Vec::new(),
            total: u32::try_from(nodes.len()).unwrap_or(u32::MAX),
            leases: sum(|node| node.leases.leases),
            credits: sum(|node| node.leases.credits),
        };
        nodes.sort_by_key(|node| std::cmp::Reverse(node.leases.credits));
        nodes.truncate(page_size(message.limit, NODES_MAX));
        response.nodes = nodes.into_iter().map(node).collect();
        Ok(response)
    }
}

fn node(LeaseNode { caller, leases }: LeaseNode) -> pb::LeaseNode {
    let node = pb::LeaseNode {
        leases: leases.leases,
        credits: leases.credits,
        demand: leases.demand,
        ..pb::LeaseNode::default()
    };
    match caller {
        None => node,
        Some(caller) => pb::LeaseNode {
            actor: caller.actor,
            peer: caller.peer,
            number: caller.number,
            last_claim: Some(timestamp(caller.last_claim)),
            ..node
        },
    }
}
