//! How streams share buckets.

/// Streams, and buckets of each.
pub(super) const STREAMS: u64 = 10_000;
pub(super) const BUCKETS: u64 = 100;

/// Requests of a stream for a bucket in a second, on average.
pub(super) const DEMAND: u64 = 10;

/// So many streams report the same buckets.
pub(super) struct Sharing {
    pub(super) name: &'static str,
    pub(super) streams: u64,
}

/// All streams the same hundred buckets, as a fleet of gateways does; groups of ten, as the replicas of a service; and each its own.
pub(super) const SHARINGS: [Sharing; 3] = [
    Sharing { name: "all", streams: STREAMS },
    Sharing { name: "ten", streams: 10 },
    Sharing { name: "own", streams: 1 },
];

impl Sharing {
    /// The number of a bucket of a stream, in all streams. Those that share it report one after the other in equal intervals.
    pub(super) fn bucket(&self, stream: u64, bucket: u64) -> u64 {
        stream % (STREAMS / self.streams) * BUCKETS + bucket
    }

    /// Half of the buckets with even numbers have more demand than their limit, others less.
    pub(super) fn rules(&self) -> String {
        let limit = |percent: u64| self.streams * DEMAND * percent / 100;
        let rule = |key: &str, percent: u64| {
            let limit = limit(percent);
            let limit = format!("{{ unit: second, requests_per_unit: {limit}, algorithm: token_bucket }}");
            format!("- {{ key: plan, value: {key}, descriptors: [{{ key: api_key, rate_limit: {limit} }}] }}")
        };
        let rules = [rule("free", 60), rule("paid", 150)].join("\n");
        format!("domain: edge\nrlqs: {{ min_use: 1% }}\ndescriptors:\n{rules}\n")
    }
}
