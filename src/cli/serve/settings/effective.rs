//! The settings in effect, for the log and for `GET /config`, without secrets.

use super::{Flags, arguments, secrets::without_secrets};
use clap::{Arg, ArgAction, ArgMatches, Command, parser::ValueSource};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Flags that were inserted in front of the user's arguments.
#[derive(Debug, Default)]
pub(in crate::cli) struct Inserted {
    /// The file of `--config`.
    pub(super) file: Option<String>,
    /// The source of each flag, without its dashes: `file`; `reference` or `limitador` for the variables and the defaults of
    /// those servers.
    pub(super) from: BTreeMap<String, &'static str>,
}

impl Inserted {
    /// The flags as arguments, which come from there.
    pub(super) fn arguments(&mut self, flags: Flags, from: &'static str) -> impl Iterator<Item = String> {
        self.from.extend(flags.iter().map(|(flag, _)| (flag[2..].to_owned(), from)));
        arguments(flags)
    }
}

struct Setting {
    name: String,
    values: Vec<String>,
    /// Whether it has at most one value.
    is_single: bool,
    /// `flag`, `variable`, `default`, or as in [`Inserted`].
    from: &'static str,
}

/// The settings in effect.
#[derive(Default)]
pub(in crate::cli) struct EffectiveSettings {
    file: Option<String>,
    settings: Vec<Setting>,
    /// On variables that nothing reads.
    pub(in crate::cli) warnings: Vec<String>,
}

impl EffectiveSettings {
    pub(super) fn new(command: &Command, matches: &ArgMatches, inserted: Inserted) -> Self {
        let setting = |arg: &Arg| {
            let name = arg.get_long().filter(|name| *name != "help" && *name != "check")?;
            let source = matches.value_source(arg.get_id().as_str())?;
            let from = match source {
                ValueSource::EnvVariable => "variable",
                ValueSource::CommandLine => inserted.from.get(name).copied().unwrap_or("flag"),
                _ => "default",
            };
            let values = if matches!(arg.get_action(), ArgAction::SetTrue) {
                vec![matches.get_flag(arg.get_id().as_str()).to_string()]
            } else {
                let raw = matches.get_raw(arg.get_id().as_str())?;
                raw.map(|value| without_secrets(arg, &value.to_string_lossy())).collect()
            };
            let is_single = !matches!(arg.get_action(), ArgAction::Append);
            let name = name.to_owned();
            (!arg.is_hide_set() || from != "default").then_some(Setting { name, values, is_single, from })
        };
        let settings = command.get_arguments().filter_map(setting).collect();
        Self { file: inserted.file, settings, warnings: Vec::new() }
    }

    /// Logs the settings that differ from the defaults, one line for each origin.
    pub(in crate::cli) fn log(&self) {
        for from in ["flag", "variable", "file", "reference", "limitador"] {
            let of = self.settings.iter().filter(|setting| setting.from == from);
            let shown = of.map(|setting| format!("{}={}", setting.name, setting.values.join(",")));
            let settings = shown.collect::<Vec<_>>().join(" ");
            let file = self.file.as_deref().filter(|_| from == "file");
            if !settings.is_empty() {
                tracing::info!(from, file, settings, "settings");
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
            (setting.name.clone(), json!({ "value": value, "from": setting.from }))
        };
        let settings: serde_json::Map<String, Value> = self.settings.iter().map(setting).collect();
        json!({ "file": self.file, "settings": settings })
    }
}
