//! The settings in effect, for the log and for `GET /config`, without secrets.

use super::secrets::without_secrets;
use clap::{Arg, ArgAction, ArgMatches, Command, parser::ValueSource};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Names of flags that were inserted in front of the user's arguments.
#[derive(Debug, Default)]
pub(in crate::cli) struct Inserted {
    /// The file of `--config`.
    pub(super) file: Option<String>,
    /// Those of its settings.
    pub(super) of_file: BTreeSet<String>,
    /// Those that follow from variables of the reference server, and from its defaults.
    pub(super) reference: BTreeSet<String>,
    /// Those that follow from variables of Limitador, and from its defaults.
    pub(super) limitador: BTreeSet<String>,
}

/// Where a setting comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum From {
    Flag,
    Variable,
    File,
    Reference,
    Limitador,
    Default,
}

impl From {
    fn name(self) -> &'static str {
        match self {
            Self::Flag => "flag",
            Self::Variable => "variable",
            Self::File => "file",
            Self::Reference => "reference",
            Self::Limitador => "limitador",
            Self::Default => "default",
        }
    }
}

struct Setting {
    name: String,
    values: Vec<String>,
    /// Whether it has at most one value.
    is_single: bool,
    from: From,
}

/// The settings in effect.
#[derive(Default)]
pub(in crate::cli) struct EffectiveSettings {
    file: Option<String>,
    settings: Vec<Setting>,
    /// On variables that nothing reads.
    warnings: Vec<String>,
}

impl EffectiveSettings {
    pub(super) fn new(command: &Command, matches: &ArgMatches, inserted: Inserted) -> Self {
        let setting = |arg: &Arg| {
            let name = arg.get_long().filter(|name| *name != "help" && *name != "check")?;
            let source = matches.value_source(arg.get_id().as_str())?;
            let from = match source {
                ValueSource::EnvVariable => From::Variable,
                ValueSource::CommandLine if inserted.of_file.contains(name) => From::File,
                ValueSource::CommandLine if inserted.reference.contains(name) => From::Reference,
                ValueSource::CommandLine if inserted.limitador.contains(name) => From::Limitador,
                ValueSource::CommandLine => From::Flag,
                _ => From::Default,
            };
            let values = if matches!(arg.get_action(), ArgAction::SetTrue) {
                vec![matches.get_flag(arg.get_id().as_str()).to_string()]
            } else {
                let raw = matches.get_raw(arg.get_id().as_str())?;
                raw.map(|value| without_secrets(arg, &value.to_string_lossy())).collect()
            };
            let is_single = !matches!(arg.get_action(), ArgAction::Append);
            (!arg.is_hide_set() || from != From::Default).then(|| Setting {
                name: name.to_owned(),
                values,
                is_single,
                from,
            })
        };
        let settings = command.get_arguments().filter_map(setting).collect();
        Self { file: inserted.file, settings, warnings: Vec::new() }
    }

    pub(super) fn with_warnings(self, warnings: Vec<String>) -> Self {
        Self { warnings, ..self }
    }

    /// Warnings of variables that nothing reads.
    pub(in crate::cli) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Logs the settings that differ from the defaults, one line for each origin.
    pub(in crate::cli) fn log(&self) {
        for from in [From::Flag, From::Variable, From::File, From::Reference, From::Limitador] {
            let of = self.settings.iter().filter(|setting| setting.from == from);
            let shown = of.map(|setting| format!("{}={}", setting.name, setting.values.join(",")));
            let settings = shown.collect::<Vec<_>>().join(" ");
            let file = self.file.as_deref().filter(|_| from == From::File);
            if !settings.is_empty() {
                tracing::info!(from = from.name(), file, settings, "settings");
            }
        }
    }

    /// The settings with their values and origins: `{"threads": {"value": "2", "from": "flag"}, …}`.
    pub(in crate::cli) fn to_json(&self) -> Value {
        let setting = |setting: &Setting| {
            let value = match &setting.values[..] {
                [value] if setting.is_single => json!(value),
                values => json!(values),
            };
            (setting.name.clone(), json!({ "value": value, "from": setting.from.name() }))
        };
        let settings: serde_json::Map<String, Value> = self.settings.iter().map(setting).collect();
        json!({ "file": self.file, "settings": settings })
    }
}
