//! `entry` of a calendar: the entry of each descriptor that states the day on which its windows begin.

use super::walk::Walk;
use crate::rules::{
    rule_limit::AnchorEntry,
    yaml::{Field, Fields, quoted},
};

/// An entry that states a day.
pub(super) struct DeclaredAnchor<'n> {
    key: &'n str,
    field: Field<'n>,
    /// None until [`Walk::find_anchor`], which knows the keys of the descriptor.
    pub(super) entry: Option<AnchorEntry>,
}

impl Walk<'_, '_> {
    /// Reads `calendar: {month: {entry: KEY}}`, whose period and zone have been read.
    pub(super) fn anchor<'n>(&mut self, fields: &mut Fields<'n>) -> Option<DeclaredAnchor<'n>> {
        let calendar = fields.take("calendar").filter(Field::is_map)?;
        let mut periods = calendar.fields(&mut self.report)?;
        let anchor = ["week", "month", "year"].into_iter().find_map(|period| periods.take(period))?;
        let mut keys = Some(anchor).filter(Field::is_map)?.fields(&mut self.report)?;
        let field = keys.take("entry")?;
        let key = field.text(&mut self.report)?;
        if let Some(schedule) = fields.take("schedule") {
            let message =
                "is not for windows whose day an entry states; remove it, or write the day in `calendar`";
            schedule.reject(&mut self.report, message);
        }
        Some(DeclaredAnchor { key, field, entry: None })
    }

    /// Finds the entry that states the day of a limit among those of the descriptor being read.
    pub(super) fn find_anchor(&mut self, anchor: &mut DeclaredAnchor<'_>) {
        let Some(index) = self.index_of_key(anchor.key, &anchor.field) else { return };
        if self.keys_above[index as usize].shares_counter {
            let message = format!(
                "values of {} share a counter, which would have several days; remove `share_threshold`",
                quoted(anchor.key)
            );
            anchor.field.reject(&mut self.report, message);
            return;
        }
        anchor.entry = Some(AnchorEntry { key: anchor.key.into(), index });
    }
}
