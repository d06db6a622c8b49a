//! Limits that entries peek at or give hits back to, and that no entry charges.

use super::{
    finding::{Findings, Kind},
    reach::Shape,
};
use std::collections::BTreeSet;
use tidegate_core::rules::Origin;

/// The descriptors with a limit, by the effect of their hits.
///
/// One route may peek at a limit that another route charges, so that nothing is reported before all routes are known.
#[derive(Default)]
pub(super) struct Charges {
    /// Those whose hits are charged, with their domains.
    charged: Vec<(String, Shape)>,
    /// Those of the beginning of requests, whose hits are not charged.
    uncharged: Vec<Uncharged>,
}

/// A descriptor whose hits are not charged.
pub(super) struct Uncharged {
    pub(super) at: Origin,
    pub(super) place: String,
    pub(super) domain: String,
    pub(super) shape: Shape,
    /// Whether it has zero hits; else its hits are given back.
    pub(super) is_peek: bool,
}

impl Charges {
    /// Adds a descriptor whose hits are charged.
    pub(super) fn add(&mut self, domain: &str, shape: &Shape) {
        let is_known = |(own, other): &(String, Shape)| own == domain && other == shape;
        if !self.charged.iter().any(is_known) {
            self.charged.push((domain.to_owned(), shape.clone()));
        }
    }

    /// Adds a descriptor of the beginning of requests whose hits are not charged.
    pub(super) fn add_uncharged(&mut self, uncharged: Uncharged) {
        self.uncharged.push(uncharged);
    }

    /// Reports the limits that nothing charges. In a domain with unknown descriptors, one of these may charge them.
    pub(super) fn check(self, incomplete: &BTreeSet<String>, findings: &mut Findings) {
        for Uncharged { at, place, domain, shape, is_peek } in self.uncharged {
            let is_charged = self.charged.iter().any(|(own, other)| *own == domain && other.may_be(&shape));
            if is_charged || incomplete.contains(&domain) {
                continue;
            }
            let what = match is_peek {
                true => format!("this entry peeks at the limit of {shape} (0 hits)"),
                false => format!("this entry gives hits back to the limit of {shape}"),
            };
            let message = format!(
                "{what}, and no entry charges it, so it denies nothing; remove hits_addend, or add an entry with \
                 the same actions, apply_on_stream_done: true and the hits of a request"
            );
            findings.add_at(Kind::NeverCharged, at, &place, message, None);
        }
    }
}
