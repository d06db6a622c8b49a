//! The nodes that decide: the store itself, or the primaries of a cluster.

use super::{connection::Connection, hash_slots::HashSlots};
use redis::ConnectionInfo;
use std::{
    fmt,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
};
use tidegate_core::{
    limiter::GROUPS,
    sync::{ArcSwap, Mutex},
};

/// The most connections of all workers to one node. Up to as many workers have one each; more connections would cost the store more than
/// they gain.
const CONNECTIONS_MAX: usize = 8;

/// A node that decides.
pub(super) struct Node {
    /// Distinguishes the nodes of one process.
    pub(super) number: u64,
    /// Host and port of a node of a cluster. None if the store is not a cluster.
    pub(super) address: Option<(String, u16)>,
    is_available: AtomicBool,
    /// Number of times that it became unavailable. Connections from before are closed.
    outages: AtomicU64,
    /// Calls without a response, since the last response.
    without_response: AtomicU32,
    /// Whether the loss of its keys was logged since its last heartbeat.
    pub(super) has_logged_loss: AtomicBool,
    /// Whether a damaged counter was logged since its last heartbeat.
    pub(super) has_logged_damage: AtomicBool,
    /// Whether it was logged since its last heartbeat that its clock is too far from this server's.
    pub(super) has_logged_clocks: AtomicBool,
    /// The last reason why it is unavailable; empty while it is available.
    reason: Mutex<String>,
    /// Index of the Sentinel that is queried first: the last that named a reachable primary.
    first_sentinel: AtomicUsize,
    /// The connections for decisions.
    connections: [tokio::sync::Mutex<Option<Connection>>; CONNECTIONS_MAX],
}

impl Node {
    fn new(address: Option<(String, u16)>) -> Arc<Self> {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        Arc::new(Self {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            address,
            is_available: AtomicBool::new(true),
            outages: AtomicU64::new(0),
            without_response: AtomicU32::new(0),
            has_logged_loss: AtomicBool::new(false),
            has_logged_damage: AtomicBool::new(false),
            has_logged_clocks: AtomicBool::new(false),
            reason: Mutex::new(String::new()),
            first_sentinel: AtomicUsize::new(0),
            connections: Default::default(),
        })
    }

    /// The connection of the worker with this number. Workers beyond [`CONNECTIONS_MAX`] share connections.
    pub(super) fn connection_of(&self, worker: usize) -> &tokio::sync::Mutex<Option<Connection>> {
        &self.connections[worker % CONNECTIONS_MAX]
    }

    /// Index of the Sentinel that is queried first.
    pub(super) fn first_sentinel(&self) -> usize {
        self.first_sentinel.load(Ordering::Relaxed)
    }

