//! `entry` of a calendar: the entry of each descriptor that states the day on which its windows begin.

use super::walk::Walk;
use crate::rules::{
    rule_limit::AnchorEntry,
    yaml::{Field, Fields, quoted},
};

impl Walk<'_> {
    /// Reads KEY of `calendar: {month: {entry: KEY}}`: the entry of the descriptor being read that states the day of the limit. Period and
    /// zone have been read.
    pub(super) fn anchor(&self, fields: &mut Fields<'_>) -> Option<AnchorEntry> {
        let calendar = fields.take("calendar").filter(Field::is_map)?;
        let mut periods = calendar.fields()?;
        let anchor = ["week", "month", "year"].into_iter().find_map(|period| periods.take(period))?;
        let mut keys = Some(anchor).filter(Field::is_map)?.fields()?;
        let field = keys.take("entry")?;
        let key = field.text()?;
        if let Some(schedule) = fields.take("schedule") {
            schedule.reject(
                "is not for windows whose day an entry states; remove it, or write the day in `calendar`",
            );
        }
        let index = self.index_of_key(key, &field)?;
        if self.keys_above[index as usize].shares_counter {
            return field.refuse(format!(
                "values of {} share a counter, which would have several days; remove `share_threshold`",
                quoted(key)
            ));
        }
        Some(AnchorEntry { key: key.into(), index })
    }
}
