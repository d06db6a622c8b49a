//! A decision as bytes, passed from the deciding thread to the writing thread. Encoded without allocation, decoded without copies.
//!
//! The bytes never leave the process. All numbers are in native order. A text is preceded by its length.

use std::num::NonZeroU64;
use tidegate_core::limit::{BanPhase, Code, DenialCause, Hits, Reset, Status, Unit};
use tidegate_service::{Cancellation, Event, TraceContext};

/// Upper bound of the bytes of a record's fixed part, and of a descriptor, an entry or a text without its content.
const FIXED_BYTES: usize = 96;

/// A decision. Without descriptors, it is the end of an admitted request whose client reset the call.
#[derive(PartialEq, Debug)]
pub(crate) struct Record<'b> {
    /// See [`Decision::number`](tidegate_core::limit::Decision::number).
    pub(crate) number: u64,
    /// Number of the rules that decided it.
    pub(crate) generation: u64,
    /// Whether the hits were already used: see [`Request::is_report`](tidegate_core::limit::Request::is_report).
    pub(crate) is_report: bool,
    /// Nanoseconds since the Unix epoch.
    pub(crate) received: u64,
    /// Nanoseconds from receipt to the response.
    pub(crate) latency: u64,
    pub(crate) code: Code,
    /// The rate at which such decisions are logged.
    pub(crate) sample: f64,
    pub(crate) trace: Option<TraceContext>,
    pub(crate) peer: &'b str,
    pub(crate) domain: &'b str,
    /// The ticket of an admitted request; empty if it has none.
    pub(crate) ticket: &'b str,
    pub(crate) descriptors: Vec<DescriptorRecord<'b>>,
}

/// A descriptor with its status.
#[derive(PartialEq, Debug)]
pub(crate) struct DescriptorRecord<'b> {
    pub(crate) entries: Vec<(&'b str, &'b str)>,
    pub(crate) hits: Hits,
    /// The limit that the request contains.
    pub(crate) own_limit: Option<(u32, Unit)>,
    pub(crate) code: Code,
    pub(crate) ban: BanPhase,
    /// The cause of its denial, if not its limit.
    pub(crate) cause: Option<DenialCause>,
    pub(crate) remaining: u32,
    pub(crate) reset: Option<Reset>,
    pub(crate) limit: Option<LimitRecord<'b>>,
}

/// The limit of a status.
#[derive(PartialEq, Debug)]
pub(crate) struct LimitRecord<'b> {
    /// Empty if it has none.
    pub(crate) name: &'b str,
    pub(crate) requests: u32,
    /// Nanoseconds.
    pub(crate) window: u64,
    /// The path of the rule; empty for a limit of the request.
    pub(crate) rule: &'b str,
}

/// An upper bound of the bytes that [`encode`] appends.
pub(crate) fn bytes_max(event: &Event<'_, '_, '_>) -> usize {
    let of_descriptors: usize = event
        .request
        .descriptors()
        .iter()
        .map(|descriptor| {
            let texts = descriptor.entries.iter().map(|entry| entry.key.len() + entry.value.len() + 8);
            FIXED_BYTES + texts.sum::<usize>()
        })
        .sum();
    let of_limits: usize = event
        .decision
        .statuses
        .iter()
        .map(|status| {
            status.limit.map_or(0, |limit| limit.name.len()) + status.rule.map_or(0, |rule| rule.path.len())
        })
        .sum();
    let of_call = event.origin.peer.len() + event.request.domain().len() + ticket(event).len();
    FIXED_BYTES + of_call + of_descriptors + of_limits
}

/// An upper bound of the bytes that [`encode_cancellation`] appends.
pub(crate) fn cancellation_bytes_max(cancellation: &Cancellation<'_>) -> usize {
    FIXED_BYTES + cancellation.domain.len() + cancellation.ticket.len()
}

