//! Converts a protobuf message to a checked request that borrows its texts.

use crate::api::pb::{
    common::{self, rate_limit_descriptor::Entry as WireEntry},
    service,
    service::rate_limit_response::rate_limit::Unit as WireUnit,
    types,
};
use std::borrow::Cow;
use tidegate_core::limit::{
    Descriptor, Entry, Hits, Request, RequestError, RequestForm, RequestLimit, RequestLimits, SentHits, Unit,
    client_text,
};

/// The texts of a message's entries, in their order. Most are borrowed.
pub(in crate::api) struct EntryTexts<'m>(Vec<[Cow<'m, str>; 2]>);

impl<'m> EntryTexts<'m> {
    /// Writes the texts of those entries that [`request`] reads.
    pub(in crate::api) fn of(message: &'m service::RateLimitRequest, limits: &RequestLimits) -> Self {
        let text = |bytes: &'m Vec<u8>| client_text(bytes, limits.text_bytes_max);
        let texts = |entry: &'m WireEntry| [text(&entry.key), text(&entry.value)];
        Self(
            read(message, limits)
                .flat_map(|descriptor| read_entries(descriptor, limits))
                .map(texts)
                .collect(),
        )
    }

    /// Whether each text is its bytes.
    #[cfg(test)]
    pub(super) fn are_borrowed(&self) -> bool {
        self.0.as_flattened().iter().all(|text| matches!(text, Cow::Borrowed(_)))
    }
}

/// Reads one descriptor more than are accepted: the excess is found, and the work on a refused request is bounded.
fn read<'m>(
    message: &'m service::RateLimitRequest,
    limits: &RequestLimits,
) -> impl Iterator<Item = &'m common::RateLimitDescriptor> {
    message.descriptors.iter().take(limits.descriptors_max + 1)
}

/// The entries of a descriptor that are read: one more than a request may have, so that the excess is seen.
fn read_entries<'m>(
    descriptor: &'m common::RateLimitDescriptor,
    limits: &RequestLimits,
) -> impl Iterator<Item = &'m WireEntry> {
    descriptor.entries.iter().take(limits.entries_max + 1)
}

/// The request, or why it is refused. `texts` are those of the message.
pub(in crate::api) fn request<'t>(
    message: &'t service::RateLimitRequest,
    texts: &'t EntryTexts<'_>,
    limits: &RequestLimits,
) -> Result<Request<'t>, RequestError> {
    let mut request = Request::new(&message.domain);
    let mut texts = texts.0.iter();
    for (index, message_of) in read(message, limits).enumerate() {
        let texts = texts.by_ref().take(read_entries(message_of, limits).count());
        request.push(descriptor(index, message_of, texts, message.hits_addend, limits.form)?);
    }
    if limits.keep_sent_hits {
        let of_descriptors = message.descriptors.iter().map(|descriptor| descriptor.hits_addend).collect();
        request.set_sent_hits(SentHits { of_request: message.hits_addend, of_descriptors });
    }
    request.checked(limits).map_err(|error| match error {
        RequestError::ManyDescriptors { max, .. } => {
            RequestError::ManyDescriptors { count: message.descriptors.len(), max }
        }
        RequestError::ManyEntries { descriptor, max, .. } => RequestError::ManyEntries {
            descriptor,
            count: message.descriptors[descriptor].entries.len(),
            max,
        },
        other => other,
    })
}

fn descriptor<'t>(
    index: usize,
    message: &common::RateLimitDescriptor,
    texts: impl Iterator<Item = &'t [Cow<'t, str>; 2]>,
    hits_addend: u32,
    form: RequestForm,
) -> Result<Descriptor<'t>, RequestError> {
    let limit = match &message.limit {
        Some(own) => {
            let unknown = RequestError::UnknownUnit { descriptor: index, number: own.unit };
            Some(RequestLimit { requests: own.requests_per_unit, unit: unit(own.unit, form).ok_or(unknown)? })
        }
        None => None,
    };
    let hits = Hits::new(message.hits_addend, hits_addend, gives_back(message.is_negative_hits, form));
    Ok(Descriptor { entries: texts.map(|[key, value]| Entry { key, value }).collect(), limit, hits })
}

/// Whether negative hits are hits to give back.
#[inline]
pub(super) fn gives_back(is_negative_hits: bool, form: RequestForm) -> bool {
    is_negative_hits && form == RequestForm::Strict
}

