//! Files that are no rule files: ConfigMaps, which may have some, and others, whose kind errors name.

use super::{
    Source, SourceId,
    documents::{Document, config_map_files, documents},
    yaml::Located,
};

/// Outermost keys of rule files; in a list, of its items.
const OF_RULES: [&str; 4] = ["descriptors", "domain", "extensions", "namespace"];

/// Whether a file may have ConfigMaps.
pub(super) fn may_have_rule_files(file: &Source) -> bool {
    matches!(file.id, SourceId::File(_)) && file.text().contains("ConfigMap")
}

/// The rule files within the ConfigMaps of a file, those of a `List` too; or the file itself, if it has none. A file with rules outside its
/// ConfigMaps stays whole, and is then refused: rules of one part would be lost.
pub(super) fn rule_files(file: Source) -> Vec<Source> {
    let all = may_have_rule_files(&file).then(|| documents(&file).ok()).flatten();
    let all = all.filter(|all| !have_rules(all));
    let texts = all.iter().flatten().flat_map(|document| config_map_files(&file, document.root()));
    // Other texts of a ConfigMap may be anything. Rules that are not YAML are kept for the place of their error.
    let is_rule_file = |source: &Source| match documents(source) {
        Ok(all) => have_rules(&all),
        Err(_) => looks_like_rules(&source.text()),
    };
    let found: Vec<Source> = texts.filter(is_rule_file).collect();
    if found.is_empty() { vec![file] } else { found }
}

/// Whether a text is that of a rule file, whatever the file is called. All of it may be indented.
pub(super) fn looks_like_rules(text: &str) -> bool {
    let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let indent = &first[..first.len() - first.trim_start().len()];
    let begins = |line: &str| line.starts_with("domain:") || line.starts_with("- namespace:");
    text.lines().filter_map(|line| line.strip_prefix(indent)).any(begins)
        || text.trim_start().starts_with('{')
            && text.contains("\"domain\"")
            && text.contains("\"descriptors\"")
}

/// Whether one of the documents has rules.
fn have_rules(all: &[Document]) -> bool {
    all.iter().any(|document| is_of_rules(document.root()))
}

/// Whether one of the outermost keys is that of a rule file.
fn is_of_rules(root: Located<'_>) -> bool {
    let has = |map: Located<'_>| OF_RULES.iter().any(|key| map.get(key).is_some());
    has(root) || root.items().any(has)
}

/// The kind of a file that is no rule file, with the remedy; none for rule files and for unknown files.
pub(super) fn kind(file: &Source) -> Option<String> {
    // Avoids parsing most rule files a second time.
    let is_key = |key: &str| {
        let text = file.text();
        text.starts_with(key) || text.contains(&format!("\n{key}:")) || text.contains(&format!("\"{key}\":"))
    };
    if !["kind", "static_resources", "dynamic_resources", "configs"].into_iter().any(is_key) {
        return None;
    }
    let all = documents(file).ok().filter(|all| !have_rules(all))?;
    let root = all.first()?.root();
    let kind = root.get("kind").and_then(Located::text).filter(|_| root.get("apiVersion").is_some());
    Some(match kind {
        Some("ConfigMap") => {
            "a ConfigMap without rules; one of its texts has to begin with `domain: NAME`".to_owned()
        }
        Some("EnvoyFilter") => {
            "an EnvoyFilter, which configures Envoy and has no rules; a rule file begins with `domain: NAME`"
                .to_owned()
        }
        Some("Limitador") => {
            "a Limitador resource; write the list under `spec.limits` into a file of its own, with the \
                              `namespace` of each limit"
                .to_owned()
        }
        Some(kind) => {
            format!("a Kubernetes resource of the kind {kind}; a rule file begins with `domain: NAME`")
        }
        None if root.get("configs").is_some() => {
            "a dump of Envoy's configuration, which has no rules; a rule file begins with `domain: NAME`"
                .to_owned()
        }
        None if root.get("static_resources").or(root.get("dynamic_resources")).is_some() => {
            "a configuration of Envoy, which has no rules; a rule file begins with `domain: NAME`".to_owned()
        }
        None => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{LoadOptions, RuleSet};

    #[test]
    fn the_kind_of_a_file_is_named_by_its_outermost_keys() {
        for (text, expected) in [
            ("kind: ConfigMap\napiVersion: v1\ndata: {a: b}", Some("a ConfigMap without rules")),
            ("apiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\nspec: {}", Some("an EnvoyFilter")),
            ("apiVersion: limitador.kuadrant.io/v1alpha1\nkind: Limitador", Some("a Limitador resource")),
            ("apiVersion: v1\nkind: Service\n---\nkind: Pod", Some("the kind Service")),
            ("admin: {}\nstatic_resources:\n  listeners: []", Some("a configuration of Envoy")),
            ("{\"configs\": [{\"@type\": \"x\"}]}", Some("a dump of Envoy's configuration")),
            ("domain: kind\ndescriptors: [{key: kind}]", None),
            ("- {namespace: kind}", None),
            ("kind: x", None),
            ("kind: [", None),
        ] {
            let kind = kind(&Source::file("f.yaml", text));
            let is_named =
                kind.as_deref().is_some_and(|kind| expected.is_some_and(|part| kind.contains(part)));
            assert!(is_named || kind.is_none() && expected.is_none(), "{text}: {kind:?}");
        }
    }

    fn texts(text: &str) -> Vec<String> {
        let files = rule_files(Source::file("f.yaml", text));
        files.into_iter().map(|file| file.text().trim().to_owned()).collect()
    }

    #[test]
    fn the_rule_files_of_config_maps_are_found_in_lists_and_among_other_documents() {
        let text = "kind: Secret\ndata: {a: 'domain: a'}\n---\nkind: List\nitems:\n- kind: ConfigMap\n  data:\n    x: |\n      domain: b\n    \
                    y: 'no rules'\n---\nkind: ConfigMap\ndata:\n  z: |\n    - {namespace: c}\n";
        assert_eq!(texts(text), ["domain: b", "- {namespace: c}"]);
        for plain in ["domain: ConfigMap", "kind: ConfigMap\ndata: {a: b}", "ConfigMap: ["] {
            assert_eq!(rule_files(Source::file("f.yaml", plain)), [Source::file("f.yaml", plain)]);
        }
    }

    /// The rest of the file was loaded without them.
    #[test]
    fn rules_with_an_error_in_a_config_map_are_not_left_out() {
        let text = "kind: ConfigMap\ndata:\n  a: |\n    domain: a\n  b: |\n    # twice\n    domain: b\n    domain: c\n  \
                    c: |\n    - namespace: d\n     e\n  d: '{\"domain\": \"f\", \"descriptors\"'\n  \
                    e: 'domian: g\n\n    descriptors: []'\n  f: |\n    a: [\n      domain: h\n";
        let expected = [
            "domain: a",
            "# twice\n    domain: b\n    domain: c",
            "- namespace: d\n     e",
            "{\"domain\": \"f\", \"descriptors\"",
            "domian: g\ndescriptors: []",
        ];
        assert_eq!(texts(text), expected);
    }

    #[test]
    fn a_file_with_rules_beside_config_maps_is_refused() {
        let map = "kind: ConfigMap\napiVersion: v1\ndata: {a: 'domain: a'}";
        for text in [format!("domain: b\n---\n{map}"), format!("{map}\n---\ndomain: b")] {
            let error = RuleSet::parse(&[Source::file("f.yaml", text)], &LoadOptions::default());
            let error = error.expect_err("an error").to_string();
            assert!(error.ends_with("a second document begins; put it into a file of its own"), "{error}");
        }
    }
}
