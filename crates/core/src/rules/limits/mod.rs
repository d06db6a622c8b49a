//! The numbers by which counters remember the limit they were counted under.
//!
//! A [`LimitId`] means the same limit with the same arithmetic for as long as anything refers to it: a reload keeps the number of an
//! unchanged limit, and gives a changed limit another. A counter's number thus shows whether its state has to be converted, and the table
//! knows the arithmetic to convert it from.
//!
//! Rule sets that were built upon each other share one table: a decision that began under the old rules can read a counter that another
//! decision has just written under the new rules.
//!
//! Numbers are collected: see [`LimitTable::collect`]. After each collection the table holds the limits of rule sets
//! that are alive and those of live counters; it may grow to twice that before the next collection is due.

use super::{
    limit_name::LimitName,
    series::{SeriesTable, UsedSeries},
};
use crate::{
    algorithm::Algorithm,
    limit::{LimitId, SeriesId, Unit},
    sync::{Mutex, MutexGuard, RwLock},
};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use serde::{Deserialize, Serialize};
use std::{fmt, sync::Arc};

/// Identity of a limit: equal after a reload or a restart, however its numbers changed.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct LimitIdentity {
    /// The domain.
    pub domain: Arc<str>,
    /// The rule's path through the tree, as that of [`RuleInfo`](crate::limit::RuleInfo); no two rules of a domain share it.
    pub path: Arc<str>,
    /// Distinguishes the limits of one rule, as [`RuleLimit::tag`](super::RuleLimit::tag).
    pub tag: u32,
}

impl fmt::Display for LimitIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.domain, self.path)?;
        if self.tag == TAG_UNNAMED { Ok(()) } else { write!(f, " #{:x}", self.tag) }
    }
}

/// The limit that a [`LimitId`] refers to. Snapshots and exports have it as serialized: names of fields, as those of [`Algorithm`], are
/// those of format 1, and never change.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct LimitInfo {
    /// Identity of the limit.
    #[serde(flatten)]
    pub identity: LimitIdentity,
    /// Its algorithm, present or last. For limits sent with requests it admits nothing: the number is in the request, and the
    /// meaning of a counter depends on the window alone.
    pub algorithm: Algorithm,
}

/// The limits that rule sets and counters refer to, by number. Clones are the same table.
#[derive(Clone, Debug, Default)]
pub struct LimitTable(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    known: RwLock<Known>,
    series: RwLock<SeriesTable>,
    /// Held by readers while no number may change its meaning, and while numbers are freed.
    pinned: Mutex<()>,
}

#[derive(Debug, Default)]
struct Known {
    /// By number.
    numbered: Vec<Numbered>,
    ids: HashMap<Arc<LimitInfo>, LimitId, FixedState>,
    /// Numbers without a limit.
    free: Vec<LimitId>,
    /// The number of the last collection, from 1 on.
    collection: u64,
    /// Limits after which the next collection is due.
    due_at: usize,
    /// Numbers freed so far.
    freed: u64,
    /// Epochs of the bans of a former process that rules may continue: see [`LimitTable::end_restored_bans`].
    restored_bans: HashMap<LimitIdentity, u32, FixedState>,
}

#[derive(Debug)]
struct Numbered {
    /// None while the number is free.
    info: Option<Arc<LimitInfo>>,
    /// The collection before which it was last registered.
    registered: u64,
}

/// A limit in use: its number is not freed while this is alive.
#[derive(Clone, Debug)]
pub(super) struct Registered {
    pub(super) id: LimitId,
    /// Keeps the number: the table counts the references.
    pub(super) info: Arc<LimitInfo>,
}

/// A limit of a rule set, with its name and series in metrics.
#[derive(Clone, Debug)]
pub(super) struct NamedLimit {
    pub(super) limit: Registered,
    pub(super) name: LimitName,
    /// Keeps the id of the series in use.
    pub(super) series: UsedSeries,
}

/// Gives the limits of one rule set their numbers, and keeps those in use.
pub(super) struct Registrar {
    pub(super) table: LimitTable,
    pub(super) used: Vec<NamedLimit>,
    /// Limits without names of their own.
    pub(super) beside: Vec<Registered>,
    series_max: usize,
    /// Epochs of bans: of the rules, and of the rules in force before.
    bans: HashMap<LimitIdentity, u32, FixedState>,
}

impl Registrar {
    /// Takes numbers from this table, in which at most `series_max` names have a series of their own. `former` are the limits of the rules
    /// in force before that have no name of their own.
    pub(super) fn new(table: LimitTable, series_max: usize, former: &[Registered]) -> Self {
        table.0.series.write().free_unused(series_max);
        let mut bans = table.next_epochs();
        let epoch_of = |info: &LimitInfo| match &info.algorithm {
            Algorithm::Ban(ban) => Some((info.identity.clone(), ban.epoch)),
            _ => None,
        };
        bans.extend(former.iter().filter_map(|registered| epoch_of(&registered.info)));
        Self { table, used: Vec::new(), beside: Vec::new(), series_max, bans }
    }

