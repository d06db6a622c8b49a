//! Typed reading of a tree: a value of the wrong type is reported with its place and the remedy, and reading continues.
//!
//! A map may be extended by a map of another document: reading takes the pairs of both, the extension's first.

use super::{Kind, Node, Pair, Report, Scalar, join, nearest};
use crate::rules::{
    RuleError,
    error::{Origin, Position},
};
use std::rc::Rc;

/// A value, the path to it, and the report of its document.
#[derive(Clone)]
pub(in crate::rules) struct Field<'n> {
    node: &'n Node,
    path: String,
    report: &'n Report<'n>,
    /// The map of an extension.
    extension: Option<Box<Self>>,
}

/// The pairs of a map while they are read: each is taken by its name, and names that are not taken are unknown.
pub(in crate::rules) struct Fields<'n> {
    map: Field<'n>,
    pairs: &'n [Pair],
    /// The names that were taken or looked for: those that are valid here.
    known: Vec<&'static str>,
    /// Names whose values are left out.
    left_out: Vec<&'static str>,
    /// The pairs of an extension.
    extension: Option<Box<Self>>,
}

/// A pair of a map with free names.
pub(in crate::rules) struct Named<'n> {
    pub(in crate::rules) name: &'n str,
    name_position: Position,
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

impl<'n> Named<'n> {
    /// Place of the name.
    pub(in crate::rules) fn origin(&self) -> Origin {
        self.value.report.origin(self.name_position)
    }

    /// Reports a problem with the name.
    pub(in crate::rules) fn reject(&self, message: impl Into<String>) {
        self.value.report.at(self.name_position, self.value.path.as_str(), message);
    }
}

impl<'n> Field<'n> {
    /// The whole of a document.
    pub(in crate::rules) fn root(node: &'n Node, report: &'n Report<'n>) -> Self {
        Self { node, path: String::new(), report, extension: None }
    }

    /// This map extended by another.
    pub(in crate::rules) fn extended_by(&self, extension: &Self) -> Self {
        Self { extension: Some(Box::new(extension.clone())), ..self.clone() }
    }

    fn child(&self, node: &'n Node, path: String) -> Self {
        Self { node, path, report: self.report, extension: None }
    }

    /// The value of this name, if there is one.
    fn value_in(&self, pairs: &'n [Pair], name: &str) -> Option<Self> {
        let pair = pairs.iter().find(|pair| &*pair.key == name && !pair.value.is_null())?;
        Some(self.child(&pair.value, join(&self.path, name)))
    }

    /// Place of the value.
    pub(in crate::rules) fn origin(&self) -> Origin {
        self.report.origin(self.node.position)
    }

    pub(in crate::rules) fn is_map(&self) -> bool {
        matches!(self.node.kind, Kind::Map(_))
    }

    /// The value of a name in this map alone, without its extension.
    pub(in crate::rules) fn own(&self, name: &str) -> Option<Self> {
        let Kind::Map(pairs) = &self.node.kind else { return None };
        self.value_in(pairs, name)
    }

