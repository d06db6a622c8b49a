//! A queue in which peers with jobs take turns: a peer with many jobs delays each of the others by one job.

use std::collections::{HashMap, VecDeque};
use tidegate_transport::Peer;

pub(super) struct FairQueue<T> {
    of_peer: HashMap<Peer, VecDeque<T>>,
    /// The peers with jobs, in the order of their turns.
    turns: VecDeque<Peer>,
    length: usize,
}

impl<T> FairQueue<T> {
    pub(super) fn new() -> Self {
        Self { of_peer: HashMap::new(), turns: VecDeque::new(), length: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.length
    }

    pub(super) fn push(&mut self, peer: Peer, job: T) {
        let jobs = self.of_peer.entry(peer).or_default();
        if jobs.is_empty() {
            self.turns.push_back(peer);
        }
        jobs.push_back(job);
        self.length += 1;
    }

    /// The oldest job of the next peer.
    pub(super) fn pop(&mut self) -> Option<T> {
        let peer = self.turns.pop_front()?;
        let job = self.take(peer);
        if self.of_peer.contains_key(&peer) {
            self.turns.push_back(peer);
        }
        job
    }

    /// The oldest job of the peer with the most.
    pub(super) fn pop_of_most(&mut self) -> Option<T> {
        let (&peer, _) = self.of_peer.iter().max_by_key(|(_, jobs)| jobs.len())?;
        let job = self.take(peer);
        if !self.of_peer.contains_key(&peer) {
            self.turns.retain(|other| *other != peer);
        }
        job
    }

    fn take(&mut self, peer: Peer) -> Option<T> {
        let jobs = self.of_peer.get_mut(&peer)?;
        let job = jobs.pop_front();
        if jobs.is_empty() {
            self.of_peer.remove(&peer);
        }
        self.length -= usize::from(job.is_some());
        job
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2,000 ClientHellos per second of one address delayed those of others by 3 s.
    #[test]
    fn a_peer_with_many_jobs_delays_another_by_one() {
        let [flood, other] = [1, 2].map(Peer::User);
        let mut queue = FairQueue::new();
        (0..1_000).for_each(|number| queue.push(flood, number));
        queue.push(other, 9_999);
        assert_eq!([queue.pop(), queue.pop(), queue.pop()], [Some(0), Some(9_999), Some(1)]);
        queue.push(other, 8_888);
        assert_eq!((queue.pop_of_most(), queue.len()), (Some(2), 998));
        let rest: Vec<i32> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!((rest.len(), rest.contains(&8_888), queue.len()), (998, true, 0));
        queue.push(flood, 1);
        assert_eq!((queue.pop_of_most(), queue.pop()), (Some(1), None));
    }
}
