//! Extensions: keys for descriptors that another document declares, such as a resource of a control plane, whose message has no
//! fields for them.
//!
//! An extension applies to the descriptor of the same path: the same keys and values, wildcards as they are written. It sets what such a
//! message cannot; the rest stays with the document that declares the descriptor. An extension that applies to nothing has no effect, and
//! is no error: control planes add and remove rules at any time.

mod check;

use super::walk::is_local;
use crate::rules::{
    RuleError, Source,
    error::{Origin, Problems},
    yaml::{self, Field, Fields, Node, Report},
};
use std::{cell::Cell, collections::BTreeMap, rc::Rc};

/// The key of a document that extends others.
const EXTENSIONS: &str = "extensions";

/// Keys of a descriptor that are set by the document which declares it.
const OF_DESCRIPTOR: [&str; 4] = ["shadow_mode", "quota_mode", "detailed_metric", "metadata"];

/// Keys of its `rate_limit` that are set by the same document.
const OF_RATE_LIMIT: [&str; 5] = ["name", "replaces", "requests_per_unit", "unit", "unlimited"];

/// The documents that extend others, by their index among all.
#[derive(Default)]
pub(in crate::rules) struct ExtensionDocuments<'p>(BTreeMap<usize, (Report<'p>, Rc<Node>)>);

/// The extensions of all domains.
#[derive(Default)]
pub(in crate::rules) struct Extensions<'n>(BTreeMap<&'n str, OfDomain<'n>>);

/// The extensions of one domain.
pub(super) struct OfDomain<'n> {
    list: Field<'n>,
    /// Whether its counters are local to each server.
    pub(super) is_local: bool,
    /// `request_limits` of the domain.
    pub(super) own_limits: Option<Field<'n>>,
    pub(super) descriptors: Vec<Extension<'n>>,
}

/// The extension of one descriptor, and of those below it.
pub(super) struct Extension<'n> {
    key: &'n str,
    /// Empty if it has none.
    value: &'n str,
    field: Field<'n>,
    pub(super) below: Vec<Self>,
    effect: Cell<Effect>,
}

/// The effect that an extension had.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// No descriptor has its path.
    None,
    /// The descriptor has no limit that `rate_limit` or `on_deny` could extend.
    WithoutLimit,
    Full,
}

impl<'p> ExtensionDocuments<'p> {
    /// The documents among these that extend others.
    pub(in crate::rules) fn read(sources: &[Source], problems: &'p Problems) -> Self {
        let mut documents = Self::default();
        for (index, source) in sources.iter().enumerate() {
            if source.id.is_overlay() || !source.text().contains(EXTENSIONS) {
                continue;
            }
            let (errors, report) = (problems.len(), Report::new(&source.id, problems));
            match yaml::parse(&source.text(), &report) {
                Some(root) if Field::root(&root, &report).own(EXTENSIONS).is_some() => {
                    documents.0.insert(index, (report, root));
                }
                // Read as a document that declares a domain, which reports the errors.
                _ => problems.truncate(errors),
            }
        }
        documents
    }

    /// Whether the document of this index extends others.
    pub(in crate::rules) fn contain(&self, index: usize) -> bool {
        self.0.contains_key(&index)
    }
}

impl<'n> Extensions<'n> {
    fn read(&mut self, root: &Field<'n>) {
        let Some(mut fields) = root.fields() else { return };
        let name = fields.require("domain", "write the domain of the descriptors to extend");
        let is_local = is_local(fields.take("counters").as_ref());
        let own_limits = fields.take("request_limits");
        let list = fields.take(EXTENSIONS);
        fields.finish(|name| {
            let is_known = name == "descriptors";
            is_known
                .then_some("a document declares descriptors or extends those of others; write two documents")
        });
        let (Some(name), Some(list)) = (name.and_then(|name| name.text()), list) else { return };
        let of_domain = self.0.entry(name).or_insert_with(|| OfDomain {
            list: list.clone(),
            is_local: false,
            own_limits: None,
            descriptors: Vec::new(),
        });
        of_domain.is_local |= is_local;
        of_domain.own_limits = of_domain.own_limits.take().or(own_limits);
        read_list(&list, &mut of_domain.descriptors);
    }

