//! A YAML map of names to texts, or to lists of texts: the form of files of settings.

use super::{
    RuleErrors, Source,
    error::{Origin, Problems},
    yaml::{Field, Report, parse},
};

/// A name and its texts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlainEntry {
    /// The name.
    pub name: String,
    /// Where the name is.
    pub origin: Origin,
    /// One text, or those of a list. Numbers and booleans are taken as they are written.
    pub values: Vec<String>,
    /// Where they begin.
    pub value_origin: Origin,
}

/// Reads the map; a name without a value counts as absent. An empty document has no names.
pub fn plain_map(source: &Source) -> Result<Vec<PlainEntry>, RuleErrors> {
    let is_blank = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
    if source.text().lines().all(is_blank) {
        return Ok(Vec::new());
    }
    let problems = Problems::default();
    let mut entries = Vec::new();
    let report = Report::new(&source.id, &problems);
    let root = parse(&source.text(), &report);
    let root = root.as_deref().filter(|root| !root.is_null());
    if let Some(fields) = root.and_then(|root| Field::root(root, &report).fields()) {
        for named in fields.into_named() {
            let values = match &named.value {
                value if value.is_null() => continue,
                value if value.as_text().is_some() => value.text().map(|text| vec![text.to_owned()]),
                value => value
                    .list()
                    .map(|items| items.iter().filter_map(|item| item.text()).map(str::to_owned).collect()),
            };
            entries.extend(values.map(|values| PlainEntry {
                name: named.name.to_owned(),
                origin: named.origin(),
                values,
                value_origin: named.value.origin(),
            }));
        }
    }
    problems.or(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<String, String> {
        let entries = plain_map(&Source::file("t.yaml", text)).map_err(|errors| errors.to_string())?;
        let shown = |entry: &PlainEntry| {
            let position = entry.value_origin.position.expect("it is in the text");
            format!("{}@{position}={}", entry.name, entry.values.join("|"))
        };
        Ok(entries.iter().map(shown).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn names_have_one_text_or_a_list_with_its_place() {
        let text = "listen: [a:1, 'b']\nthreads: 2\nconsole: true\nrules:\n  - /r\nlog: ~\n";
        let expected = "listen@1:9=a:1|b threads@2:10=2 console@3:10=true rules@5:3=/r";
        assert_eq!(read(text).as_deref(), Ok(expected));
        assert_eq!(read("").as_deref(), Ok(""));
        assert_eq!(read("# nothing\n").as_deref(), Ok(""));
    }

    #[test]
    fn every_error_names_its_place() {
        assert!(read("- a\n").unwrap_err().starts_with("t.yaml:1:1: a list is not a map"));
        let nested = read("a: {b: c}\nc: [[d]]\na: 1\n").unwrap_err();
        assert!(nested.contains("t.yaml:1:4: a: a map is not a list"), "{nested}");
        assert!(nested.contains("t.yaml:2:5: c[0]: a list is not a text"), "{nested}");
        assert!(nested.contains("t.yaml:3:1"), "a name twice: {nested}");
    }
}