    /// The text, if it is one.
    pub(in crate::rules) fn as_text(&self) -> Option<&'n str> {
        match &self.node.kind {
            Kind::Scalar(scalar) => Some(&scalar.text),
            _ => None,
        }
    }

    /// Whether there is no value.
    pub(in crate::rules) fn is_null(&self) -> bool {
        self.node.is_null()
    }

    /// Whether this is `true`.
    pub(in crate::rules) fn is_true(&self) -> bool {
        matches!(&self.node.kind, Kind::Scalar(scalar) if scalar.boolean() == Some(true))
    }

    /// The keys and indices that lead to it.
    pub(in crate::rules) fn path(&self) -> &str {
        &self.path
    }

    /// A problem with the value, which is not reported.
    pub(in crate::rules) fn problem(&self, message: impl Into<String>) -> RuleError {
        RuleError { origin: self.origin(), path: self.path.clone(), message: message.into() }
    }

    /// Reports a problem with the value.
    pub(in crate::rules) fn reject(&self, message: impl Into<String>) {
        self.report.at(self.node.position, self.path.as_str(), message);
    }

    /// Reports a problem with the value, and reads nothing of it.
    pub(in crate::rules) fn refuse<T>(&self, message: impl Into<String>) -> Option<T> {
        self.reject(message);
        None
    }

    /// Warns of a value that is valid, and surely does not do what it looks like.
    pub(in crate::rules) fn doubt(&self, message: impl Into<String>) {
        self.report.warn(self.node.position, self.path.as_str(), message);
    }

    fn mistyped<T>(&self, wanted: &str) -> Option<T> {
        let found = match &self.node.kind {
            Kind::Scalar(scalar) if scalar.is_null() => "nothing".to_owned(),
            Kind::Scalar(scalar) => quoted(&scalar.text),
            Kind::List(_) => "a list".to_owned(),
            Kind::Map(_) => "a map".to_owned(),
        };
        self.refuse(format!("{found} is not {wanted}"))
    }

    /// A text; numbers and booleans are taken as they are written.
    pub(in crate::rules) fn text(&self) -> Option<&'n str> {
        match &self.node.kind {
            Kind::Scalar(scalar) => Some(&scalar.text),
            _ => self.mistyped("a text; write one value"),
        }
    }

    /// A boolean.
    pub(in crate::rules) fn boolean(&self) -> Option<bool> {
        match &self.node.kind {
            Kind::Scalar(scalar) if let Some(boolean) = scalar.boolean() => Some(boolean),
            _ => self.mistyped("true or false; write one of the two, without quotes"),
        }
    }

    /// A whole number from 0 to 4294967295.
    pub(in crate::rules) fn whole(&self) -> Option<u32> {
        let Kind::Scalar(scalar) = &self.node.kind else {
            return self.mistyped("a whole number; write a number such as 10");
        };
        if let Some(number) = scalar.whole() {
            return u32::try_from(number)
                .ok()
                .or_else(|| self.mistyped("between 0 and 4294967295; write a number from that range"));
        }
        self.mistyped(&format!("a whole number; {}", whole_remedy(scalar)))
    }

    /// The items of a list.
    pub(in crate::rules) fn list(&self) -> Option<Vec<Self>> {
        let Kind::List(items) = &self.node.kind else {
            return self.mistyped("a list; begin each item with `- `");
        };
        let item = |(index, node): (usize, &'n Rc<Node>)| self.child(node, format!("{}[{index}]", self.path));
        Some(items.iter().enumerate().map(item).collect())
    }

    /// The items of a list, or one text.
    pub(in crate::rules) fn list_or_text(&self) -> Option<Vec<Self>> {
        if self.as_text().is_some() { Some(vec![self.clone()]) } else { self.list() }
    }

    /// The pairs of a map.
    pub(in crate::rules) fn fields(&self) -> Option<Fields<'n>> {
        let Kind::Map(pairs) = &self.node.kind else {
            return self.mistyped("a map; write `key: value` pairs");
        };
        let extension = self.extension.as_ref().and_then(|extension| extension.fields()).map(Box::new);
        Some(Fields { map: self.clone(), pairs, known: Vec::new(), left_out: Vec::new(), extension })
    }

    /// A map as JSON.
    pub(in crate::rules) fn json(&self) -> Option<serde_json::Value> {
        match self.node.kind {
            Kind::Map(_) => Some(self.node.json()),
            _ => self.mistyped("a map; write `key: value` pairs"),
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
    /// Reports a problem with the value of a name, at the place of the map, and reads nothing of it.
    pub(in crate::rules) fn refuse<T>(&self, name: &str, message: impl Into<String>) -> Option<T> {
        self.map.report.at(self.map.node.position, join(&self.map.path, name), message);
        None
    }

    /// The value of a name that every such map has. `remedy` is what to write.
    pub(in crate::rules) fn require(&mut self, name: &'static str, remedy: &str) -> Option<Field<'n>> {
        self.take(name).or_else(|| self.refuse(name, format!("is missing; {remedy}")))
    }

    /// The value of the name; a name without a value counts as absent.
    pub(in crate::rules) fn take(&mut self, name: &'static str) -> Option<Field<'n>> {
        if !self.known.contains(&name) {
            self.known.push(name);
        }
        let extension = self.extension.as_mut().and_then(|extension| extension.take(name));
        let is_left_out = self.left_out.contains(&name);
        let own = self.map.value_in(self.pairs, name).filter(|_| !is_left_out);
        match (own, extension) {
            (Some(own), Some(extension)) if own.is_map() && extension.is_map() => {
                Some(own.extended_by(&extension))
            }
            (own, extension) => extension.or(own),
        }
    }

    /// As [`Self::take`], for a name that narrows what its map is for: without a value, the map would be for everything. That is an error,
    /// and the result then none. `remedy` is what to write.
    pub(in crate::rules) fn take_narrowing(
        &mut self,
        name: &'static str,
        remedy: &str,
    ) -> Result<Option<Field<'n>>, ()> {
        let taken = self.take(name);
        let Some((field, position)) = self.without_value(name).filter(|_| taken.is_none()) else {
            return Ok(taken);
        };
        let message = format!("has no value, so that it would narrow nothing; {remedy}, or remove the key");
        field.report.at(position, field.path.as_str(), message);
        Err(())
    }

    /// Warns of a name without a value.
    pub(in crate::rules) fn doubt_null(&self, name: &str, message: impl Into<String>) {
        if let Some((field, position)) = self.without_value(name) {
            field.report.warn(position, field.path.as_str(), message);
        }
    }

    /// The name, if the map or its extension has it without a value, and its place.
    fn without_value(&self, name: &str) -> Option<(Field<'n>, Position)> {
        let own = self.pairs.iter().find(|pair| &*pair.key == name && pair.value.is_null());
        let own =
            own.map(|pair| (self.map.child(&pair.value, join(&self.map.path, name)), pair.key_position));
        own.or_else(|| self.extension.as_ref()?.without_value(name))
    }

    /// Whether the map has a name that nothing has looked for: it is reported as unknown.
    pub(in crate::rules) fn has_unknown(&self, name: &str) -> bool {
        !self.known.contains(&name) && self.pairs.iter().any(|pair| &*pair.key == name)
    }

    /// Leaves out the map's value of `name` if the extension has a value of `other`, which replaces it.
    pub(in crate::rules) fn replace(&mut self, name: &'static str, other: &'static str) {
        if self.extension.as_mut().is_some_and(|extension| extension.take(other).is_some()) {
            self.left_out.push(name);
        }
    }

    /// Leaves out the extension's value of `name`; returns whether it has one.
    pub(in crate::rules) fn drop_extension(&mut self, name: &'static str) -> bool {
        let Some(extension) = &mut self.extension else { return false };
        let had_value = extension.take(name).is_some();
        extension.left_out.push(name);
        had_value
    }

    /// All pairs, whatever their names.
    pub(in crate::rules) fn into_named(self) -> impl Iterator<Item = Named<'n>> {
        self.pairs.iter().map(move |pair| Named {
            name: &pair.key,
            name_position: pair.key_position,
            value: self.map.child(&pair.value, join(&self.map.path, &pair.key)),
        })
    }

    /// The text of the name, if it has a value.
    pub(in crate::rules) fn text(&mut self, name: &'static str) -> Option<&'n str> {
        self.take(name)?.text()
    }

    /// Whether the name is set to true.
    pub(in crate::rules) fn flag(&mut self, name: &'static str) -> bool {
        self.take(name).and_then(|field| field.boolean()).unwrap_or(false)
    }

    /// Reports every unknown name, with the valid name that may be meant. `elsewhere` returns the remedy for names that are valid in
    /// another place.
    pub(in crate::rules) fn finish(self, elsewhere: impl Fn(&str) -> Option<&'static str>) {
        self.report_unknown(&self.known, &elsewhere);
        if let Some(extension) = &self.extension {
            extension.report_unknown(&self.known, &elsewhere);
        }
    }

    fn report_unknown(&self, valid: &[&'static str], elsewhere: &impl Fn(&str) -> Option<&'static str>) {
        for pair in self.pairs.iter().filter(|pair| !valid.contains(&&*pair.key)) {
            let name = &*pair.key;
            let message = if name.is_empty() {
                "an empty key; write `key: value`".to_owned()
            } else if let Some(place) = elsewhere(name) {
                format!("the key is not known here; {place}")
            } else if let Some(known) = nearest(name, valid) {
                format!("the key is not known; did you mean `{known}`?")
            } else {
                format!("the key is not known; known here: {}", valid.join(", "))
            };
            self.map.report.at(pair.key_position, join(&self.map.path, name), message);
        }
    }
}
