//! Lines about assignments of clients of quotas, which enforce limits by themselves.

use super::line::{Entry, Place, Run, Values, append_named, entry};
use parking_lot::Mutex;
use serde::Serialize;
use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};
use tidegate_service::{Assignment, AssignmentEvent};

/// Memory of an assignment, about. Its texts are shared with the stream.
const BYTES: usize = 128;

/// Assignments whose lines are not written yet.
pub(super) struct Assignments {
    unwritten: Mutex<Vec<AssignmentEvent>>,
    max: usize,
    dropped: AtomicU64,
}

impl Assignments {
    /// Room for this many bytes of assignments.
    pub(super) fn new(bytes: usize) -> Self {
        let max = (bytes / BYTES).max(1);
        Self { unwritten: Mutex::default(), max, dropped: AtomicU64::new(0) }
    }

    /// Adds an assignment, unless there is no room.
    pub(super) fn add(&self, event: AssignmentEvent) {
        let mut unwritten = self.unwritten.lock();
        if unwritten.len() < self.max {
            unwritten.push(event);
        } else {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn take(&self) -> Vec<AssignmentEvent> {
        std::mem::take(&mut self.unwritten.lock())
    }

    /// Number of assignments for which there was no room.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

#[derive(Serialize)]
struct AssignmentFields<'e> {
    domain: &'e str,
    bucket: Vec<Entry<'e>>,
    stream: u64,
    #[serde(skip_serializing_if = "str::is_empty")]
    peer: &'e str,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    names: &'e [String],
    kind: &'static str,
    #[serde(flatten)]
    tokens: Option<Tokens>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl_ns: Option<u64>,
    sample: f64,
}

#[derive(Serialize)]
struct Tokens {
    max_tokens: u32,
    tokens_per_fill: u32,
    fill_interval_ns: u64,
}

/// Appends the line of an assignment.
pub(super) fn assignment(
    event: &AssignmentEvent,
    values: &Values<'_>,
    (run, sample): (Run, f64),
    out: &mut Vec<u8>,
) {
    let AssignmentEvent { sent, domain, stream, peer, bucket, assignment } = event;
    let redaction = values.of_domain(domain);
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let (kind, tokens) = match *assignment {
        Assignment::Tokens { max_tokens, tokens_per_fill, fill_interval } => {
            // Without the nanoseconds, which are the number of the assignment.
            let fill_interval_ns = nanos(Duration::from_secs(fill_interval.as_secs()));
            ("tokens", Some(Tokens { max_tokens, tokens_per_fill, fill_interval_ns }))
        }
        Assignment::AllowAll => ("allow_all", None),
        Assignment::DenyAll => ("deny_all", None),
        Assignment::Abandon => ("abandon", None),
    };
    let assignment = AssignmentFields {
        domain,
        bucket: bucket.entries().map(|of| entry(of.key, of.value, redaction(of.key), values.salt)).collect(),
        stream: *stream,
        peer: &peer.address,
        names: &peer.names,
        kind,
        tokens,
        ttl_ns: assignment.ttl().map(nanos),
        sample,
    };
    append_named(sent.as_nanos(), Place::Run(run), ("assignment", assignment), out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::{limit::Timestamp, rules::Redaction};
    use tidegate_service::{BucketName, QuotaPeer};

    fn event(assignment: Assignment) -> AssignmentEvent {
        AssignmentEvent {
            sent: Timestamp::from_millis(1_500),
            domain: "shop".into(),
            stream: 3,
            peer: QuotaPeer { address: "192.0.2.1".into(), names: [].into() },
            bucket: BucketName::new([("user", "ada")]),
            assignment,
        }
    }

    #[test]
    fn a_line_has_what_the_client_obeys_and_redacts_values() {
        let fill_interval = Duration::new(1, 7);
        let tokens = Assignment::Tokens { max_tokens: 25, tokens_per_fill: 40, fill_interval };
        let of = |redaction, assignment| {
            let (values, mut out) = (Values { rules: None, default: redaction, salt: b"" }, Vec::new());
            let run = super::super::line::Hex([1; 8]);
            super::assignment(&event(assignment), &values, (run, 0.5), &mut out);
            String::from_utf8(out).expect("UTF-8")
        };
        let expected = r#"{"v":2,"time":"1970-01-01T00:00:01.500000000Z","run":"0101010101010101","assignment":{"domain":"shop","bucket":[{"key":"user","value":"ada"}],"stream":3,"peer":"192.0.2.1","kind":"tokens","max_tokens":25,"tokens_per_fill":40,"fill_interval_ns":1000000000,"ttl_ns":15000000000,"sample":0.5}}"#;
        assert_eq!(of(Redaction::Plain, tokens).trim_end(), expected);
        let abandoned = of(Redaction::Omit, Assignment::Abandon);
        assert!(abandoned.contains(r#""bucket":[{"key":"user"}],"#), "{abandoned}");
        assert!(abandoned.trim_end().ends_with(r#""kind":"abandon","sample":0.5}}"#), "{abandoned}");
    }

    #[test]
    fn what_there_is_no_room_for_is_counted() {
        let assignments = Assignments::new(2 * BYTES);
        (0..5).for_each(|_| assignments.add(event(Assignment::Abandon)));
        assert_eq!((assignments.take().len(), assignments.dropped()), (2, 3));
        assignments.add(event(Assignment::Abandon));
        assert_eq!((assignments.take().len(), assignments.dropped()), (1, 3));
    }
}