    /// The epoch of the ban of this identity: the present epoch of a ban in force, else an epoch that no earlier ban had.
    pub(super) fn epoch_of_ban(&self, identity: &LimitIdentity) -> u32 {
        self.bans.get(identity).copied().unwrap_or(0)
    }

    /// The numbers of this limit.
    pub(super) fn register(&mut self, info: LimitInfo, name: Arc<str>) -> LimitNumbers {
        let name = LimitName { domain: Arc::clone(&info.identity.domain), limit: name };
        let series = self.table.0.series.write().register(&name, self.series_max);
        let limit = self.table.register_used(info);
        let numbers = LimitNumbers { id: limit.id, index: self.used.len() as u32, series: series.id };
        self.used.push(NamedLimit { limit, name, series });
        numbers
    }

    /// The number of a limit that has the name of another.
    pub(super) fn register_beside(&mut self, info: LimitInfo) -> LimitId {
        let registered = self.table.register_used(info);
        let id = registered.id;
        self.beside.push(registered);
        id
    }
}

/// The numbers of one limit of a rule set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LimitNumbers {
    /// Names the limit in its counters.
    pub id: LimitId,
    /// Its index among the limits of the rule set: dense, and not stable across reloads.
    pub index: u32,
    /// Its series in metrics.
    pub series: SeriesId,
}

/// References to a limit that the table itself holds: its entry and the key of `ids`.
const OWN_REFERENCES: usize = 2;

/// Numbers that are looked at or freed under one lock: decisions that convert counters wait for it.
const NUMBERS_PER_LOCK: usize = 256;

/// Up to this many limits are kept without looking for unused ones.
const COLLECTION_MIN: usize = 4_096;

impl LimitTable {
    /// The limit of that number; none if the number is free.
    pub fn get(&self, id: LimitId) -> Option<Arc<LimitInfo>> {
        self.0.known.read().numbered.get(id.0 as usize)?.info.clone()
    }

    /// The number of a limit that counts like this, if it has one.
    pub fn find(&self, info: &LimitInfo) -> Option<LimitId> {
        self.0.known.read().ids.get(info).copied()
    }

    /// The number of this limit, for counters that are restored: it stays while a counter has it.
    pub fn register(&self, info: LimitInfo) -> LimitId {
        if let Algorithm::Ban(ban) = &info.algorithm {
            let mut known = self.0.known.write();
            let epoch = known.restored_bans.entry(info.identity.clone()).or_default();
            *epoch = ban.epoch.max(*epoch);
        }
        self.register_used(info).id
    }

    /// Ends the bans of a former process that no rule has: all rules of the start are in force. Until then, rules continue these bans under
    /// their epochs, since the rules that the server awaits are not other rules than those before.
    pub(crate) fn end_restored_bans(&self) {
        self.0.known.write().restored_bans = HashMap::default();
    }

    /// The number of this limit, in use until the returned value is dropped.
    pub(super) fn register_used(&self, info: LimitInfo) -> Registered {
        let mut known = self.0.known.write();
        let known = &mut *known;
        let registered = known.collection;
        if let Some((info, &id)) = known.ids.get_key_value(&info) {
            known.numbered[id.0 as usize].registered = registered;
            return Registered { id, info: Arc::clone(info) };
        }
        let info = Arc::new(info);
        let id = known.free.pop().unwrap_or_else(|| {
            let next = u32::try_from(known.numbered.len())
                .expect("four thousand million limits do not fit in memory");
            known.numbered.push(Numbered { info: None, registered });
            LimitId(next)
        });
        let numbered = &mut known.numbered[id.0 as usize];
        numbered.info = Some(Arc::clone(&info));
        numbered.registered = registered;
        known.ids.insert(Arc::clone(&info), id);
        Registered { id, info }
    }

    /// The epoch of the next ban, for each identity that had a ban: another than before, except for bans of a former process.
    fn next_epochs(&self) -> HashMap<LimitIdentity, u32, FixedState> {
        let mut epochs = HashMap::<_, _, FixedState>::default();
        let known = self.0.known.read();
        for info in known.numbered.iter().filter_map(|numbered| numbered.info.as_ref()) {
            if let Algorithm::Ban(ban) = &info.algorithm {
                let next: &mut u32 = epochs.entry(info.identity.clone()).or_default();
                *next = ban.epoch.saturating_add(1).max(*next);
            }
        }
        epochs.extend(known.restored_bans.iter().map(|(identity, epoch)| (identity.clone(), *epoch)));
        epochs
    }

    /// Every series of a name. Those of names that no rule has any more stay until they are reused.
    pub fn series(&self) -> Vec<(SeriesId, Arc<LimitName>)> {
        self.0.series.read().named()
    }

    /// Whether a name has this series.
    pub fn has_series(&self, id: SeriesId) -> bool {
        self.0.series.read().has(id)
    }

