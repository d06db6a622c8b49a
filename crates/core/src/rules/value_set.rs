//! Values of a descriptor that are more than one text: a list, networks, a regular expression, texts in any case of letters.

use super::{Network, Pattern, letter_case::folded, regexes::Regex};
use smol_str::SmolStr;
use std::{borrow::Cow, fmt, net::IpAddr};

/// Values of a descriptor's key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ValueSet {
    pub(super) values: Values,
    /// Whether letters match in either case.
    pub(super) ignores_case: bool,
    /// Whether all values share one counter.
    pub(super) shares_counter: bool,
    /// Stands for the values in the rule's path and, if they share a counter, in its key. Unique among the sets of a key and level; adding
    /// values to a list does not change it.
    pub(super) label: Box<str>,
}

/// At least one value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Values {
    /// `value`, with letters in any case.
    One(SmolStr),
    List(Box<[SmolStr]>),
    /// In lower case: sets have wildcards only with letters in any case.
    Wildcard(Pattern),
    Networks(Box<[Network]>),
    Regex(Box<Regex>),
}

/// The values of a [`ValueSet`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum SetValues<'s> {
    /// These texts; at least one.
    Texts(&'s [SmolStr]),
    /// Texts that match this pattern.
    Wildcard(&'s Pattern),
    /// Addresses of these networks; at least one.
    Networks(&'s [Network]),
    /// Texts that match this expression.
    Regex(&'s str),
}

/// The form of an entry's value that keys of counters have instead of the value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SharedForm {
    /// A pattern, for all values that match it.
    Pattern,
    /// The label of a [`ValueSet`], for all its values.
    Set,
    /// The value with all letters in lower case.
    AnyCase,
    /// The address, however it is written.
    Address,
}

/// An entry whose value shares a counter with others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SharedValue<'r> {
    /// Index of the entry.
    pub entry: u32,
    /// The form in the counter's key.
    pub form: SharedForm,
    /// The pattern or the label; empty for forms of the value itself.
    pub text: &'r str,
}

impl SharedValue<'_> {
    /// Whether several values have the form, not only spellings of one value.
    pub(super) fn is_of_several(&self) -> bool {
        matches!(self.form, SharedForm::Pattern | SharedForm::Set)
    }

    /// The form of this value, as a text.
    pub fn of<'v>(&'v self, value: &'v str) -> Cow<'v, str> {
        match self.form {
            SharedForm::Pattern | SharedForm::Set => self.text.into(),
            SharedForm::AnyCase => folded(value),
            SharedForm::Address => match value.parse::<IpAddr>() {
                // An IPv4 address has one form.
                Ok(IpAddr::V4(_)) | Err(_) => value.into(),
                Ok(address) => address.to_canonical().to_string().into(),
            },
        }
    }
}

impl ValueSet {
    pub(super) fn new(values: Values, ignores_case: bool, shares_counter: bool) -> Self {
        let (kind, text): (_, Cow<'_, str>) = match &values {
            Values::One(text) => ("value", text.as_str().into()),
            Values::List(texts) => ("list", texts.first().map(SmolStr::as_str).unwrap_or_default().into()),
            Values::Wildcard(pattern) => ("value", pattern.as_str().into()),
            Values::Networks(networks) => {
                ("network", networks.first().map(Network::to_string).unwrap_or_default().into())
            }
            Values::Regex(regex) => ("regex", regex.as_str().into()),
        };
        let any_case = if ignores_case { ", any case" } else { "" };
        let label = format!("({kind} {}{any_case})", unambiguous(&text)).into();
        Self { values, ignores_case, shares_counter, label }
    }

    /// The text that stands for the values.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// The values.
    pub fn values(&self) -> SetValues<'_> {
        match &self.values {
            Values::One(text) => SetValues::Texts(std::slice::from_ref(text)),
            Values::List(texts) => SetValues::Texts(texts),
            Values::Wildcard(pattern) => SetValues::Wildcard(pattern),
            Values::Networks(networks) => SetValues::Networks(networks),
            Values::Regex(regex) => SetValues::Regex(regex.as_str()),
        }
    }

    /// Whether letters match in either case.
    pub fn ignores_case(&self) -> bool {
        self.ignores_case
    }

    /// Whether all values share one counter.
    pub fn shares_counter(&self) -> bool {
        self.shares_counter
    }

    /// Whether it lists several networks.
    pub(super) fn has_several_networks(&self) -> bool {
        matches!(&self.values, Values::Networks(networks) if networks.len() > 1)
    }

    /// The form of values in keys of counters; none if that is the value as it is.
    pub(super) fn form(&self) -> Option<(SharedForm, &str)> {
        match &self.values {
            _ if self.shares_counter => Some((SharedForm::Set, &self.label)),
            Values::Networks(_) => Some((SharedForm::Address, "")),
            _ if self.ignores_case => Some((SharedForm::AnyCase, "")),
            _ => None,
        }
    }
}

/// The text itself, in quotes if it is not clear where it ends: counters are kept by path, so no two may be equal.
pub(super) fn unambiguous(text: &str) -> Cow<'_, str> {
    let ambiguous =
        |c: char| matches!(c, '=' | '→' | '(' | '"' | '\\') || c.is_whitespace() || c.is_control();
    if text.is_empty() || text.contains(ambiguous) {
        serde_json::Value::from(text).to_string().into()
    } else {
        text.into()
    }
}

/// As a part of explanations: `the list free, trial`.
impl fmt::Display for ValueSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN_MAX: usize = 4;
        fn list(f: &mut fmt::Formatter<'_>, what: &str, shown: &[impl fmt::Display]) -> fmt::Result {
            f.write_str(what)?;
            for (index, value) in shown.iter().take(SHOWN_MAX).enumerate() {
                write!(f, "{} {value}", if index > 0 { "," } else { "" })?;
            }
            match shown.len().saturating_sub(SHOWN_MAX) {
                0 => Ok(()),
                more => write!(f, " and {more} more"),
            }
        }
        match &self.values {
            Values::One(text) => write!(f, "the value {text}")?,
            Values::List(texts) => list(f, "the list", texts)?,
            Values::Wildcard(pattern) => write!(f, "the wildcard {pattern}")?,
            Values::Networks(networks) if networks.len() == 1 => list(f, "the network", networks)?,
            Values::Networks(networks) => list(f, "the networks", networks)?,
            Values::Regex(regex) => write!(f, "the regular expression {}", regex.as_str())?,
        }
        if self.ignores_case {
            f.write_str(" in any case of letters")?;
        }
        if self.shares_counter { f.write_str(", with one counter for all its values") } else { Ok(()) }
    }
}
