//! Parts that algorithms have in common: the requests of a window, and choices by name.

use super::super::window;
use crate::{
    algorithm::Algorithm,
    limit::Window,
    rules::{
        semantics::Semantics,
        yaml::{Field, Fields, nearest, quoted},
    },
};

/// An algorithm, with the numbers that statuses report of its limit.
pub(in super::super) struct Counting {
    pub(in super::super) requests: u32,
    pub(in super::super) window: Window,
    pub(in super::super) algorithm: Algorithm,
}

/// The choice of this name; reports the valid names if it is none of them.
pub(super) fn choice<T: Copy>(field: &Field<'_>, what: &str, choices: &[(&'static str, T)]) -> Option<T> {
    let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
    choice_or(field, what, &format!("write one of {}", names.join(", ")), choices)
}

/// The choice of this name; if there is none, reports the name that may be meant, or the remedy.
pub(in super::super) fn choice_or<T: Copy>(
    field: &Field<'_>,
    what: &str,
    remedy: &str,
    choices: &[(&'static str, T)],
) -> Option<T> {
    let name = field.text()?;
    let chosen = choices.iter().find(|(known, _)| *known == name);
    chosen.map(|(_, chosen)| *chosen).or_else(|| {
        let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
        let meant = nearest(name, &names).map(|meant| format!("did you mean `{meant}`?"));
        let remedy = meant.as_deref().unwrap_or(remedy);
        field.refuse(format!("{} is not {what}; {remedy}", quoted(name)))
    })
}

/// Number of requests and window. Both are read before returning, so that errors in both are reported.
pub(super) fn requests_and_window(fields: &mut Fields<'_>, semantics: Semantics) -> Option<(u32, Window)> {
    let requests = requests(fields, semantics);
    let window = window::window(fields);
    requests.zip(window)
}

/// Number of requests.
pub(super) fn requests(fields: &mut Fields<'_>, semantics: Semantics) -> Option<u32> {
    // The reference server reads a missing number as 0.
    if semantics == Semantics::Reference && fields.take("requests_per_unit").is_none() {
        return Some(0);
    }
    fields.require("requests_per_unit", "write how many requests are admitted (0 denies all)")?.whole()
}
