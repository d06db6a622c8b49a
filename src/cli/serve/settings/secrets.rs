//! Values of flags as the log, `GET /config` and errors show them: without passwords.

use clap::{
    Arg,
    error::{ContextKind, ContextValue},
};
use tidegate_shared::{store::StoreAddress, without_userinfo};

/// The value without passwords: flags with secrets hide their variables' values in the help.
pub(super) fn without_secrets(arg: &Arg, value: &str) -> String {
    let is_address = value.contains("://") || arg.get_long() == Some("statsd");
    match arg.get_long() {
        _ if !arg.is_hide_env_values_set() && is_address => without_userinfo(value),
        _ if !arg.is_hide_env_values_set() => value.to_owned(),
        Some("counters") => {
            value.parse::<StoreAddress>().map_or("…".to_owned(), |address| address.to_string())
        }
        // NAME=VALUE
        _ => match value.split_once('=') {
            // Divided at a colon before the first `=`, the name would contain a part of the value.
            Some((name, _))
                if name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)) =>
            {
                format!("{name}=…")
            }
            _ => "…".to_owned(),
        },
    }
}

/// The error of a wrong value, without passwords.
pub(super) fn error_text(error: &clap::Error, arg: &Arg) -> String {
    match error.get(ContextKind::InvalidValue) {
        Some(ContextValue::String(value)) if !value.is_empty() => {
            error.to_string().replace(value, &without_secrets(arg, value))
        }
        _ => error.to_string(),
    }
}