/// The unit of an override by its number on the wire.
pub(super) fn unit(number: i32, form: RequestForm) -> Option<Unit> {
    use types::RateLimitUnit as Wire;
    // The number that a week has in responses. The enumeration of requests has no week.
    if number == WireUnit::Week as i32 && form == RequestForm::Reference {
        return Some(Unit::Week);
    }
    match Wire::try_from(number).ok()? {
        Wire::Unknown => None,
        Wire::Second => Some(Unit::Second),
        Wire::Minute => Some(Unit::Minute),
        Wire::Hour => Some(Unit::Hour),
        Wire::Day => Some(Unit::Day),
        Wire::Month => Some(Unit::Month),
        Wire::Year => Some(Unit::Year),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU64;

    fn one(entries: &[(&str, &str)], hits: Option<u64>, negative: bool) -> common::RateLimitDescriptor {
        let entry = |(key, value): &(&str, &str)| WireEntry { key: (*key).into(), value: (*value).into() };
        common::RateLimitDescriptor {
            entries: entries.iter().map(entry).collect(),
            limit: None,
            hits_addend: hits,
            is_negative_hits: negative,
        }
    }

    fn refused(message: &service::RateLimitRequest) -> String {
        let limits = RequestLimits {
            descriptors_max: 2,
            entries_max: 2,
            text_bytes_max: 4,
            ..RequestLimits::default()
        };
        request(message, &EntryTexts::of(message, &limits), &limits).expect_err("is malformed").to_string()
    }

    #[test]
    fn hits_are_those_of_the_descriptor_else_of_the_request_else_one() {
        let take = |n| Hits::Take(NonZeroU64::new(n).unwrap());
        let hits = |of_descriptor, of_request, negative| {
            let descriptors = vec![one(&[("k", "")], of_descriptor, negative)];
            let message =
                service::RateLimitRequest { domain: "d".into(), descriptors, hits_addend: of_request };
            let limits = RequestLimits::default();
            request(&message, &EntryTexts::of(&message, &limits), &limits).unwrap().descriptors()[0].hits
        };
        assert_eq!(hits(None, 0, false), take(1));
        assert_eq!(hits(None, 7, false), take(7));
        assert_eq!(hits(Some(3), 7, false), take(3));
        assert_eq!(hits(Some(u64::MAX), 0, false), take(u64::MAX));
        assert_eq!(hits(Some(0), 7, false), Hits::Peek);
        assert_eq!(hits(Some(0), 7, true), Hits::Peek);
        assert_eq!(hits(None, 0, true), Hits::GiveBack(NonZeroU64::MIN));
    }

    #[test]
    fn requests_that_the_reference_server_accepts_are_read_as_there() {
        let limits =
            RequestLimits { form: RequestForm::Reference, keep_sent_hits: true, ..RequestLimits::default() };
        let own = common::rate_limit_descriptor::RateLimitOverride { requests_per_unit: 1, unit: 7 };
        let with_own = common::RateLimitDescriptor { limit: Some(own), ..one(&[("", "v")], Some(2), true) };
        let message = service::RateLimitRequest {
            domain: "d".into(),
            descriptors: vec![one(&[], None, false), with_own],
            hits_addend: 3,
        };
        let texts = EntryTexts::of(&message, &limits);
        let read = request(&message, &texts, &limits).unwrap();
        let [empty, weekly] = read.descriptors() else { panic!("{read:?}") };
        assert!(empty.entries.is_empty());
        assert_eq!(weekly.limit, Some(RequestLimit { requests: 1, unit: Unit::Week }));
        assert_eq!(weekly.hits, Hits::Take(NonZeroU64::new(2).unwrap()));
        let sent = SentHits { of_request: 3, of_descriptors: vec![None, Some(2)] };
        assert_eq!(read.sent_hits(), Some(&sent));
        let unknown = common::rate_limit_descriptor::RateLimitOverride { requests_per_unit: 1, unit: 8 };
        let descriptors = vec![common::RateLimitDescriptor { limit: Some(unknown), ..one(&[], None, false) }];
        let message = service::RateLimitRequest { descriptors, ..message.clone() };
        assert!(request(&message, &EntryTexts::of(&message, &limits), &limits).is_err());
    }

    #[test]
    fn each_malformed_request_is_refused_with_a_remedy() {
        let with =
            |descriptors| service::RateLimitRequest { domain: "d".into(), descriptors, hits_addend: 0 };
        let good = || one(&[("k", "v")], None, false);
        assert_eq!(
            refused(&service::RateLimitRequest { domain: String::new(), ..with(vec![good()]) }),
            "domain is empty; name the domain of a loaded rule set"
        );
        assert_eq!(refused(&with(vec![])), "descriptors is empty; send at least one descriptor");
        assert_eq!(refused(&with(vec![good(); 9])), "descriptors has 9 items; at most 2 are accepted");
        assert_eq!(
            refused(&with(vec![one(&[("k", "v"), ("", "v")], None, false)])),
            "descriptors[0].entries[1].key is empty; every entry needs a key"
        );
        assert_eq!(
            refused(&with(vec![one(&[("k", "v"); 7], None, false)])),
            "descriptors[0].entries has 7 items; at most 2 are accepted"
        );
        let limit = common::rate_limit_descriptor::RateLimitOverride { requests_per_unit: 1, unit: 99 };
        let refusal = refused(&with(vec![common::RateLimitDescriptor { limit: Some(limit), ..good() }]));
        assert!(refusal.starts_with("descriptors[0].limit.unit is 99; send 1 (SECOND)"), "{refusal}");
    }
}
