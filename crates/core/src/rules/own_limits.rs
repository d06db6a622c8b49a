//! Limits that requests bring along: how they count (`request_limits` of a domain or a descriptor). The request states only number and
//! unit.
//!
//! Domain, entries and unit name the counter of such a limit, which keeps what was used when the number changes. So only algorithms
//! whose state depends on the window alone fit: the state of a bucket depends on its rate, which is the number.

use super::{
    ChargePolicy, LimitIdentity, LimitInfo, Reserve, RuleLimit, Semantics,
    limits::{Registrar, tag_of_override},
};
use crate::{
    algorithm::{Algorithm, Schedule},
    limit::{LimitId, RequestLimit, Unit, Window},
};
use std::{fmt, sync::Arc};

/// Settings of limits that requests bring along: how they count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OwnLimitSettings {
    pub(super) algorithm: OwnAlgorithm,
    pub(super) charge: ChargePolicy,
    pub(super) debt_max: Option<u32>,
    pub(super) reserve: Option<Reserve>,
}

/// An algorithm for any number and window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OwnAlgorithm {
    /// With so many sub-windows.
    Sliding { precision: u8 },
    /// Aligned to the clock, or from the first hit on.
    Fixed { from_first_hit: bool },
}

impl OwnLimitSettings {
    /// Settings of a domain that states none: as for a rule that names no algorithm.
    pub(super) fn new(semantics: Semantics) -> Self {
        let (algorithm, charge) = match semantics {
            Semantics::Exact => (OwnAlgorithm::Sliding { precision: 1 }, ChargePolicy::Admitted),
            Semantics::Reference => (OwnAlgorithm::Fixed { from_first_hit: false }, ChargePolicy::Always),
        };
        Self { algorithm, charge, debt_max: None, reserve: None }
    }
}

/// `sliding_window, precision: 60, charge: always, debt_max: 1`.
impl fmt::Display for OwnLimitSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.algorithm {
            OwnAlgorithm::Sliding { precision: 0 | 1 } => f.write_str("sliding_window")?,
            OwnAlgorithm::Sliding { precision } => write!(f, "sliding_window, precision: {precision}")?,
            OwnAlgorithm::Fixed { from_first_hit: false } => f.write_str("fixed_window")?,
            OwnAlgorithm::Fixed { from_first_hit: true } => {
                f.write_str("fixed_window, aligned: first_hit")?;
            }
        }
        if self.charge == ChargePolicy::Always {
            f.write_str(", charge: always")?;
        }
        if let Some(windows) = self.debt_max {
            write!(f, ", debt_max: {windows}")?;
        }
        self.reserve.map_or(Ok(()), |reserve| write!(f, ", reserve: {reserve}"))
    }
}

impl OwnAlgorithm {
    fn of(self, limit: u32, window: Window, is_shared: bool) -> Algorithm {
        let algorithm = match self {
            Self::Sliding { precision } => Algorithm::sliding_window(limit, window, precision),
            Self::Fixed { from_first_hit: false } => Algorithm::fixed_window(limit, Schedule::Clock(window)),
            Self::Fixed { from_first_hit: true } => {
                Algorithm::fixed_window(limit, Schedule::FirstHit(window))
            }
        };
        // Whole seconds are whole microseconds, and sub-windows are rounded up.
        if is_shared { algorithm.in_microseconds().unwrap_or(algorithm) } else { algorithm }
    }
}

/// Limits of a domain that requests bring along.
#[derive(Clone, Debug)]
pub(super) struct OwnLimits {
    /// Limits without their numbers, by unit.
    templates: [RuleLimit; Unit::ALL.len()],
    settings: OwnLimitSettings,
    is_stated: bool,
    is_shared: bool,
    /// The numbers of limits with the algorithms that descriptors state.
    by_algorithm: Vec<(OwnAlgorithm, [LimitId; Unit::ALL.len()])>,
    reserves: bool,
}

