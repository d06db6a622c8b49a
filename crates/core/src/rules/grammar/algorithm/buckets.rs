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
    let refill = refill.unwrap_or(TokenBucket::greedy);
    bucket("size", fields, semantics, |size, rate, window| Algorithm::TokenBucket(refill(size, rate, window)))
}

pub(super) fn leaky_bucket(fields: &mut Fields<'_>, semantics: Semantics) -> Option<Counting> {
    let queue = queue(fields, None);
    bucket("burst", fields, semantics, |size, rate, window| {
        Algorithm::leaky_bucket(size, rate.get(), window, queue)
    })
}

/// Reads a bucket with the size in key `name`, by default the requests of one unit.
fn bucket(
    name: &'static str,
    fields: &mut Fields<'_>,
    semantics: Semantics,
    of: impl FnOnce(u32, NonZeroU32, Window) -> Algorithm,
) -> Option<Counting> {
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
    Some(Counting { requests, window, algorithm: of(size, rate, window) })
}
