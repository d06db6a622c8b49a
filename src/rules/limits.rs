//! The numbers by which counters remember the limit they were counted under.
//!
//! A [`LimitId`] once given keeps its meaning for as long as the process runs: a reload gives the same number to the
//! same limit with the same arithmetic, and a new number to one that changed. So a counter tells by its number
//! whether it must be converted, and the table still knows the arithmetic to convert it from.
//!
//! All rules that were built upon each other share one table. A decision that began under the old rules may so read a
//! counter that another one has just written under the new ones.
//!
//! The table grows by one entry of about 200 bytes for each limit that a load brings or changes, and never shrinks;
//! going back to an earlier state of the rules adds nothing.

use crate::{
    algorithm::Algorithm,
    limit::{LimitId, Unit},
    sync::RwLock,
};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::{fmt, sync::Arc};

/// What makes a limit the same limit after a reload or a restart, however its numbers changed.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LimitIdentity {
    /// The domain.
    pub domain: Arc<str>,
    /// The rule's path through the tree, as that of [`RuleInfo`](crate::limit::RuleInfo); no two rules of a domain share it.
    pub path: Arc<str>,
    /// Tells the limits of one rule apart, as [`RuleLimit::tag`](super::RuleLimit::tag).
    pub tag: u32,
}

impl fmt::Display for LimitIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.domain, self.path)?;
        if self.tag == TAG_ALONE { Ok(()) } else { write!(f, " #{:x}", self.tag) }
    }
}

/// What a [`LimitId`] stands for.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct LimitInfo {
    /// Which limit.
    pub identity: LimitIdentity,
    /// How it counts, or counted. That of a request's own limits admits nothing: the requests bring the number along,
    /// and what a counter means depends on the window alone.
    pub algorithm: Algorithm,
}

/// Every limit known since the process began. Clones are the same table.
#[derive(Clone, Debug, Default)]
pub struct LimitTable(Arc<RwLock<Known>>);

#[derive(Debug, Default)]
struct Known {
    /// By number.
    infos: Vec<Arc<LimitInfo>>,
    ids: HashMap<Arc<LimitInfo>, LimitId, FixedState>,
}

impl LimitTable {
    /// What the number stands for; none if this table did not give it.
    pub fn get(&self, id: LimitId) -> Option<Arc<LimitInfo>> {
        self.0.read().infos.get(id.0 as usize).cloned()
    }

    /// The number of a limit that counts like this, if there ever was one.
    pub fn find(&self, info: &LimitInfo) -> Option<LimitId> {
        self.0.read().ids.get(info).copied()
    }

    /// The number of this limit, a new one if need be.
    pub fn register(&self, info: LimitInfo) -> LimitId {
        let mut known = self.0.write();
        if let Some(id) = known.ids.get(&info) {
            return *id;
        }
        let next =
            u32::try_from(known.infos.len()).expect("four thousand million limits do not fit in memory");
        let info = Arc::new(info);
        known.infos.push(Arc::clone(&info));
        known.ids.insert(info, LimitId(next));
        LimitId(next)
    }

    /// Every limit; the number is the index.
    pub fn to_vec(&self) -> Vec<Arc<LimitInfo>> {
        self.0.read().infos.clone()
    }
}

/// The tag of a limit that is alone on its rule.
pub(super) const TAG_ALONE: u32 = 0;

/// The tag of a request's own limit: from 1 to 7, by unit.
pub(super) fn tag_of_override(unit: Unit) -> u32 {
    unit as u32 + 1
}

/// The tag of one limit among several, made of what tells it apart, so that their order does not matter.
/// FNV-1a; the highest bit is set, which keeps it clear of the other two kinds.
pub(super) fn tag_among_several(label: &str) -> u32 {
    let hash =
        label.bytes().fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    hash | 1 << 31
}
