//! Warnings about blocks in files that may match no request, because a domain or a key is misspelt.

use crate::rules::{DomainRules, RuleError, overlay::DeclaredOverlay, text_map::TextMap, yaml::nearest};

/// Warnings about domains without rules, at the first block of each, and about keys that no rule of their domain has, at the first block of
/// each. None while there are no rules at all, as before a control plane has sent any.
pub(super) fn warnings(overlaid: &DeclaredOverlay, domains: &TextMap<DomainRules>) -> Vec<RuleError> {
    let names: Vec<&str> = domains.iter().map(|(name, _)| name).collect();
    let mut warnings = Vec::new();
    for (domain, keys) in overlaid.keys_in_files().filter(|_| !names.is_empty()) {
        let rules = domain.map(|name| (name, domains.get(name)));
        if let Some((name, None)) = rules {
            let nearest = nearest(name, &names).map(|name| format!("; did you mean [{name}]?"));
            let nearest = nearest.unwrap_or_default();
            let message =
                format!("no rules have the domain {name}, so that its blocks deny nothing{nearest}");
            let first = keys.values().min().cloned();
            warnings.extend(first.map(|origin| RuleError { origin, path: String::new(), message }));
            continue;
        }
        for (key, origin) in keys {
            let (of_domain, has_key) = match rules {
                Some((name, Some(rules))) => (format!(" of the domain {name}"), rules.has_key(key)),
                _ => (String::new(), domains.iter().any(|(_, rules)| rules.has_key(key))),
            };
            if !has_key {
                let message = format!(
                    "no rule{of_domain} has the key {key}: the block applies to descriptors that no rule limits; is it misspelt?"
                );
                warnings.push(RuleError { origin: origin.clone(), path: String::new(), message });
            }
        }
    }
    warnings
}
