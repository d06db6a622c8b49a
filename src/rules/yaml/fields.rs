//! Typed reading of a tree: a value of the wrong type is reported with its place and the remedy, and reading continues.

use super::{Kind, Node, Pair, Report, Scalar, join, nearest};
use crate::rules::error::Position;
use std::rc::Rc;

/// A value and the path to it.
pub(in crate::rules) struct Field<'n> {
    node: &'n Node,
    path: String,
}

/// The pairs of a map while they are read: each is taken by its name, and names that are not taken are unknown.
pub(in crate::rules) struct Fields<'n> {
    position: Position,
    path: String,
    pairs: &'n [Pair],
    /// The names that were taken or looked for: those that are valid here.
    known: Vec<&'static str>,
}

/// A pair of a map with free names.
pub(in crate::rules) struct Named<'n> {
    pub(in crate::rules) name: &'n str,
    pub(in crate::rules) name_position: Position,
    pub(in crate::rules) value: Field<'n>,
}

/// A value as messages show it: quoted, and cut if it is long.
pub(in crate::rules) fn quoted(text: &str) -> String {
    const SHOWN_MAX: usize = 60;
    match text.char_indices().nth(SHOWN_MAX) {
        None => format!("{text:?}"),
        Some((cut, _)) => format!("{:?}…", &text[..cut]),
    }
}

impl<'n> Field<'n> {
    /// The whole document.
    pub(in crate::rules) fn root(node: &'n Node) -> Self {
        Self { node, path: String::new() }
    }

    /// Position of the value.
    pub(in crate::rules) fn position(&self) -> Position {
        self.node.position
    }

    /// The keys and indices that lead to it.
    pub(in crate::rules) fn path(&self) -> &str {
        &self.path
    }

    /// Reports a problem with the value.
    pub(in crate::rules) fn reject(&self, report: &mut Report<'_>, message: impl Into<String>) {
        report.at(self.node.position, self.path.as_str(), message);
    }

    fn mistyped<T>(&self, report: &mut Report<'_>, wanted: &str) -> Option<T> {
        let found = match &self.node.kind {
            Kind::Scalar(scalar) if scalar.is_null() => "nothing".to_owned(),
            Kind::Scalar(scalar) => quoted(&scalar.text),
            Kind::List(_) => "a list".to_owned(),
            Kind::Map(_) => "a map".to_owned(),
        };
        self.reject(report, format!("{found} is not {wanted}"));
        None
    }

