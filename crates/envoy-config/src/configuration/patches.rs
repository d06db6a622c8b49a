//! Istio's patches, grouped by the workloads that they apply to.
//!
//! Invariant: all patches of a group apply to the workloads of the group. Conditions on ports and names of listeners are not compared.

use super::{
    manager::{HttpFilter, Manager, Routes},
    routes::{RouteConfig, VirtualHost},
};
use crate::part::Part;
use std::collections::BTreeSet;

/// The default of Istio's root namespace, whose patches apply in every namespace.
const ROOT_NAMESPACE: &str = "istio-system";

/// The workloads of a patch, and the context of its listeners.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Scope<'d> {
    /// Empty if it is not stated.
    namespace: &'d str,
    /// The labels of `workloadSelector`.
    labels: BTreeSet<(&'d str, &'d str)>,
    /// Kinds and names of `targetRefs`; none for every workload.
    targets: BTreeSet<(&'d str, &'d str)>,
    /// Such as `GATEWAY`; empty for any.
    context: &'d str,
}

impl<'d> Scope<'d> {
    /// The scope of a patch of an EnvoyFilter.
    pub(super) fn of(filter: Part<'d>, patch: Part<'d>) -> Self {
        let labels = filter.get_in(["spec", "workloadSelector", "labels"]).into_iter().flat_map(Part::fields);
        let targets = filter.get("spec").into_iter().flat_map(|spec| spec.list("targetRefs"));
        let context = patch.get_in(["match", "context"]).map_or("", Part::as_text);
        Self {
            namespace: filter.get_in(["metadata", "namespace"]).map_or("", Part::as_text),
            labels: labels.map(|(name, value)| (name, value.as_text())).collect(),
            targets: targets.map(|target| (target.text("kind"), target.text("name"))).collect(),
            context: if context == "ANY" { "" } else { context },
        }
    }

    /// The scopes with one of the targets, and one of these contexts.
    fn parts(&self, contexts: &BTreeSet<&'d str>) -> Vec<Self> {
        let mut targets: Vec<_> = self.targets.iter().map(|target| BTreeSet::from([*target])).collect();
        if targets.is_empty() {
            targets.push(BTreeSet::new());
        }
        let parts = targets.into_iter().flat_map(|targets| {
            contexts.iter().map(move |context| Self { targets: targets.clone(), context, ..self.clone() })
        });
        parts.collect()
    }

    /// Whether its patches apply wherever those of a part of a scope do.
    fn covers(&self, part: &Self) -> bool {
        [part.namespace, ROOT_NAMESPACE].contains(&self.namespace)
            && self.labels.is_subset(&part.labels)
            && (self.targets.is_empty() || !part.targets.is_empty() && part.targets.is_subset(&self.targets))
            && ["", part.context].contains(&self.context)
    }

    /// `shop, app=cart, GATEWAY`.
    fn text(&self) -> String {
        let labels = self.labels.iter().map(|(name, value)| format!("{name}={value}"));
        let targets = self.targets.iter().map(|(kind, name)| format!("{kind} {name}"));
        let names = [self.namespace.to_owned()].into_iter().chain(labels).chain(targets);
        let names = names.chain([self.context.to_owned()]).filter(|name| !name.is_empty());
        names.collect::<Vec<_>>().join(", ")
    }
}

/// An addition of a patch to the listeners of its workloads.
pub(super) enum Addition<'d> {
    Filter(HttpFilter<'d>),
    Host(VirtualHost<'d>),
}

struct Patch<'d> {
    part: Part<'d>,
    scope: Scope<'d>,
    addition: Addition<'d>,
}

/// The patches of a mesh that add something to listeners.
#[derive(Default)]
pub(super) struct Patches<'d>(Vec<Patch<'d>>);

impl<'d> Patches<'d> {
    pub(super) fn add(&mut self, part: Part<'d>, scope: &Scope<'d>, addition: Addition<'d>) {
        self.0.push(Patch { part, scope: scope.clone(), addition });
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// One connection manager for each group.
    pub(super) fn managers(&self) -> Vec<Manager<'d>> {
        let groups = self.groups();
        let is_only = groups.len() == 1;
        let managers = groups.iter().filter_map(|(scope, patches)| {
            let name = if is_only { "(patches)".to_owned() } else { format!("(patches: {})", scope.text()) };
            self.manager(name, patches)
        });
        managers.collect()
    }

    /// The patches of each scope, by index; without groups whose patches another group has too.
    fn groups(&self) -> Vec<(Scope<'d>, BTreeSet<usize>)> {
        let mut contexts: BTreeSet<&str> = self.0.iter().map(|patch| patch.scope.context).collect();
        if contexts.len() > 1 {
            contexts.remove("");
        }
        let mut scopes: Vec<Scope<'d>> = Vec::new();
        for scope in self.0.iter().flat_map(|patch| patch.scope.parts(&contexts)) {
            if !scopes.contains(&scope) {
                scopes.push(scope);
            }
        }
        let covering = |scope: &Scope<'d>| {
            let indices = self.0.iter().enumerate().filter(|(_, patch)| patch.scope.covers(scope));
            indices.map(|(index, _)| index).collect::<BTreeSet<_>>()
        };
        let mut groups: Vec<(Scope<'d>, BTreeSet<usize>)> = Vec::new();
        for scope in scopes {
            let patches = covering(&scope);
            if groups.iter().any(|(_, other)| patches.is_subset(other)) {
                continue;
            }
            groups.retain(|(_, other)| !other.is_subset(&patches));
            groups.push((scope, patches));
        }
        groups
    }

    /// The connection manager with these patches; its place is that of the first.
    fn manager(&self, name: String, patches: &BTreeSet<usize>) -> Option<Manager<'d>> {
        let part = self.0.get(*patches.first()?)?.part;
        let (mut filters, mut hosts) = (Vec::new(), Vec::new());
        for patch in patches.iter().filter_map(|index| self.0.get(*index)) {
            match &patch.addition {
                Addition::Filter(filter) => filters.push(filter.clone()),
                Addition::Host(host) => hosts.push(host.clone()),
            }
        }
        let routes = Routes::Inline(RouteConfig { part, name: "", hosts, is_copy: false });
        Some(Manager { part, name, filters, routes, is_patched: true })
    }
}
