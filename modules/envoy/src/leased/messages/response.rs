//! The response of `Exchange`, and the decisions in it.

use super::{CounterId, RulesId, UNITS};
use crate::{
    protobuf::{Malformed, Wire, bytes_of, fields, numbers},
    response::{Consequence, HeaderList, added},
    status::{ShownLimit, ShownStatus},
};
use smallvec::SmallVec;
use std::time::Duration;
use tidegate_core::limiter::TICKET_KEY;
use tidegate_shared::lease::{LeaseResponse, Settings, Supply};

/// A response of `Exchange`.
#[derive(Debug, Default, PartialEq)]
pub(in crate::leased) struct ExchangeResponse {
    pub(in crate::leased) rules: RulesId,
    pub(in crate::leased) decisions: Vec<Decided>,
    /// Grants without a sequence have to be ignored.
    pub(in crate::leased) grants: Vec<LeaseResponse>,
    pub(in crate::leased) settings: Option<Settings>,
    /// Whether counters of the server are in a shared store, for which it grants no credits. With `settings`.
    pub(in crate::leased) has_shared_store: bool,
}

/// The result of a request for a decision.
#[derive(Debug, Default, PartialEq)]
pub(in crate::leased) struct Decided {
    /// None if the server refused the request.
    pub(in crate::leased) response: Option<Box<Response>>,
    /// The counter of each descriptor; empty if the server decides all such requests.
    pub(in crate::leased) counters: Vec<LearntCounter>,
    /// Time for which the slots or estimates of the ticket are held; zero without a ticket.
    pub(in crate::leased) hold: Duration,
}

/// A counter to which a descriptor is charged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::leased) struct LearntCounter {
    /// None if nothing limits the descriptor.
    pub(in crate::leased) id: Option<CounterId>,
    pub(in crate::leased) limit: u64,
    pub(in crate::leased) span_micros: u64,
    pub(in crate::leased) denied_for: Duration,
}

/// A decision of the server.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Response {
    pub(crate) is_denied: bool,
    pub(crate) statuses: SmallVec<[ShownStatus<Box<str>>; 2]>,
    pub(crate) additions: Additions,
    /// Names the slots that the request holds.
    pub(crate) ticket: Option<Box<str>>,
    /// Data for a renewal of the ticket; set together with it.
    pub(in crate::leased) renewal: Option<Renewal>,
}

/// Content of a ticket's renewal.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::leased) struct Renewal {
    /// Time for which the ticket is held.
    pub(in crate::leased) hold: Duration,
    /// The request that got it, encoded.
    pub(in crate::leased) request: Vec<u8>,
}

/// Additions to a decision by rules, and by options of the server.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Additions {
    pub(crate) body: String,
    pub(crate) response_headers: HeaderList,
    pub(crate) request_headers: HeaderList,
}

impl Additions {
    /// The effects of a decision with these additions, before the filter's own headers.
    pub(crate) fn consequence(&self, is_denied: bool) -> Consequence {
        let Self { body, response_headers, request_headers } = self.clone();
        Consequence { is_denied, body, response_headers, request_headers, logged: None }
    }
}

impl ExchangeResponse {
    pub(in crate::leased) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut response = Self::default();
        for field in fields(bytes) {
            match field? {
                (1, Wire::Fixed64(epoch)) => response.rules.epoch = epoch,
                (2, Wire::Varint(generation)) => response.rules.generation = generation,
                (3, Wire::Bytes(bytes)) => response.decisions.push(Decided::decode(bytes)?),
                (4, Wire::Bytes(bytes)) => response.grants.push(grant(bytes)?),
                (5, Wire::Bytes(bytes)) => {
                    let (settings, has_shared_store) = settings(bytes)?;
                    (response.settings, response.has_shared_store) = (Some(settings), has_shared_store);
                }
                _ => {}
            }
        }
        let epoch = response.rules.epoch;
        response.grants.iter_mut().for_each(|grant| grant.epoch = epoch);
        Ok(response)
    }
}

