//! Descriptors as people write them: `key=value,key=value`.

use std::str::FromStr;

/// The entries of a descriptor; at least one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DescriptorText(pub Vec<(String, String)>);

/// The error for a text that is not a descriptor.
#[derive(Debug, thiserror::Error)]
#[error(
    "`{0}` is not an entry; write key=value, or key= for an empty value, with \\, for a comma and \\\\ for a backslash"
)]
pub struct DescriptorTextError(String);

impl FromStr for DescriptorText {
    type Err = DescriptorTextError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut entries = Vec::new();
        for entry in split(text) {
            match entry.split_once('=') {
                Some((key, value)) if !key.is_empty() => entries.push((key.to_owned(), value.to_owned())),
                _ => return Err(DescriptorTextError(entry)),
            }
        }
        Ok(Self(entries))
    }
}

impl std::fmt::Display for DescriptorText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, (key, value)) in self.0.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            write!(f, "{comma}{key}={value}")?;
        }
        Ok(())
    }
}

/// Splits at commas that are not escaped by a backslash; removes the backslashes.
fn split(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            ',' => parts.push(String::new()),
            '\\' => parts.last_mut().expect("starts with one part").extend(characters.next()),
            other => parts.last_mut().expect("starts with one part").push(other),
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_split_at_commas_and_the_first_equals_sign() {
        let read = |text: &str| text.parse::<DescriptorText>().map(|read| read.0);
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(read("a=b,c=").unwrap(), [pair("a", "b"), pair("c", "")]);
        assert_eq!(read(r"path=/x?q=1\,2\\3").unwrap(), [pair("path", r"/x?q=1,2\3")]);
        for wrong in ["", "a", "=b", "a=b,", "a=b,,c=d"] {
            assert!(read(wrong).unwrap_err().to_string().contains("write key=value"), "{wrong}");
        }
    }
}