/// The ticket of the slots and estimates that a request holds; empty if it has none.
fn ticket<'e>(event: &'e Event<'_, '_, '_>) -> &'e str {
    event.decision.slot.as_ref().map_or("", |slot| &slot.ticket)
}

/// Appends the record of an event with this number. Its length precedes it.
pub(crate) fn encode(event: &Event<'_, '_, '_>, number: u64, sample: f64, out: &mut Vec<u8>) {
    let start = begin(out, (number, event.generation, event.request.is_report()));
    u64(event.received.as_nanos(), out);
    u64(u64::try_from(event.elapsed().as_nanos()).unwrap_or(u64::MAX), out);
    out.push(code(event.decision.code));
    u64(sample.to_bits(), out);
    match event.origin.trace {
        None => out.push(0),
        Some(trace) => {
            out.push(1 + u8::from(trace.is_sampled));
            out.extend_from_slice(&trace.trace_id);
            out.extend_from_slice(&trace.span_id);
        }
    }
    text(event.origin.peer, out);
    text(event.request.domain(), out);
    text(ticket(event), out);
    let descriptors = event.request.descriptors();
    u32(descriptors.len() as u32, out);
    for (descriptor, status) in descriptors.iter().zip(&event.decision.statuses) {
        u32(descriptor.entries.len() as u32, out);
        for entry in &descriptor.entries {
            text(entry.key, out);
            text(entry.value, out);
        }
        let (kind, number) = match descriptor.hits {
            Hits::Peek => (0, 0),
            Hits::Take(hits) => (1, hits.get()),
            Hits::GiveBack(hits) => (2, hits.get()),
        };
        out.push(kind);
        u64(number, out);
        match descriptor.limit {
            None => out.push(u8::MAX),
            Some(own) => {
                out.push(Unit::ALL.iter().position(|unit| *unit == own.unit).map_or(u8::MAX, |at| at as u8));
                u32(own.requests, out);
            }
        }
        encode_status(status, event.decision.cause(status), out);
    }
    end(start, out);
}

/// Appends the record of a cancellation. Its length precedes it.
pub(crate) fn encode_cancellation(cancellation: &Cancellation<'_>, out: &mut Vec<u8>) {
    let Cancellation { domain, ticket, at, number, generation } = *cancellation;
    let start = begin(out, (number, generation, false));
    u64(at.as_nanos(), out);
    u64(0, out);
    out.push(code(Code::Ok));
    u64(1.0_f64.to_bits(), out);
    // It has no trace and no peer.
    out.push(0);
    text("", out);
    text(domain, out);
    text(ticket, out);
    u32(0, out);
    end(start, out);
}

/// Begins a record. Returns its position.
fn begin(out: &mut Vec<u8>, (number, generation, is_report): (u64, u64, bool)) -> usize {
    let start = out.len();
    // Room for the length.
    u32(0, out);
    u64(number, out);
    u64(generation, out);
    out.push(is_report.into());
    start
}

fn end(start: usize, out: &mut [u8]) {
    let bytes = (out.len() - start - 4) as u32;
    out[start..start + 4].copy_from_slice(&bytes.to_ne_bytes());
}

fn encode_status(status: &Status<'_>, cause: Option<DenialCause>, out: &mut Vec<u8>) {
    out.push(code(status.code));
    out.push(match status.ban {
        BanPhase::None => 0,
        BanPhase::Begins => 1,
        BanPhase::InForce => 2,
    });
    out.push(match cause {
        None => 0,
        Some(DenialCause::CountersFull) => 1,
        Some(DenialCause::StoreAway) => 2,
    });
    u32(status.remaining, out);
    match status.reset {
        None => out.push(0),
        Some(Reset::Never) => out.push(1),
        Some(Reset::After(wait)) => {
            out.push(2);
            u64(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX), out);
        }
    }
    match status.limit {
        None => out.push(0),
        Some(limit) => {
            out.push(1);
            text(limit.name, out);
            u32(limit.requests, out);
            u64(limit.window.nanos().get(), out);
            text(status.rule.map_or("", |rule| &rule.path), out);
        }
    }
}