    /// Every limit with its number, by number.
    pub fn to_vec(&self) -> Vec<(LimitId, Arc<LimitInfo>)> {
        let known = self.0.known.read();
        let used =
            |(index, numbered): (u32, &Numbered)| Some((LimitId(index), Arc::clone(numbered.info.as_ref()?)));
        (0..).zip(&known.numbered).filter_map(used).collect()
    }

    /// Keeps every number's meaning until the returned value is dropped.
    pub fn pin(&self) -> PinnedLimits<'_> {
        PinnedLimits { table: self, _pinned: self.0.pinned.lock() }
    }

    /// Whether the table has grown enough since the last collection for another collection.
    pub fn is_collection_due(&self) -> bool {
        let known = self.0.known.read();
        known.ids.len() > known.due_at.max(COLLECTION_MIN)
    }

    /// Frees the numbers that nothing refers to; returns how many.
    ///
    /// A number is freed if no rule set that is alive when this begins has its limit, no rule set registers it
    /// meanwhile, and `mark`, which is called in between, does not report it as that of a counter. This is sound since a
    /// counter gets a number only from a rule set that is alive at that moment.
    ///
    /// None, and nothing is freed, while the table is [pinned](Self::pin).
    pub fn collect(&self, mark: impl FnOnce(&mut dyn FnMut(LimitId))) -> Option<usize> {
        let _pinned = self.0.pinned.try_lock()?;
        let (mut candidates, collection) = self.candidates();
        let mut found = vec![false; candidates.last().map_or(0, |last| last.0 as usize + 1)];
        mark(&mut |id| {
            if let Some(found) = found.get_mut(id.0 as usize) {
                *found = true;
            }
        });
        candidates.retain(|id| !found[id.0 as usize]);
        let freed = candidates.chunks(NUMBERS_PER_LOCK).map(|ids| self.free(ids, collection)).sum();
        let mut known = self.0.known.write();
        known.due_at = 2 * known.ids.len();
        Some(freed)
    }

    /// The numbers that no rule set has, in ascending order, and the number of the collection that begins.
    fn candidates(&self) -> (Vec<LimitId>, u64) {
        let (collection, end) = {
            let mut known = self.0.known.write();
            known.collection += 1;
            (known.collection, known.numbered.len())
        };
        let is_unused = |numbered: &Numbered| {
            numbered.info.as_ref().is_some_and(|info| Arc::strong_count(info) <= OWN_REFERENCES)
        };
        let mut candidates = Vec::new();
        for from in (0..end).step_by(NUMBERS_PER_LOCK) {
            let known = self.0.known.read();
            let numbered = &known.numbered[from..end.min(from + NUMBERS_PER_LOCK)];
            let numbered = (from as u32..).zip(numbered);
            candidates.extend(
                numbered.filter(|(_, numbered)| is_unused(numbered)).map(|(index, _)| LimitId(index)),
            );
        }
        (candidates, collection)
    }

    /// Frees those of the numbers that were not registered since the collection began; returns how many.
    fn free(&self, ids: &[LimitId], collection: u64) -> usize {
        // Dropped once the lock is released.
        let mut dropped = Vec::with_capacity(ids.len());
        let mut known = self.0.known.write();
        for &id in ids {
            let known = &mut *known;
            let numbered = &mut known.numbered[id.0 as usize];
            if numbered.registered >= collection {
                continue;
            }
            if let Some(info) = numbered.info.take() {
                known.free.push(id);
                dropped.extend(known.ids.remove_entry(&info));
            }
        }
        known.freed += dropped.len() as u64;
        drop(known);
        dropped.len()
    }
}

/// The table while no number changes its meaning.
pub struct PinnedLimits<'t> {
    table: &'t LimitTable,
    _pinned: MutexGuard<'t, ()>,
}

impl PinnedLimits<'_> {
    /// The limit of that number; none if the number is free.
    pub fn get(&self, id: LimitId) -> Option<Arc<LimitInfo>> {
        self.table.get(id)
    }

    /// Numbers freed so far: while it is the same, every number that had a meaning still has it.
    pub fn freed(&self) -> u64 {
        self.table.0.known.read().freed
    }
}

/// The tag of a limit without a name, if it is the only one of its rule without a name.
pub(super) const TAG_UNNAMED: u32 = 0;

/// The tag of a request's own limit: from 1 to 7, by unit.
pub(super) fn tag_of_override(unit: Unit) -> u32 {
    unit as u32 + 1
}

/// The tag of a limit with a name, or of one of several without: made of the name or the window, so that neither the order of a rule's
/// limits nor their number matters. FNV-1a; the highest bit is set, which keeps it apart from the other two kinds.
pub(super) fn tag_of_label(label: &str) -> u32 {
    let hash =
        label.bytes().fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    hash | 1 << 31
}

/// The tag of a limit's ban.
pub(super) fn tag_of_ban(tag: u32) -> u32 {
    tag_of_label(&format!("ban of {tag:x}\0"))
}

#[cfg(test)]
mod tests;
