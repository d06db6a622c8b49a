//! YAML of configurations, as people write it.

use tidegate_core::rules::yaml_text;

/// A value.
pub(in crate::cli) enum Yaml {
    Text(String),
    Number(u64),
    True,
    Map(Vec<(String, Yaml)>),
    List(Vec<Yaml>),
}

impl Yaml {
    pub(in crate::cli) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    pub(in crate::cli) fn map<const N: usize>(pairs: [(&str, Self); N]) -> Self {
        Self::Map(pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    }

    /// A message of this type with a name, as extensions of Envoy are configured.
    pub(in crate::cli) fn extension<const N: usize>(
        name: &str,
        message: &str,
        pairs: [(&str, Self); N],
    ) -> Self {
        let of_type = ("@type".to_owned(), Self::Text(format!("type.googleapis.com/{message}")));
        let pairs = pairs.into_iter().map(|(key, value)| (key.to_owned(), value));
        let config = Self::Map(std::iter::once(of_type).chain(pairs).collect());
        Self::map([("name", Self::text(name)), ("typed_config", config)])
    }

    /// The value in block style.
    pub(in crate::cli) fn to_block(&self) -> String {
        let mut out = String::new();
        self.write(0, &mut out);
        out
    }

    /// The value in block style, as an item of a list.
    pub(in crate::cli) fn to_item(&self) -> String {
        let mut out = String::new();
        Self::write_item(self, 0, &mut out);
        out
    }

    fn write_item(&self, indent: usize, out: &mut String) {
        let mut item = String::new();
        self.write(indent + 2, &mut item);
        *out += &format!("{}- {}", " ".repeat(indent), item.trim_start());
    }

    /// Lines of the value with this indentation; a scalar on one line.
    fn write(&self, indent: usize, out: &mut String) {
        match self {
            Self::Text(text) => *out += &format!("{}\n", yaml_text(text)),
            Self::True => *out += "true\n",
            Self::Number(number) => *out += &format!("{number}\n"),
            Self::List(items) => items.iter().for_each(|item| item.write_item(indent, out)),
            Self::Map(pairs) => {
                for (key, value) in pairs {
                    *out += &format!("{}{}:", " ".repeat(indent), yaml_text(key));
                    match value {
                        Self::Map(pairs) if pairs.is_empty() => *out += " {}\n",
                        Self::Map(_) => {
                            out.push('\n');
                            value.write(indent + 2, out);
                        }
                        Self::List(_) => {
                            out.push('\n');
                            value.write(indent, out);
                        }
                        Self::Text(_) | Self::Number(_) | Self::True => {
                            out.push(' ');
                            value.write(0, out);
                        }
                    }
                }
            }
        }
    }
}

impl From<&serde_json::Value> for Yaml {
    fn from(json: &serde_json::Value) -> Self {
        match json {
            serde_json::Value::Array(items) => Self::List(items.iter().map(Self::from).collect()),
            serde_json::Value::Object(pairs) => {
                Self::Map(pairs.iter().map(|(key, value)| (key.clone(), Self::from(value))).collect())
            }
            serde_json::Value::Bool(true) => Self::True,
            serde_json::Value::String(text) => Self::text(text),
            other => other.as_u64().map_or_else(|| Self::Text(other.to_string()), Self::Number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_and_lists_are_in_block_style_with_texts_quoted_where_they_need_it() {
        let inner = Yaml::map([("b", Yaml::text("true")), ("empty", Yaml::map([]))]);
        let yaml = Yaml::map([
            ("a", Yaml::List(vec![inner, Yaml::text("x: y")])),
            ("@type", Yaml::text("plain.text")),
            ("number", Yaml::Number(3)),
        ]);
        let expected =
            "- a:\n  - b: \"true\"\n    empty: {}\n  - \"x: y\"\n  \"@type\": plain.text\n  number: 3\n";
        assert_eq!(yaml.to_item(), expected);
    }
}
