//! Nodes that hold credits of this server's counters: `ListLeases`.

use super::{
    caller::Admitted,
    convert::timestamp,
    error::{Error, Result, on_thread},
    rules::page_size,
};
use crate::api::pb::control as pb;
use tidegate_service::LeaseNode;

const NODES_MAX: usize = 1_000;

impl Admitted {
    pub(super) async fn list_leases(&self, message: pb::ListLeasesRequest) -> Result<pb::ListLeasesResponse> {
        let service = self.control.service.clone();
        // Reads each leased counter.
        let nodes = on_thread("the leases could not be read", move || service.lease_nodes()).await?;
        let mut nodes = nodes.map_err(|_| Error::starting())?;
        let sum = |of: fn(&LeaseNode) -> u64| nodes.iter().map(of).sum();
        let mut response = pb::ListLeasesResponse {
            nodes: Vec::new(),
            total: u32::try_from(nodes.len()).unwrap_or(u32::MAX),
            leases: sum(|node| node.leases.leases),
            credits: sum(|node| node.leases.credits),
        };
        nodes.sort_by_key(|node| std::cmp::Reverse(node.leases.credits));
        nodes.truncate(page_size(message.limit, NODES_MAX, NODES_MAX));
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