impl Decided {
    fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut decided = Self::default();
        for field in fields(bytes) {
            match field? {
                (1, Wire::Bytes(bytes)) => decided.response = Some(Box::new(Response::decode(bytes)?)),
                (3, Wire::Bytes(bytes)) => decided.counters.push(LearntCounter::decode(bytes)?),
                (4, Wire::Varint(micros)) => decided.hold = Duration::from_micros(micros),
                _ => {}
            }
        }
        Ok(decided)
    }
}

impl LearntCounter {
    fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let [_, limit, span_micros, denied_micros] = numbers(bytes)?;
        let id = bytes_of(bytes, 1)?.filter(|id| !id.is_empty());
        let id = id.map(CounterId::try_from).transpose().map_err(|_| Malformed)?;
        Ok(Self { id, limit, span_micros, denied_for: Duration::from_micros(denied_micros) })
    }
}

impl Response {
    fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut response = Self::default();
        let Self { is_denied, statuses, additions, ticket, renewal: _ } = &mut response;
        for field in fields(bytes) {
            match field? {
                (1, Wire::Varint(code)) => *is_denied = code == OVER_LIMIT,
                (2, Wire::Bytes(bytes)) => statuses.push(ShownStatus::decode(bytes)?),
                (3, Wire::Bytes(bytes)) => additions.response_headers.push(header(bytes)?),
                (4, Wire::Bytes(bytes)) => additions.request_headers.push(header(bytes)?),
                (5, Wire::Bytes(bytes)) => additions.body = String::from_utf8_lossy(bytes).into_owned(),
                (6, Wire::Bytes(bytes)) => *ticket = ticket_of(bytes)?,
                _ => {}
            }
        }
        Ok(response)
    }
}

/// The code of denied requests and descriptors.
const OVER_LIMIT: u64 = 2;

impl ShownStatus<Box<str>> {
    fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut status = Self::default();
        for field in fields(bytes) {
            match field? {
                (1, Wire::Varint(code)) => status.is_over = code == OVER_LIMIT,
                (2, Wire::Bytes(bytes)) => status.limit = Some(ShownLimit::decode(bytes)?),
                (3, Wire::Varint(remaining)) => {
                    status.remaining = u32::try_from(remaining).unwrap_or(u32::MAX)
                }
                (4, Wire::Bytes(bytes)) => {
                    let [seconds, _] = numbers(bytes)?;
                    status.reset_seconds = seconds;
                }
                _ => {}
            }
        }
        Ok(status)
    }
}

impl ShownLimit<Box<str>> {
    fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let [requests, unit] = numbers(bytes)?;
        Ok(Self {
            name: String::from_utf8_lossy(bytes_of(bytes, 3)?.unwrap_or_default()).into(),
            requests: u32::try_from(requests).unwrap_or(u32::MAX),
            unit: unit.checked_sub(1).and_then(|index| UNITS.get(index as usize)).copied(),
        })
    }
}

/// A `HeaderValue`.
fn header(bytes: &[u8]) -> Result<(Box<str>, Box<[u8]>), Malformed> {
    let name = str::from_utf8(bytes_of(bytes, 1)?.unwrap_or_default()).map_err(|_| Malformed)?;
    let raw = bytes_of(bytes, 3)?.filter(|value| !value.is_empty());
    Ok(added(name, raw.or(bytes_of(bytes, 2)?).unwrap_or_default()))
}

/// The ticket in the metadata of a response.
fn ticket_of(metadata: &[u8]) -> Result<Option<Box<str>>, Malformed> {
    let mut ticket = None;
    for field in fields(metadata) {
        // The key of an entry, and its value, which is a text in field 3.
        if let (_, Wire::Bytes(entry)) = field?
            && bytes_of(entry, 1)? == Some(TICKET_KEY.as_bytes())
            && let Some(text) = bytes_of(bytes_of(entry, 2)?.unwrap_or_default(), 3)?
        {
            ticket = Some(str::from_utf8(text).map_err(|_| Malformed)?.into());
        }
    }
    Ok(ticket)
}

