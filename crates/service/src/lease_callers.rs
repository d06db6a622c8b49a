//! The callers whose nodes recently claimed credits, for operators.

use parking_lot::Mutex;
use std::{collections::HashMap, time::Duration};
use tidegate_core::limit::Timestamp;
use tidegate_shared::{granter::NodeLeases, lease::NodeId};

/// The most nodes that are remembered, some 200 bytes each.
const NODES_MAX: usize = 4_096;

/// If there are more, nodes without a claim in this time are dropped.
const KEPT: Duration = Duration::from_secs(10);

/// The caller of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeaseCaller {
    /// As the audit log names it.
    pub actor: String,
    /// Its address.
    pub peer: String,
    /// The number that the node sends.
    pub number: u64,
    /// Time of its last claim.
    pub last_claim: Timestamp,
}

/// A node with leases.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeaseNode {
    /// None before its first claim to this process, or if there are very many nodes.
    pub caller: Option<LeaseCaller>,
    /// Its leases.
    pub leases: NodeLeases,
}

/// The callers of nodes.
#[derive(Default)]
pub(super) struct LeaseCallers(Mutex<HashMap<NodeId, LeaseCaller>>);

impl LeaseCallers {
    /// Notes a claim.
    pub(super) fn note(&self, node: NodeId, caller: LeaseCaller) {
        let mut callers = self.0.lock();
        let now = caller.last_claim;
        if callers.len() >= NODES_MAX && !callers.contains_key(&node) {
            callers.retain(|_, caller| now.since(caller.last_claim) < KEPT);
            if callers.len() >= NODES_MAX {
                return;
            }
        }
        callers.insert(node, caller);
    }

    /// The caller of a node.
    pub(super) fn get(&self, node: NodeId) -> Option<LeaseCaller> {
        self.0.lock().get(&node).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(number: u64, secs: u64) -> LeaseCaller {
        let last_claim = Timestamp::from_millis(secs * 1_000);
        LeaseCaller { actor: "token:a".into(), peer: "unix".into(), number, last_claim }
    }

    #[test]
    fn of_very_many_nodes_those_that_claim_nothing_are_forgotten_first() {
        let callers = LeaseCallers::default();
        let nodes = NODES_MAX as u64;
        (0..nodes).for_each(|node| callers.note(NodeId(node), caller(node, node % 2 * 100)));
        callers.note(NodeId(nodes), caller(nodes, 101));
        let known = |node| callers.get(NodeId(node)).is_some();
        assert_eq!([0, 1, nodes].map(known), [false, true, true]);
        (nodes..2 * nodes).for_each(|node| callers.note(NodeId(node), caller(node, 102)));
        callers.note(NodeId(1), caller(1, 102));
        assert_eq!(callers.0.lock().len(), NODES_MAX);
        assert!(!known(2 * nodes - 1), "there was no room for it");
    }
}
