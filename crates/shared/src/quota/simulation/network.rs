//! The network between a server and clients: messages on their way, and their receipt.

use super::{
    super::{Push, Reporter, RuleId, StreamId, Usage},
    client::SECOND,
    conditions::Conditions,
    fault::Fault,
    world::{World, request},
};
use crate::PeerId;
use std::cmp::Reverse;
use tidegate_core::limit::Timestamp;

const RULE: RuleId = RuleId(1);

#[derive(Clone, Copy, Debug)]
pub(super) enum Message {
    Report {
        stream: StreamId,
        usage: Usage,
    },
    Push {
        client: usize,
        push: Push,
    },
    Acknowledgement {
        stream: StreamId,
        sent: u64,
    },
    /// The server notices that a stream has ended.
    Closed {
        stream: StreamId,
    },
    /// The client notices that its stream has ended.
    Broken {
        client: usize,
        stream: StreamId,
    },
}

/// A stream that carries messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub(super) client: usize,
    pub(super) peer: u64,
    /// Times at which the last message each way is received.
    pub(super) up: u64,
    pub(super) down: u64,
}

impl World {
    /// Ends the messages on the stream of a client. Each side notices after a time.
    pub(super) fn cut(&mut self, client: usize, client_notices: u64, server_notices: u64) {
        let Some(stream) = self.clients[client].stream else { return };
        self.links.remove(&stream);
        self.post(self.now + client_notices, Message::Broken { client, stream });
        self.post(self.now + server_notices, Message::Closed { stream });
    }

    pub(super) fn post(&mut self, at: u64, message: Message) {
        self.sent += 1;
        self.messages.insert((at, Reverse(u64::MAX - self.sent)), message);
    }

    pub(super) fn deliver(&mut self) {
        while let Some(entry) = self.messages.first_entry().filter(|entry| entry.key().0 <= self.now) {
            let message = entry.remove();
            self.receive(message);
        }
    }

    fn receive(&mut self, message: Message) {
        let now = Timestamp::from_nanos(self.now);
        match message {
            Message::Report { stream, usage } if self.links.contains_key(&stream) => {
                if self.happens_once_in_reports() {
                    return;
                }
                let rules = self.limiter.pin();
                let request = request();
                let charges = rules.grantable(&request).expect("a rule that is divided");
                let charge = charges[0].as_ref().expect("a limit");
                let Conditions { share_max, unrecorded, .. } = self.conditions;
                let peer = PeerId(self.links[&stream].peer);
                let reporter = Reporter { stream, place: 0, peer, share_max, rule: RULE, unrecorded };
                self.quota.report(&rules, reporter, charge, usage, now).expect("a limit that is divided");
            }
            Message::Push { client, push } if self.links.contains_key(&push.stream) => {
                self.clients[client].act(push.assignment, self.now);
            }
            Message::Acknowledgement { stream, sent } if self.links.contains_key(&stream) => {
                self.quota.acknowledge(stream, Timestamp::from_nanos(sent), now);
            }
            Message::Closed { stream } => {
                self.quota.close(stream);
                if self.conditions.fault == Some(Fault::ForgetsClosed) {
                    self.quota.forget_remnants();
                }
            }
            Message::Broken { client, stream } if self.clients[client].stream == Some(stream) => {
                self.clients[client].stream = None;
            }
            _ => {}
        }
    }

    fn happens_once_in_reports(&mut self) -> bool {
        let gap = self.conditions.lost_report_gap;
        gap > 0 && self.rng.once_in(gap / SECOND * 2)
    }

    pub(super) fn report_now(&mut self, index: usize) {
        let Some(usage) = self.clients[index].report() else { return };
        let usage = self.hostility(index).map_or(usage, |hostility| hostility.report(usage, self.now));
        let Some(stream) = self.clients[index].stream else { return };
        let delay = self.rng.below(self.conditions.delay_max);
        let Some(link) = self.links.get_mut(&stream) else { return };
        link.up = link.up.max(self.now + delay);
        let at = link.up;
        self.post(at, Message::Report { stream, usage });
    }

    pub(super) fn poll(&mut self) {
        let now = Timestamp::from_nanos(self.now);
        self.record(now);
        let rules = self.limiter.pin();
        let pushes = self.quota.poll(&rules, now);
        drop(rules);
        self.pushes += pushes.len() as u64;
        for push in pushes {
            let (down, up) =
                (self.rng.below(self.conditions.delay_max), self.rng.below(self.conditions.delay_max));
            let Some(link) = self.links.get_mut(&push.stream) else { continue };
            link.down = link.down.max(self.now + down);
            let (client, at) = (link.client, link.down);
            self.post(at, Message::Push { client, push });
            if self.conditions.acknowledges {
                let stream = push.stream;
                self.post(at + up, Message::Acknowledgement { stream, sent: self.now });
            }
        }
        if self.conditions.fault == Some(Fault::ForgetsDebt) {
            self.quota.forget_debts();
        }
        if self.conditions.fault == Some(Fault::GrowsAtOnce) {
            self.quota.forget_former_shares();
        }
        if self.conditions.fault == Some(Fault::HoldsNothing) {
            let rules = self.limiter.pin();
            let request = request();
            let charges = rules.grantable(&request).expect("a rule that is divided");
            let key = charges[0].as_ref().expect("a limit").key();
            rules.with_leases(key, Timestamp::from_nanos(self.now), |_, leased| leased.assigned = None);
        }
    }
}