    /// The extensions of a domain.
    pub(super) fn of(&self, domain: &str) -> Option<&OfDomain<'n>> {
        self.0.get(domain)
    }

    /// Extensions that had no effect on the declared domains, each with the reason.
    pub(in crate::rules) fn without_effect(&self, is_declared: impl Fn(&str) -> bool) -> Box<[RuleError]> {
        let mut found = Vec::new();
        for (name, of_domain) in &self.0 {
            if is_declared(name) {
                of_domain.descriptors.iter().for_each(|extension| extension.find_ineffective(&mut found));
            } else {
                let message = format!("has no effect: no rules are declared for the domain {name:?}");
                found.push(of_domain.list.problem(message));
            }
        }
        found.into()
    }
}

impl<'n> Extension<'n> {
    /// The extension of this descriptor.
    pub(super) fn find<'e>(all: &'e [Self], descriptor: &Field<'_>) -> Option<&'e Self> {
        let text = |name| descriptor.own(name).and_then(|field| field.as_text()).unwrap_or_default();
        if all.is_empty() {
            return None;
        }
        let (key, value) = (text("key"), text("value"));
        all.iter().find(|extension| extension.key == key && extension.value == value)
    }

    /// The keys of the descriptor with those of the extension.
    pub(super) fn extend<'s>(&'s self, descriptor: &Field<'s>) -> Option<Fields<'s>> {
        let limit = descriptor.own("rate_limit");
        let is_unlimited =
            |limit: &Field<'_>| limit.own("unlimited").is_some_and(|unlimited| unlimited.is_true());
        let is_limited = limit.is_some_and(|limit| !is_unlimited(&limit));
        let has_several = [&self.field, descriptor].iter().any(|map| map.own("rate_limits").is_some());
        let mut fields = descriptor.extended_by(&self.field).fields()?;
        for name in ["key", "value", "descriptors"] {
            fields.drop_extension(name);
        }
        super::value::SETS.into_iter().for_each(|set| fields.replace("value", set));
        fields.replace("rate_limit", "rate_limits");
        let extends_no_limit = !is_limited && fields.drop_extension("rate_limit");
        let denies_nothing = !is_limited && !has_several && fields.drop_extension("on_deny");
        let is_full = !extends_no_limit && !denies_nothing;
        self.effect.set(if is_full { Effect::Full } else { Effect::WithoutLimit });
        Some(fields)
    }

    /// The place of the extension.
    pub(super) fn origin(&self) -> Origin {
        self.field.origin()
    }

    fn forget_effect(&self) {
        self.effect.set(Effect::None);
        self.below.iter().for_each(Self::forget_effect);
    }

    fn find_ineffective(&self, found: &mut Vec<RuleError>) {
        let message = match self.effect.get() {
            Effect::None => Some("has no effect: no descriptor there has this key and value"),
            Effect::WithoutLimit => Some(
                "`rate_limit` and `on_deny` have no effect: the descriptor has no `rate_limit`, or is unlimited",
            ),
            Effect::Full => None,
        };
        found.extend(message.map(|message| self.field.problem(message)));
        if self.effect.get() != Effect::None {
            self.below.iter().for_each(|below| below.find_ineffective(found));
        }
    }
}

/// Adds the items of a list.
fn read_list<'n>(list: &Field<'n>, found: &mut Vec<Extension<'n>>) {
    for item in list.list().unwrap_or_default() {
        let Some(mut fields) = item.fields() else { continue };
        let key = fields.text("key").unwrap_or_default();
        if key.is_empty() {
            fields.refuse::<()>("key", "is missing; write that of the descriptor to extend");
        }
        let value = fields.text("value").unwrap_or_default();
        let limit = item.own("rate_limit");
        let set_elsewhere = OF_DESCRIPTOR
            .iter()
            .filter_map(|name| item.own(name))
            .chain(limit.iter().flat_map(|limit| OF_RATE_LIMIT.iter().filter_map(|name| limit.own(name))));
        for field in set_elsewhere {
            field.reject("is set by the document that declares the descriptor; remove it here");
        }
        if let Some(first) = found.iter().find(|other| other.key == key && other.value == value) {
            let first = first.origin();
            item.reject(format!(
                "the same key and value as at {first}; write all keys of an extension there"
            ));
        }
        let mut below = Vec::new();
        if let Some(list) = fields.take("descriptors") {
            read_list(&list, &mut below);
        }
        found.push(Extension { key, value, field: item, below, effect: Cell::new(Effect::None) });
    }
}

#[cfg(test)]
mod tests;