impl OwnLimits {
    /// The limits of a domain, with the settings of its descriptors.
    pub(super) fn new(
        domain: &Arc<str>,
        settings: Option<OwnLimitSettings>,
        of_descriptors: &[OwnLimitSettings],
        (semantics, is_shared): (Semantics, bool),
        limits: &mut Registrar,
    ) -> Self {
        let is_stated = settings.is_some();
        let settings = settings.unwrap_or_else(|| OwnLimitSettings::new(semantics));
        let templates =
            Unit::ALL.map(|unit| template(domain, unit, &settings, (semantics, is_shared), limits));
        let mut by_algorithm: Vec<(OwnAlgorithm, [LimitId; Unit::ALL.len()])> = Vec::new();
        for OwnLimitSettings { algorithm, .. } in of_descriptors {
            if *algorithm == settings.algorithm || by_algorithm.iter().any(|(known, _)| known == algorithm) {
                continue;
            }
            let ids = Unit::ALL.map(|unit| {
                let algorithm = algorithm.of(0, unit.window(), is_shared);
                limits.register_beside(LimitInfo { identity: identity(domain, unit), algorithm })
            });
            by_algorithm.push((*algorithm, ids));
        }
        let reserves = of_descriptors.iter().chain([&settings]).any(|settings| settings.reserve.is_some());
        Self { templates, settings, is_stated, is_shared, by_algorithm, reserves }
    }

    /// Their settings, if the domain states some.
    pub(super) fn stated(&self) -> Option<&OwnLimitSettings> {
        Some(&self.settings).filter(|_| self.is_stated)
    }

    /// Whether any of them charge an estimate.
    pub(super) fn reserve(&self) -> bool {
        self.reserves
    }

    /// The limit of a request, by the settings of the descriptor that its entries reach, if that states some.
    pub(super) fn limit(&self, own: RequestLimit, settings: Option<&OwnLimitSettings>) -> RuleLimit {
        let RequestLimit { requests, unit } = own;
        let template = &self.templates[unit as usize];
        let settings = settings.unwrap_or(&self.settings);
        let of_algorithm = self.by_algorithm.iter().find(|(known, _)| *known == settings.algorithm);
        let OwnLimitSettings { algorithm, charge, debt_max, reserve } = *settings;
        let algorithm = algorithm.of(requests, template.window, self.is_shared);
        let is_joined = template.semantics.joins(&algorithm, charge, template.unit)
            && debt_max.is_none()
            && reserve.is_none();
        RuleLimit {
            id: of_algorithm.map_or(template.id, |(_, ids)| ids[unit as usize]),
            requests,
            capacity: requests,
            algorithm,
            charge,
            debt_max,
            reserve,
            is_joined,
            ..template.clone()
        }
    }
}

// Rule paths never begin with a bracket.
fn path(unit: Unit) -> Arc<str> {
    format!("(request's own limit per {unit})").into()
}

fn identity(domain: &Arc<str>, unit: Unit) -> LimitIdentity {
    LimitIdentity { domain: Arc::clone(domain), path: path(unit), tag: tag_of_override(unit) }
}

/// The limit of requests that have their own, without its number of requests.
fn template(
    domain: &Arc<str>,
    unit: Unit,
    settings: &OwnLimitSettings,
    (semantics, is_shared): (Semantics, bool),
    limits: &mut Registrar,
) -> RuleLimit {
    let window = unit.window();
    let OwnLimitSettings { charge, debt_max, reserve, .. } = *settings;
    let algorithm = settings.algorithm.of(0, window, is_shared);
    let info = LimitInfo { identity: identity(domain, unit), algorithm: algorithm.clone() };
    let numbers = limits.register(info, path(unit));
    RuleLimit {
        charge,
        debt_max,
        semantics,
        reserve,
        ..RuleLimit::new(numbers, tag_of_override(unit), (0, window), algorithm)
    }
}
