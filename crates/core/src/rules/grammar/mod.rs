//! The grammar of rule files: reads declared descriptors from nodes.
//!
//! A key is known exactly where it is read: the functions here take each key by its name, and keys left over are unknown. After an error,
//! reading continues with the rest, to find all errors; the result is then discarded.

mod algorithm;
mod anchors;
mod ban;
mod debt;
mod declared;
mod descriptor;
mod doubts;
mod extension;
mod limits_file;
mod on_deny;
mod own_limits;
mod rate_limit;
mod rates;
mod reserve;
mod schedule;
mod value;
mod walk;
mod window;

pub use algorithm::DefaultAlgorithm;
pub(super) use debt::debt_max_default;
pub(super) use declared::{Declared, DeclaredDomain, DeclaredKey, DeclaredQuotas, DeclaredValue};
pub(super) use extension::{ExtensionDocuments, Extensions};
pub(super) use window::length as parse_window;

use super::{
    Source,
    error::Problems,
    limits::Registrar,
    load_options::LoadOptions,
    other_files,
    yaml::{self, Field, Report},
};
use std::sync::Arc;
use walk::{Home, ShownValues, Walk, home, is_local};

/// The domains that a file declares: one, or those of the limits in a LIMITS_FILE. Invalid domains are reported.
pub(super) fn domains(
    source: &Source,
    options: &LoadOptions,
    extensions: &Extensions<'_>,
    limits: &mut Registrar,
    problems: &Problems,
) -> Vec<DeclaredDomain> {
    if let Some(kind) = other_files::kind(source) {
        problems.of_source(source.id.clone(), format!("this is {kind}"));
        return Vec::new();
    }
    let report = Report::new(&source.id, problems);
    let Some(root) = yaml::parse(&source.text(), &report) else {
        return Vec::new();
    };
    if root.is_list() {
        return limits_file::domains(&Field::root(&root, &report), options, limits);
    }
    domain(&Field::root(&root, &report), options, extensions, limits).into_iter().collect()
}

fn domain(
    root: &Field<'_>,
    options: &LoadOptions,
    extensions: &Extensions<'_>,
    limits: &mut Registrar,
) -> Option<DeclaredDomain> {
    let mut fields = root.fields()?;
    let name = fields.require("domain", "begin the file with `domain: NAME`");
    // Has no meaning, as in the reference server; Envoy Gateway writes it.
    let _ = fields.text("name");
    let descriptors = fields.take("descriptors");
    let extensions = name.as_ref().and_then(Field::as_text).and_then(|name| extensions.of(name));
    let is_local =
        is_local(fields.take("counters").as_ref()) | extensions.is_some_and(|extensions| extensions.is_local);
    let (semantics, is_shared) = (options.semantics, options.shared_counters && !is_local);
    let mut walk = Walk {
        limits,
        semantics,
        default_algorithm: options.default_algorithm,
        is_shared,
        is_leased: options.leases,
        domain: Arc::default(),
        above: ShownValues::default(),
        keys_above: Vec::new(),
        labels_above: Vec::new(),
    };
    let named = name.as_ref().and_then(|name| match name.text()? {
        "" => name.refuse("is empty; write the domain that requests name"),
        text => {
            walk.domain = text.into();
            Some(name.origin())
        }
    });
    let extended = extensions.and_then(|extensions| extensions.own_limits.clone());
    let extensions = extensions.map(|extensions| &extensions.descriptors[..]).unwrap_or_default();
    let own_limits = fields.take("request_limits").or(extended).and_then(|field| {
        let origin = field.origin();
        walk.own_limits(&field).map(|settings| (settings, origin))
    });
    let quotas = fields.take("rlqs").and_then(|field| walk.quotas(&field));
    let descriptors = descriptors.map(|list| walk.descriptors(&list, "", extensions)).unwrap_or_default();
    if let Some(name) = name.as_ref().filter(|_| descriptors.is_empty() && own_limits.is_none()) {
        name.doubt("has no descriptors, so none of its requests is limited; add `descriptors`");
    }
    fields.finish(|name| match home(name)? {
        Home::File => None,
        Home::Descriptor => Some("it belongs to a descriptor: an item of `descriptors`"),
        Home::RateLimit => Some("it belongs under `rate_limit` of a descriptor"),
        Home::Schedule => Some("it belongs to the items of `schedule`, under `rate_limit` of a descriptor"),
        Home::Ban => Some("it belongs under `ban` of a `rate_limit`"),
        Home::OnDeny => Some("it belongs under `on_deny` of a descriptor"),
    });
    let (name, limits) = (walk.domain, Vec::new());
    Some(DeclaredDomain { name, origin: named?, descriptors, limits, is_shared, quotas, own_limits })
}
