//! Changes of overrides and blocks: on disk first, then in force, or neither.

use super::{Control, OVERLAYS_MAX, OverlayError, Overlays};
use crate::config::{Config, Feed, load};
use std::sync::{Arc, atomic::Ordering};
use tidegate_core::rules::RuleErrors;

impl Control {
    /// Puts kept overrides and blocks in force, unless they have expired. Call it once, after the first rules.
    pub fn restore_overlays(&self) {
        let Some(config) = self.config() else { return };
        let mut store = self.overlays.lock();
        store.current.expire(self.now());
        if store.current != Overlays::default() {
            // `put_in_force` logs errors.
            let _ = self.put_in_force(config, &store.current);
        }
        self.is_restored.store(true, Ordering::Relaxed);
    }

    /// The overrides and blocks in force.
    pub fn overlays(&self) -> Overlays {
        self.overlays.lock().current.clone()
    }

    /// Changes the overrides and blocks in force, all or nothing. Building the rules takes time: do not call it where others wait.
    pub fn change_overlays<T>(&self, change: impl FnOnce(&mut Overlays) -> T) -> Result<T, OverlayError> {
        let config = self.config().filter(|_| self.is_restored.load(Ordering::Relaxed));
        let config = config.ok_or(OverlayError::Starting)?;
        let mut store = self.overlays.lock();
        let mut next = store.current.clone();
        let changed = change(&mut next);
        if next.overrides.len() > OVERLAYS_MAX || next.blocks.len() > OVERLAYS_MAX {
            return Err(OverlayError::TooMany);
        }
        if next == store.current {
            return Ok(changed);
        }
        // On disk first, so that what is in force survives a restart.
        if let Some(path) = &store.file {
            next.write(path).map_err(|source| OverlayError::File { path: path.clone(), source })?;
        }
        if let Err(errors) = self.put_in_force(config, &next) {
            if let Some(path) = &store.file {
                let _ = store.current.write(path);
            }
            return Err(OverlayError::Rules(errors));
        }
        store.current = next;
        Ok(changed)
    }

    /// Drops expired overrides and blocks. Returns their ids.
    pub(super) fn expire_overlays(&self) -> Vec<String> {
        let now = self.now();
        let is_due = !self.overlays.lock().current.clone().expire(now).is_empty();
        if !is_due {
            return Vec::new();
        }
        self.change_overlays(|overlays| overlays.expire(now)).unwrap_or_default()
    }

    fn put_in_force(&self, config: &Config, overlays: &Overlays) -> Result<(), Arc<RuleErrors>> {
        load(config, Feed::Overrides, || Ok(overlays.sources()), &*self.clock, false).map(drop)
    }
}