fn u32(number: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(&number.to_ne_bytes());
}

fn u64(number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&number.to_ne_bytes());
}

fn text(text: &str, out: &mut Vec<u8>) {
    u32(text.len() as u32, out);
    out.extend_from_slice(text.as_bytes());
}

fn code(code: Code) -> u8 {
    match code {
        Code::Ok => 0,
        Code::OverLimit => 1,
    }
}

impl Record<'_> {
    /// Whether it is the end of an admitted request whose client reset the call.
    pub(crate) fn is_cancellation(&self) -> bool {
        // Every request has descriptors.
        self.descriptors.is_empty()
    }
}

/// The records in a buffer.
pub(crate) fn decode_all(bytes: &[u8]) -> impl Iterator<Item = Record<'_>> {
    let mut rest = Reader(bytes);
    std::iter::from_fn(move || {
        let length = rest.u32()?;
        Reader(rest.take(length as usize)?).record()
    })
}

/// The bytes not yet decoded.
struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    fn take(&mut self, count: usize) -> Option<&'b [u8]> {
        self.0.split_off(..count)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_ne_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_ne_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_ne_bytes)
    }

    fn text(&mut self) -> Option<&'b str> {
        let length = self.u32()?;
        std::str::from_utf8(self.take(length as usize)?).ok()
    }

    fn code(&mut self) -> Option<Code> {
        Some(if self.u8()? == 0 { Code::Ok } else { Code::OverLimit })
    }

    fn record(&mut self) -> Option<Record<'b>> {
        let (number, generation, is_report) = (self.u64()?, self.u64()?, self.u8()? == 1);
        let (received, latency, code) = (self.u64()?, self.u64()?, self.code()?);
        let sample = f64::from_bits(self.u64()?);
        let trace = match self.u8()? {
            0 => None,
            flag => {
                Some(TraceContext { trace_id: self.array()?, span_id: self.array()?, is_sampled: flag == 2 })
            }
        };
        let (peer, domain, ticket, count) = (self.text()?, self.text()?, self.text()?, self.u32()?);
        let descriptors = (0..count).map(|_| self.descriptor()).collect::<Option<_>>()?;
        Some(Record {
            number,
            generation,
            is_report,
            received,
            latency,
            code,
            sample,
            trace,
            peer,
            domain,
            ticket,
            descriptors,
        })
    }

    fn descriptor(&mut self) -> Option<DescriptorRecord<'b>> {
        let count = self.u32()?;
        let entries = (0..count).map(|_| Some((self.text()?, self.text()?))).collect::<Option<_>>()?;
        let hits = match (self.u8()?, NonZeroU64::new(self.u64()?)) {
            (1, Some(hits)) => Hits::Take(hits),
            (2, Some(hits)) => Hits::GiveBack(hits),
            _ => Hits::Peek,
        };
        let own_limit = match Unit::ALL.get(self.u8()? as usize) {
            None => None,
            Some(unit) => Some((self.u32()?, *unit)),
        };
        let code = self.code()?;
        let ban = match self.u8()? {
            1 => BanPhase::Begins,
            2 => BanPhase::InForce,
            _ => BanPhase::None,
        };
        let cause = match self.u8()? {
            1 => Some(DenialCause::CountersFull),
            2 => Some(DenialCause::StoreAway),
            _ => None,
        };
        let remaining = self.u32()?;
        let reset = match self.u8()? {
            0 => None,
            1 => Some(Reset::Never),
            _ => Some(Reset::After(std::time::Duration::from_nanos(self.u64()?))),
        };
        let limit = match self.u8()? {
            0 => None,
            _ => {
                let (name, requests, window, rule) = (self.text()?, self.u32()?, self.u64()?, self.text()?);
                Some(LimitRecord { name, requests, window, rule })
            }
        };
        Some(DescriptorRecord { entries, hits, own_limit, code, ban, cause, remaining, reset, limit })
    }
}
