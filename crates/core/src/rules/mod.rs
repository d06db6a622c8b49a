//! Rules: parses YAML into a tree of compiled rules, and matches descriptors against it.
//!
//! [`read`] reads the files (the only IO here), `yaml` parses each into a tree of nodes with positions, `grammar` reads
//! declared rules from those, and `tree` compiles the declared rules of each domain for matching.
//!
//! Invariant: a [`RuleSet`] exists only if every document it was built from is valid. Matching cannot fail; it finds a
//! rule or none.

mod bucket;
mod changes;
mod conditions;
mod divided;
mod documents;
mod error;
mod explain;
mod expressions;
mod files;
mod grammar;
mod letter_case;
mod limit_name;
mod limits;
mod load_options;
mod memory;
mod networks;
mod other_files;
mod overlay;
mod own_limits;
mod pattern;
mod pattern_set;
mod percent;
mod plain_map;
mod quota_settings;
mod quotas;
mod redaction;
mod regexes;
mod reserve;
mod rule;
mod rule_limit;
mod semantics;
mod series;
mod set;
mod source;
#[cfg(test)]
mod tests;
mod text_map;
mod tree;
mod unknown_days;
mod unlimited;
mod value_set;
mod yaml;

pub use bucket::BUCKET_ENTRIES_MAX;
pub use changes::RuleChanges;
pub use conditions::{ConditionalLimit, ConditionalLimits};
pub use divided::{REPORT_INTERVAL, SLICED_FROM, SLICED_MIN, burst_of_window, is_window_sliced};
pub use documents::{Document, config_map_files, documents};
pub use error::{Origin, Position, RuleError, RuleErrors, SourceId};
pub use explain::{Applied, AppliedLimit};
pub use expressions::texts_of;
pub use files::{RuleFilePaths, read, read_regular, read_text};
pub use grammar::DefaultAlgorithm;
pub use limit_name::LimitName;
pub use limits::{LimitIdentity, LimitInfo, LimitTable, PinnedLimits};
pub use load_options::LoadOptions;
pub use networks::{Network, NetworkError, usual_spelling};
pub use overlay::{
    Block, BlockedValues, OVERRIDE_LIMITS_MAX, OverlayMatch, OverrideAction, OverrideLimit,
    OverrideLimitError, OverrideRule,
};
pub use own_limits::OwnLimitSettings;
pub use pattern::Pattern;
pub use percent::Percent;
pub use plain_map::{PlainEntry, plain_map};
pub use quota_settings::QuotaSettings;
pub use redaction::Redaction;
pub use reserve::Reserve;
pub use rule::{Replaced, Rule};
pub use rule_limit::{KeyPrefix, LimitSchedule, RuleLimit, ScheduledLimit};
pub use semantics::{ChargePolicy, Semantics};
pub use series::SERIES_MAX_DEFAULT;
pub use set::RuleSet;
pub use source::{Content, Source};
pub use tidegate_cel::Expression;
pub use tree::{
    DeclaredEntry, DeclaredPath, DeclaredValues, DomainRules, Explanation, Features, Found, Matched, Outcome,
    Step,
};
pub use unknown_days::DayAdvice;
pub use unlimited::{Advice, NamedRules, nearest_name};
pub use value_set::{SetValues, SharedForm, SharedValue, ValueSet};
pub use yaml::{Located, nearest, yaml_text};

/// The rules in force when no file is given: domain `demo`, key `api_key`, 5 per 10 s.
pub const DEMO: &str = include_str!("../../../../examples/demo.yaml");