    /// A text; numbers and booleans are taken as they are written.
    pub(in crate::rules) fn text(&self, report: &mut Report<'_>) -> Option<&'n str> {
        match &self.node.kind {
            Kind::Scalar(scalar) => Some(&scalar.text),
            _ => self.mistyped(report, "a text; write one value"),
        }
    }

    /// A boolean.
    pub(in crate::rules) fn boolean(&self, report: &mut Report<'_>) -> Option<bool> {
        match &self.node.kind {
            Kind::Scalar(scalar) if let Some(boolean) = scalar.boolean() => Some(boolean),
            _ => self.mistyped(report, "true or false; write one of the two, without quotes"),
        }
    }

    /// A whole number from 0 to 4294967295.
    pub(in crate::rules) fn whole(&self, report: &mut Report<'_>) -> Option<u32> {
        let Kind::Scalar(scalar) = &self.node.kind else {
            return self.mistyped(report, "a whole number; write a number such as 10");
        };
        if let Some(number) = scalar.whole() {
            return u32::try_from(number).ok().or_else(|| {
                self.mistyped(report, "between 0 and 4294967295; write a number from that range")
            });
        }
        self.mistyped(report, &format!("a whole number; {}", whole_remedy(scalar)))
    }

    /// The items of a list.
    pub(in crate::rules) fn list(&self, report: &mut Report<'_>) -> Option<Vec<Self>> {
        let Kind::List(items) = &self.node.kind else {
            return self.mistyped(report, "a list; begin each item with `- `");
        };
        let item =
            |(index, node): (usize, &'n Rc<Node>)| Self { node, path: format!("{}[{index}]", self.path) };
        Some(items.iter().enumerate().map(item).collect())
    }

    /// The pairs of a map.
    pub(in crate::rules) fn fields(&self, report: &mut Report<'_>) -> Option<Fields<'n>> {
        let Kind::Map(pairs) = &self.node.kind else {
            return self.mistyped(report, "a map; write `key: value` pairs");
        };
        Some(Fields { position: self.node.position, path: self.path.clone(), pairs, known: Vec::new() })
    }

    /// A map as JSON.
    pub(in crate::rules) fn json(&self, report: &mut Report<'_>) -> Option<serde_json::Value> {
        match self.node.kind {
            Kind::Map(_) => Some(self.node.json()),
            _ => self.mistyped(report, "a map; write `key: value` pairs"),
        }
    }
}

fn whole_remedy(scalar: &Scalar) -> String {
    let unquoted = Scalar { text: scalar.text.trim().into(), plain: true };
    if let Some(number) = unquoted.whole() {
        return format!("write {number} without quotes");
    }
    let digits = scalar.text.trim_start_matches('0');
    if let Ok(number) = digits.parse::<u32>() {
        return format!("write {number} without the leading zero");
    }
    match scalar.text.parse::<f64>() {
        Ok(number) if number.is_finite() && number >= 0.0 && number < f64::from(u32::MAX) => {
            format!("write {:.0}", number.ceil())
        }
        _ => "write a number such as 10".to_owned(),
    }
}

impl<'n> Fields<'n> {
    /// Position of the map.
    pub(in crate::rules) fn position(&self) -> Position {
        self.position
    }

    /// The path of the value of that name, whether it exists or not.
    pub(in crate::rules) fn path_of(&self, name: &str) -> String {
        join(&self.path, name)
    }

    /// The value of the name; a name without a value counts as absent.
    pub(in crate::rules) fn take(&mut self, name: &'static str) -> Option<Field<'n>> {
        if !self.known.contains(&name) {
            self.known.push(name);
        }
        let pair = self.pairs.iter().find(|pair| &*pair.key == name)?;
        (!pair.value.is_null()).then(|| Field { node: &pair.value, path: join(&self.path, name) })
    }

    /// All pairs, whatever their names.
    pub(in crate::rules) fn into_named(self) -> impl Iterator<Item = Named<'n>> {
        self.pairs.iter().map(move |pair| Named {
            name: &pair.key,
            name_position: pair.key_position,
            value: Field { node: &pair.value, path: join(&self.path, &pair.key) },
        })
    }

    /// The text of the name, if it has a value.
    pub(in crate::rules) fn text(&mut self, name: &'static str, report: &mut Report<'_>) -> Option<&'n str> {
        self.take(name)?.text(report)
    }

    /// Whether the name is set to true.
    pub(in crate::rules) fn flag(&mut self, name: &'static str, report: &mut Report<'_>) -> bool {
        self.take(name).and_then(|field| field.boolean(report)).unwrap_or(false)
    }

    /// Reports every unknown name, with the valid one that may be meant. `elsewhere` returns the remedy for names that are
    /// valid in another place.
    pub(in crate::rules) fn finish(
        self,
        report: &mut Report<'_>,
        elsewhere: impl Fn(&str) -> Option<&'static str>,
    ) {
        for pair in self.pairs.iter().filter(|pair| !self.known.contains(&&*pair.key)) {
            let name = &*pair.key;
            let message = if name.is_empty() {
                "an empty key; write `key: value`".to_owned()
            } else if let Some(place) = elsewhere(name) {
                format!("the key is not known here; {place}")
            } else if let Some(known) = nearest(name, &self.known) {
                format!("the key is not known; did you mean `{known}`?")
            } else {
                format!("the key is not known; known here: {}", self.known.join(", "))
            };
            report.at(pair.key_position, join(&self.path, name), message);
        }
    }
}
