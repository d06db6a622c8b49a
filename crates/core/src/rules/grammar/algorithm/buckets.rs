//! Buckets: a rate, and a size.

use super::{
    super::doubts::doubt_empty_bucket,
    common::{Counting, choice, requests_and_window},
    queue::queue,
};
use crate::{
    algorithm::{Algorithm, TokenBucket},
    limit::Window,
    rules::{semantics::Semantics, yaml::Fields},
};
use std::num::NonZeroU32;

pub(super) fn token_bucket(fields: &mut Fields<'_>, semantics: Semantics) -> Option<Counting> {
    type Make = fn(u32, NonZeroU32, Window) -> TokenBucket;
    let refills: [(_, Make); 2] = [("greedy", TokenBucket::greedy), ("intervals", TokenBucket::by_intervals)];
    let refill = fields.take("refill").and_then(|field| choice(&field, "a way to refill", &refills));
    let DeclaredBucket { requests, window, size, rate } = bucket("size", fields, semantics)?;
    let algorithm = Algorithm::TokenBucket(refill.unwrap_or(TokenBucket::greedy)(size, rate, window));
    Some(Counting { requests, window, algorithm })
}

pub(super) fn leaky_bucket(fields: &mut Fields<'_>, semantics: Semantics) -> Option<Counting> {
    let queue = queue(fields, None);
    let DeclaredBucket { requests, window, size, .. } = bucket("burst", fields, semantics)?;
    Some(Counting { requests, window, algorithm: Algorithm::leaky_bucket(size, requests, window, queue) })
}

/// A leaky bucket without other keys.
pub(super) fn leaky(requests: u32, window: Window, size: u32) -> Algorithm {
    Algorithm::leaky_bucket(size, requests, window, None)
}

/// The parameters of both buckets: a rate, and a size.
struct DeclaredBucket {
    requests: u32,
    window: Window,
    size: u32,
    rate: NonZeroU32,
}

/// Reads a bucket with the size in key `name`, by default the requests of one unit.
fn bucket(name: &'static str, fields: &mut Fields<'_>, semantics: Semantics) -> Option<DeclaredBucket> {
    let size = fields.take(name).map(|field| (field.whole(), field));
    let (requests, window) = requests_and_window(fields, semantics)?;
    if let (0, Some((Some(1..), field))) = (requests, &size) {
        return field.refuse(
            "a bucket with 0 per unit is never refilled; write 1 or more in `requests_per_unit`, or 0 here",
        );
    }
    if let Some((Some(0), field)) = &size {
        doubt_empty_bucket(field, requests);
    }
    let size = match size {
        None => requests,
        Some((size, _)) => size?,
    };
    // A bucket without room admits nothing, at whatever rate.
    let rate = NonZeroU32::new(requests).unwrap_or(NonZeroU32::MIN);
    Some(DeclaredBucket { requests, window, size, rate })
}
