//! Changes of overrides and blocks, in the rules that the server decides by.

use super::{Control, OverlayError, Overlays};
use crate::config::{Config, Feed, load};
use std::sync::{Arc, atomic::Ordering};
use tidegate_core::rules::RuleErrors;

impl Control {
    /// Puts kept overrides and blocks in force, unless they have expired. Call it once, after the first rules.
    pub fn restore_overlays(&self) {
        let Some(config) = self.config() else { return };
        self.overlays.restore(self.now(), |overlays| self.put_in_force(config, overlays));
        self.is_restored.store(true, Ordering::Relaxed);
    }

    /// The overrides and blocks in force. Returns at once, also during a change.
    pub fn overlays(&self) -> Arc<Overlays> {
        self.overlays.current()
    }

    /// Changes the overrides and blocks in force, all or nothing. Writing the file and building the rules takes time: do not call it where
    /// others wait.
    pub fn change_overlays<T>(&self, change: impl FnOnce(&mut Overlays) -> T) -> Result<T, OverlayError> {
        let config = self.restored().ok_or(OverlayError::Starting)?;
        self.overlays.change(change, |overlays| self.put_in_force(config, overlays))
    }

    /// Drops expired overrides and blocks. Returns their ids.
    pub(super) fn expire_overlays(&self) -> Vec<String> {
        let Some(config) = self.restored() else { return Vec::new() };
        self.overlays.expire(self.now(), |overlays| self.put_in_force(config, overlays))
    }

    /// The owner of the rules, once kept overrides and blocks are in force.
    fn restored(&self) -> Option<&Config> {
        self.config().filter(|_| self.is_restored.load(Ordering::Relaxed)).map(|config| &**config)
    }

    fn put_in_force(&self, config: &Config, overlays: &Overlays) -> Result<(), Arc<RuleErrors>> {
        load(config, Feed::Overrides, || Ok(overlays.sources()), &*self.clock, false).map(drop)
    }
}
