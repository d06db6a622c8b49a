//! Requests of many clients, the same in each run: few of them send most requests, as by Zipf's law.

use smallvec::SmallVec;
use tidegate_core::limit::{Descriptor, Entry, Hits, Request, Timestamp};

/// 2026-03-01T12:00:00Z.
const START_NANOS: u64 = 1_772_366_400_000_000_000;
/// The mean time between two requests: 2,778 a second, ten million in an hour.
const MEAN_NANOS: u64 = 360_000;
/// There are two to this power clients.
const CLIENT_BITS: u64 = 18;

/// The requests.
pub(crate) struct Traffic {
    random: u64,
    now: u64,
}

/// One request.
pub(crate) struct Event {
    pub(crate) time: Timestamp,
    pub(crate) client: u64,
    /// The address of the client.
    pub(crate) address: String,
    /// Keys and values by descriptor.
    descriptors: SmallVec<[Entries; 2]>,
    hits: Hits,
}

type Entries = SmallVec<[(&'static str, String); 2]>;

impl Traffic {
    pub(crate) fn new() -> Self {
        Self { random: 1, now: START_NANOS }
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.now)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % bound
    }

    /// A client. Twice as many of them send half as many requests each.
    fn client(&mut self) -> u64 {
        let least = 1 << self.below(CLIENT_BITS);
        least + self.below(least)
    }

    pub(crate) fn next(&mut self) -> Event {
        self.now += 1 + self.below(2 * MEAN_NANOS);
        let client = self.client();
        let address = format!("10.{}.{}.{}", client >> 16, (client >> 8) & 255, client & 255);
        let user = |client: u64| [("user", format!("u-{client:06}"))].into_iter().collect::<Entries>();
        let with_address = |key, value: &str| {
            [(key, value.to_owned()), ("remote_address", address.clone())].into_iter().collect::<Entries>()
        };
        let mut descriptors = SmallVec::new();
        match self.below(10) {
            0..4 => descriptors.push(user(client)),
            4..7 => {
                let plan = if client.is_multiple_of(4) { "paid" } else { "free" };
                descriptors.push(with_address("plan", plan));
                descriptors.push(user(client));
            }
            7 => descriptors.push(with_address("path", "/v1/login")),
            8 => {
                let key = client.wrapping_mul(0x9E37_79B9_7F4A_7C15);
                descriptors.push([("api_key", format!("{key:016x}{client:016x}"))].into_iter().collect());
            }
            _ => {
                let tenant = ("tenant", format!("t-{}", client % 4_096));
                descriptors.push([tenant].into_iter().collect());
            }
        }
        let hits = match self.below(16) {
            0 => Hits::Take((2 + self.below(4)).try_into().expect("at least two")),
            _ => Hits::ONE,
        };
        Event { time: self.now(), client, address, descriptors, hits }
    }
}

impl Event {
    pub(crate) fn request(&self) -> Request<'_> {
        let mut request = Request::new("edge");
        for entries in &self.descriptors {
            let entries = entries.iter().map(|(key, value)| Entry { key, value }).collect();
            request.push(Descriptor { entries, limit: None, hits: self.hits });
        }
        request
    }
}
