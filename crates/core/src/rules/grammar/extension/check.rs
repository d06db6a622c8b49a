//! Errors of extensions that do not depend on the descriptors which they extend.

use super::{Extension, ExtensionDocuments, Extensions};
use crate::rules::{
    LoadOptions, Source, SourceId,
    error::Problems,
    grammar::domains,
    limits::{LimitTable, Registrar},
    yaml::Field,
};
use serde_json::{Value, json};

impl ExtensionDocuments<'_> {
    /// Their extensions; none after an error in one of them.
    pub(in crate::rules) fn extensions(&self, options: &LoadOptions, problems: &Problems) -> Extensions<'_> {
        let errors = problems.len();
        let mut extensions = Extensions::default();
        for (report, root) in self.0.values() {
            extensions.read(&Field::root(root, report));
        }
        if problems.len() == errors {
            extensions.check(options);
            // Noted again where the extensions apply.
            problems.take_warnings();
        }
        if problems.len() == errors { extensions } else { Extensions::default() }
    }
}

impl Extensions<'_> {
    /// Reports the errors that do not depend on the descriptors: reads the extensions with descriptors that fit them.
    fn check(&self, options: &LoadOptions) {
        let options = LoadOptions { shared_counters: false, ..*options };
        for (name, of_domain) in &self.0 {
            let document = json!({ "domain": name, "descriptors": fitting(&of_domain.descriptors) });
            let source = Source::new(SourceId::Override("".into()), document.to_string());
            let mut limits = Registrar::new(LimitTable::default(), 0, &[]);
            domains(&source, &options, self, &mut limits, &Problems::default());
            of_domain.descriptors.iter().for_each(Extension::forget_effect);
        }
    }
}

/// Descriptors that the extensions apply to, with limits that fit every valid extension.
fn fitting(extensions: &[Extension<'_>]) -> Value {
    let descriptor = |extension: &Extension<'_>| {
        let limit = extension.field.own("rate_limit");
        let calendar = limit.and_then(|limit| limit.own("calendar"));
        let unit = match &calendar {
            Some(calendar) if calendar.is_true() => "day",
            Some(calendar) => ["day", "week", "month", "year"]
                .into_iter()
                .find(|period| calendar.own(period).is_some())
                .unwrap_or("second"),
            None => "second",
        };
        json!({
            "key": extension.key,
            "value": extension.value,
            "rate_limit": { "unit": unit, "requests_per_unit": 1000 },
            "descriptors": fitting(&extension.below),
        })
    };
    extensions.iter().map(descriptor).collect()
}