    /// Has another Sentinel queried first. False if the first was changed meanwhile.
    pub(super) fn begin_with_sentinel(&self, index: usize, first: usize) -> bool {
        self.first_sentinel.compare_exchange(first, index, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Whether calls are sent to it.
    pub(super) fn is_available(&self) -> bool {
        self.is_available.load(Ordering::Relaxed)
    }

    /// Number of times that it became unavailable.
    pub(super) fn outages(&self) -> u64 {
        self.outages.load(Ordering::Relaxed)
    }

    /// Whether the connection was made since its last outage.
    pub(super) fn is_of_present(&self, connection: &Connection) -> bool {
        connection.outages == self.outages()
    }

    /// Marks it as unavailable. False if it already was.
    pub(super) fn fail(&self) -> bool {
        let was_available = self.is_available.swap(false, Ordering::Relaxed);
        self.outages.fetch_add(u64::from(was_available), Ordering::Relaxed);
        was_available
    }

    /// Notes the reason of a failure. False if it is the same as the last.
    pub(super) fn fails_for(&self, reason: String) -> bool {
        let mut last = self.reason.lock();
        let is_other = *last != reason;
        *last = reason;
        is_other
    }

    /// Marks it as available. False if it already was.
    pub(super) fn recover(&self) -> bool {
        self.responded();
        self.reason.lock().clear();
        !self.is_available.swap(true, Ordering::Relaxed)
    }

    /// Counts calls that were sent and had no response. Returns how many there were in a row.
    pub(super) fn no_response(&self, calls: usize) -> u32 {
        let calls = u32::try_from(calls).unwrap_or(u32::MAX);
        self.without_response.fetch_add(calls, Ordering::Relaxed).saturating_add(calls)
    }

    pub(super) fn responded(&self) {
        if self.without_response.load(Ordering::Relaxed) > 0 {
            self.without_response.store(0, Ordering::Relaxed);
        }
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.address {
            Some((host, port)) => write!(f, "{host}:{port}"),
            None => f.write_str("the store"),
        }
    }
}

/// All nodes, and the node of each group of counters.
pub(super) struct Nodes {
    now: ArcSwap<Topology>,
    /// The nodes of a cluster that are in the topology or have links. Locked while the topology is replaced.
    known: Mutex<Known>,
}

/// The nodes at one moment.
pub(super) struct Topology {
    pub(super) nodes: Vec<Arc<Node>>,
    /// Indices of `nodes`, by group; none if one node has all groups.
    owners: Option<Vec<Option<u16>>>,
}

impl Topology {
    /// The node that has a group; none if its hash slot has no node.
    pub(super) fn of(&self, group: u16) -> Option<&Arc<Node>> {
        match &self.owners {
            None => self.nodes.first(),
            Some(owners) => self.nodes.get(usize::from((*owners.get(usize::from(group))?)?)),
        }
    }

    /// Whether the node is in it.
    pub(super) fn has(&self, node: &Node) -> bool {
        self.nodes.iter().any(|known| known.number == node.number)
    }

    /// A group that the node has.
    pub(super) fn group_of(&self, node: &Node) -> Option<u16> {
        let Some(owners) = &self.owners else { return Some(0) };
        let is_owner = |owner: &Option<u16>| {
            owner.is_some_and(|owner| self.nodes[usize::from(owner)].number == node.number)
        };
        owners.iter().position(is_owner).and_then(|group| u16::try_from(group).ok())
    }
}

/// Nodes by their addresses, for as long as they are in use.
///
/// While a hash slot is being moved to a node that has no other, the node enters the topology with each redirection and leaves it with each
/// map. It has to be the same node each time, because each new one has new connections.
#[derive(Default)]
struct Known(Vec<Weak<Node>>);

impl Known {
    /// The node at this address, which may be a new one.
    fn at(&mut self, address: (String, u16)) -> Arc<Node> {
        self.0.retain(|node| node.strong_count() > 0);
        let is_at = |node: &Arc<Node>| node.address.as_ref() == Some(&address);
        self.0.iter().filter_map(Weak::upgrade).find(is_at).unwrap_or_else(|| {
            let node = Node::new(Some(address));
            self.0.push(Arc::downgrade(&node));
            node
        })
    }
}

impl Nodes {
    /// One store.
    pub(super) fn one() -> Self {
        let topology = Topology { nodes: vec![Node::new(None)], owners: None };
        Self { now: ArcSwap::from_pointee(topology), known: Mutex::default() }
    }

    /// The nodes of a cluster.
    pub(super) fn cluster(map: HashSlots) -> Self {
        let nodes = Self::unknown_cluster();
        nodes.update(map);
        nodes
    }

    /// A cluster without known nodes.
    pub(super) fn unknown_cluster() -> Self {
        let topology = Topology { nodes: Vec::new(), owners: Some(vec![None; usize::from(GROUPS)]) };
        Self { now: ArcSwap::from_pointee(topology), known: Mutex::default() }
    }

    /// The current topology.
    pub(super) fn now(&self) -> Arc<Topology> {
        Arc::clone(&self.now.load())
    }

    /// The node that has a group.
    pub(super) fn of(&self, group: u16) -> Option<Arc<Node>> {
        self.now.load().of(group).cloned()
    }

    /// Whether every node is available.
    pub(super) fn are_available(&self) -> bool {
        self.now.load().nodes.iter().all(|node| node.is_available())
    }

    /// Applies a new map. Nodes that are in both, or still have links, keep their state.
    pub(super) fn update(&self, map: HashSlots) {
        let mut known = self.known.lock();
        let nodes = map.nodes.into_iter().map(|address| known.at(address)).collect();
        self.now.store(Arc::new(Topology { nodes, owners: Some(map.owners) }));
    }

    /// The node at this address, which may be a new one. If `group` is given, the node has this group now.
    pub(super) fn at(&self, address: (String, u16), group: Option<u16>) -> Arc<Node> {
        let mut known = self.known.lock();
        let node = known.at(address);
        let before = self.now();
        let mut nodes = before.nodes.clone();
        let index = nodes.iter().position(|known| known.number == node.number).unwrap_or_else(|| {
            // The keeper reaches no nodes outside the topology.
            node.recover();
            nodes.push(Arc::clone(&node));
            nodes.len() - 1
        });
        let mut owners = before.owners.clone();
        if let (Some(owners), Some(group)) = (&mut owners, group) {
            owners[usize::from(group)] = u16::try_from(index).ok();
        }
        self.now.store(Arc::new(Topology { nodes, owners }));
        node
    }
}

/// The address of a node, with the user, the password and the certificates of the cluster's first address.
pub(super) fn of_cluster(seed: &ConnectionInfo, (host, port): &(String, u16)) -> ConnectionInfo {
    use redis::ConnectionAddr::{Tcp, TcpTls};
    let address = match seed.addr() {
        TcpTls { insecure, tls_params, .. } => {
            let (insecure, tls_params) = (*insecure, tls_params.clone());
            TcpTls { host: host.clone(), port: *port, insecure, tls_params }
        }
        _ => Tcp(host.clone(), *port),
    };
    seed.clone().set_addr(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> (String, u16) {
        ("127.0.0.1".to_owned(), port)
    }

    /// A map in which the first of the nodes on these ports has all groups.
    fn map(ports: &[u16]) -> HashSlots {
        let nodes = ports.iter().map(|port| address(*port)).collect();
        HashSlots { nodes, owners: vec![Some(0); usize::from(GROUPS)] }
    }

    /// Each redirection to the new node of a moving hash slot made another node, with a connection of each worker.
    #[test]
    fn a_node_in_use_is_the_same_after_it_has_left_the_topology() {
        let nodes = Nodes::cluster(map(&[1]));
        let target = nodes.at(address(2), None);
        target.fail();
        for _ in 0..3 {
            nodes.update(map(&[1]));
            assert!(!nodes.now().has(&target));
            let again = nodes.at(address(2), None);
            assert_eq!((again.number, again.is_available()), (target.number, true));
            assert!(nodes.now().has(&target));
        }
        nodes.update(map(&[1, 2]));
        assert!(nodes.now().has(&target), "the hash slot has moved");

        // Without links.
        nodes.update(map(&[1]));
        let number = target.number;
        drop(target);
        assert_ne!(nodes.at(address(2), None).number, number);
        assert_eq!(nodes.known.lock().0.len(), 2);
    }
}
