//! The streams: what they report, and when.

use super::{
    START,
    sharing::{BUCKETS, DEMAND, STREAMS, Sharing},
};
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use tidegate_core::{
    clock::{Clock as _, ManualClock},
    limit::Timestamp,
};
use tidegate_service::{BucketName, BucketReport, QuotaPeer, QuotaStream, Quotas, Receipt};
use tidegate_shared::quota::Usage;

/// Time between two reports of a stream.
const INTERVAL: Duration = Duration::from_secs(5);

/// Time from sending to the confirmation that a client acts on it.
const CONFIRMED_AFTER: Duration = Duration::from_millis(500);

/// The most looks until a report is taken in.
const LOOKS_MAX: u64 = 100_000_000;

/// Streams of each peer.
const STREAMS_OF_PEER: u64 = 100;

pub(super) struct Load<'s> {
    sharing: &'s Sharing,
    clock: Arc<ManualClock>,
    streams: Vec<Rc<QuotaStream>>,
    receipts: Rc<RefCell<VecDeque<(Timestamp, Receipt)>>>,
    quotas: Quotas,
    /// Rounds of reports so far.
    rounds: Cell<u64>,
}

impl<'s> Load<'s> {
    /// Streams that are open, after the time in which assignments of a former process may be in force.
    pub(super) fn new(sharing: &'s Sharing, quotas: &Quotas, clock: &Arc<ManualClock>) -> Self {
        let open = |stream: u64| {
            let address = format!("10.0.0.{}", stream / STREAMS_OF_PEER);
            let peer = QuotaPeer { address: address.into(), ..QuotaPeer::default() };
            Rc::new(quotas.open("edge", peer))
        };
        let (clock, receipts) = (Arc::clone(clock), Rc::default());
        Self {
            sharing,
            clock,
            streams: (0..STREAMS).map(open).collect(),
            receipts,
            quotas: quotas.clone(),
            rounds: Cell::new(0),
        }
    }

    /// All streams report so many times, one after the other.
    pub(super) async fn rounds(&self, rounds: u64) {
        let first = self.rounds.get();
        if first == 0 {
            // Reads what is sent to a stream.
            for stream in &self.streams {
                let (stream, clock) = (Rc::clone(stream), Arc::clone(&self.clock));
                let receipts = Rc::clone(&self.receipts);
                tokio::task::spawn_local(async move {
                    while let Ok((_, until)) = stream.outbox.next(|| clock.now()).await {
                        let due = clock.now().saturating_add(CONFIRMED_AFTER);
                        receipts.borrow_mut().push_back((due, stream.receipt(until)));
                    }
                });
            }
        }
        for round in first..first + rounds {
            let begins = START.saturating_add(Duration::from_secs(60) + INTERVAL * round as u32);
            for (number, stream) in (0..).zip(&self.streams) {
                self.clock.advance_to(begins.saturating_add(INTERVAL * number / STREAMS as u32));
                self.confirm();
                let reports = (0..BUCKETS).map(|bucket| self.report(round, number.into(), bucket));
                stream.report(reports.collect(), 0).await;
                // 2,000 reports in a second find the thread idle.
                let taken_in = (round * STREAMS + u64::from(number) + 1) * BUCKETS;
                let is_taken_in = |_: &u64| {
                    std::thread::yield_now();
                    self.quotas.figures().reports >= taken_in
                };
                (0..LOOKS_MAX).find(is_taken_in).expect("a stream that reports stays open");
            }
        }
        self.rounds.set(first + rounds);
    }

    fn confirm(&self) {
        let (mut receipts, now) = (self.receipts.borrow_mut(), self.clock.now());
        while let Some((_, receipt)) = receipts.pop_front_if(|(due, _)| *due <= now) {
            receipt.confirm();
        }
        // The server has one for each stream.
        receipts.shrink_to(2 * STREAMS as usize);
    }

    /// Requests since the report before: nearly as many as in the round before, and in one of eight rounds twice as many.
    fn report(&self, round: u64, stream: u64, bucket: u64) -> BucketReport {
        let number = self.sharing.bucket(stream, bucket);
        let plan = if number.is_multiple_of(2) { "free" } else { "paid" };
        let bucket = BucketName::new([("plan", plan), ("api_key", &*format!("{number:08}"))]);
        let random = mixed(stream << 40 | number << 8 | round);
        let mean = DEMAND * INTERVAL.as_secs();
        let requests = mean - mean / 8 + random % (mean / 4) + if random >> 61 == 0 { mean } else { 0 };
        let denied = if plan == "free" { requests * 4 / 10 } else { 0 };
        let usage = Usage { allowed: requests - denied, denied, is_first: round == 0 };
        BucketReport { bucket, usage }
    }
}

/// A number that looks random.
fn mixed(number: u64) -> u64 {
    let mixed = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}