fn grant(bytes: &[u8]) -> Result<LeaseResponse, Malformed> {
    let [sequence, spend_to, valid, supply, report_after, free, empty, until_full] = numbers(bytes)?;
    Ok(LeaseResponse {
        sequence,
        epoch: 0,
        spend_to,
        valid_for: Duration::from_micros(valid),
        supply: match supply {
            0 => Supply::Ample,
            1 => Supply::Scarce,
            3 => Supply::Learning,
            _ => Supply::TooSmall,
        },
        report_after: Duration::from_micros(report_after),
        free,
        empty_for: Duration::from_micros(empty),
        until_full: Duration::from_micros(until_full),
    })
}

fn settings(bytes: &[u8]) -> Result<(Settings, bool), Malformed> {
    let [length, grant_min, limit_min, hold_min, has_shared_store] = numbers(bytes)?;
    let (length, hold_min) = (Duration::from_micros(length), Duration::from_micros(hold_min));
    Ok((Settings { length, grant_min, limit_min, hold_min }, has_shared_store != 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protobuf::Writer;
    use tidegate_core::limit::Unit;

    /// A response with everything that the module reads.
    fn complete() -> Vec<u8> {
        let mut message = Writer::default();
        message.fixed64(1, 7);
        message.number(2, 3);
        message.message(3, |decision| {
            decision.message(1, |response| {
                response.number(1, 2);
                response.message(2, |status| {
                    status.number(1, 2);
                    status.message(2, |limit| {
                        limit.number(1, 20);
                        limit.number(2, 2);
                        limit.text(3, "per-key");
                    });
                    status.number(3, 4);
                    status.message(4, |duration| duration.number(1, 9));
                });
                response.message(3, |header| {
                    header.text(1, "x-why");
                    header.text(2, "told");
                });
                response.bytes(5, b"no");
                response.message(6, |metadata| {
                    metadata.message(1, |entry| {
                        entry.text(1, "slot");
                        entry.message(2, |value| value.text(3, "slot-1"));
                    });
                });
            });
            decision.message(3, |counter| {
                counter.bytes(1, &[5; 16]);
                counter.number(2, 20);
                counter.number(3, 60_000_000);
                counter.number(4, 8_000_001);
            });
            decision.message(3, |_| ());
            decision.number(4, 1_000);
        });
        message.message(4, |grant| (1..=8).for_each(|field| grant.number(field, u64::from(field) * 10)));
        message.message(5, |settings| (1..=5).for_each(|field| settings.number(field, field.into())));
        message.into_bytes()
    }

    #[test]
    fn a_response_is_read_as_the_server_wrote_it() {
        let response = ExchangeResponse::decode(&complete()).unwrap();
        assert_eq!(response.rules, RulesId { epoch: 7, generation: 3 });
        let [decided] = &*response.decisions else { panic!("{response:?}") };
        let decision = decided.response.as_ref().unwrap();
        assert!(decision.is_denied);
        assert_eq!((&*decision.additions.body, decision.ticket.as_deref()), ("no", Some("slot-1")));
        assert_eq!(decision.additions.response_headers.as_slice(), [added("x-why", b"told")]);
        let limit = Some(ShownLimit { name: "per-key", requests: 20, unit: Some(Unit::Minute) });
        let shown = ShownStatus { is_over: true, limit, remaining: 4, reset_seconds: 9 };
        assert_eq!(decision.statuses[0].borrowed(), shown);
        let [counter, none] = &*decided.counters else { panic!("{decided:?}") };
        assert_eq!((counter.id, counter.denied_for), (Some([5; 16]), Duration::from_micros(8_000_001)));
        assert_eq!((none.id, decided.hold), (None, Duration::from_millis(1)));
        let grant = response.grants[0];
        assert_eq!(
            (grant.sequence, grant.epoch, grant.spend_to, grant.supply),
            (10, 7, 20, Supply::TooSmall)
        );
        let settings = response.settings.map(|settings| settings.grant_min);
        assert_eq!((settings, response.has_shared_store), (Some(2), true));
    }

    #[test]
    fn no_bytes_make_the_reader_panic() {
        let bytes = complete();
        for end in 0..bytes.len() {
            let _ = ExchangeResponse::decode(&bytes[..end]);
            for flip in [0x01, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[end] ^= flip;
                let _ = ExchangeResponse::decode(&damaged);
            }
        }
    }
}
