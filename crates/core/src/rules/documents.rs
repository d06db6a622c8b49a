//! YAML and JSON of any shape, with the place of each value: for files that are not rules, and for ConfigMaps that hold rules.

use super::{
    RuleErrors, Source,
    error::{Position, Problems},
    yaml::{Located, Node, Report, parse_all},
};
use std::{iter, rc::Rc};

/// One document of a file.
pub struct Document(Rc<Node>);

impl Document {
    /// The whole document.
    pub fn root(&self) -> Located<'_> {
        Located(&self.0)
    }
}

/// The documents of a text; those that are empty are left out.
pub fn documents(source: &Source) -> Result<Vec<Document>, RuleErrors> {
    let problems = Problems::default();
    let roots = parse_all(&source.text(), &Report::new(&source.id, &problems));
    problems.or(roots.into_iter().map(Document).collect())
}

/// The files that a ConfigMap of Kubernetes holds, or those of a list with ConfigMaps. Places in them are those in the source. The file of
/// a text that is quoted or folded has places of its own, and is named `SOURCE[ENTRY]`.
pub fn config_map_files(source: &Source, document: Located<'_>) -> Vec<Source> {
    let items = document.get("items").into_iter().flat_map(Located::items);
    let is_map = |value: &Located<'_>| value.get("kind").and_then(Located::text) == Some("ConfigMap");
    let maps = iter::once(document).chain(items).filter(is_map);
    let entries = maps.filter_map(|map| map.get("data")).flat_map(Located::pairs);
    let file = |(name, _, entry): (&str, Position, Located<'_>)| {
        let text = entry.text()?;
        Some(match in_place(&source.text(), entry.position(), text) {
            Some(text) => Source::new(source.id.clone(), text),
            None => Source::file(format!("{}[{name}]", source.id), text),
        })
    };
    entries.filter_map(file).collect()
}

/// The text of a literal block as a file in which each line has the number and the indentation that it has in the outer file.
fn in_place(outer: &str, begins: Position, text: &str) -> Option<String> {
    // The place is that of the block's `|`, or of its first line.
    let mut lines = outer.lines().skip(begins.line - 1);
    let first = lines.next()?;
    let is_header = first.trim_end().trim_end_matches(['-', '+']).ends_with('|');
    let before = if is_header { begins.line } else { begins.line - 1 };
    let mut padded = "\n".repeat(before);
    let mut lines = outer.lines().skip(before);
    let mut indent = None;
    for own in text.lines() {
        let line = lines.next()?;
        padded.push_str(line);
        padded.push('\n');
        if own.trim().is_empty() && line.trim().is_empty() {
            continue;
        }
        let blank = line.strip_suffix(own)?;
        // An indented marker or directive would be content.
        let is_marker = ["---", "...", "%"].iter().any(|marker| own.starts_with(marker));
        if is_marker
            || !blank.chars().all(|one| one == ' ')
            || *indent.get_or_insert(blank.len()) != blank.len()
        {
            return None;
        }
    }
    Some(padded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(text: &str) -> Vec<String> {
        let source = Source::file("f.yaml", text);
        let all = documents(&source).unwrap();
        let kinds = all.iter().map(|document| document.root().get("kind").unwrap());
        kinds.map(|kind| format!("{}@{}", kind.text().unwrap(), kind.position())).collect()
    }

    #[test]
    fn documents_of_a_file_have_the_places_of_the_file() {
        let text = "---\nkind: a\n---\n# nothing\n---\n{\"kind\": !odd b, \"list\": [1]}\n...\n";
        assert_eq!(places(text), ["a@2:7", "b@6:15"]);
        assert_eq!(places("").len(), 0);
        let error = documents(&Source::file("f.yaml", "a: [\n")).err().unwrap().to_string();
        assert!(error.starts_with("f.yaml:"), "{error}");
    }

    #[test]
    fn files_of_a_config_map_have_the_places_of_the_outer_file() {
        let text = "kind: ConfigMap\ndata:\n  a.yaml: |\n    domain: d\n\n    descriptors:\n      - key: k\n  \
                    b.yaml: \"domain: e\"\n  c.yaml: |-\n    domain: f\n    ---\n    domain: g\n";
        let source = Source::file("f.yaml", text);
        let all = documents(&source).unwrap();
        let files = config_map_files(&source, all[0].root());
        let shown = |file: &Source| {
            let all = documents(file).unwrap();
            let domain = all[0].root().get("domain").unwrap();
            format!("{}:{} {}", file.id, domain.position(), domain.text().unwrap())
        };
        let shown: Vec<String> = files.iter().map(shown).collect();
        assert_eq!(shown, ["f.yaml:4:13 d", "f.yaml[b.yaml]:1:9 e", "f.yaml[c.yaml]:1:9 f"]);
        let key = documents(&files[0]).unwrap();
        let key = key[0].root().get("descriptors").unwrap().items().next().unwrap().get("key").unwrap();
        assert_eq!(key.position(), Position { line: 7, column: 14 });
        assert!(config_map_files(&source, all[0].root().get("data").unwrap()).is_empty());
    }
}
