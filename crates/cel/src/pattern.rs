//! Patterns of `matches`: the classes of RE2, which CEL prescribes, in the syntax of the crate regex.
//!
//! `\w`, `\d`, `\s` and `\b` are of ASCII in RE2; texts and all other parts of a pattern are of Unicode there as here.

/// The pattern with these classes written out.
pub(crate) fn with_ascii_classes(pattern: &str) -> String {
    let mut written = String::with_capacity(pattern.len());
    let (mut rest, mut class_depth) = (pattern.chars(), 0_u32);
    while let Some(character) = rest.next() {
        let escaped = if character == '\\' { rest.next() } else { None };
        match (character, escaped) {
            (_, Some(escaped)) => match ascii_class(escaped, class_depth > 0) {
                Some(class) => written.push_str(class),
                None => written.extend([character, escaped]),
            },
            (character, None) => {
                match character {
                    '[' => class_depth += 1,
                    ']' => class_depth = class_depth.saturating_sub(1),
                    _ => {}
                }
                written.push(character);
            }
        }
    }
    written
}

/// The class of an escape sequence, which may be within another class; none for all other sequences.
fn ascii_class(escaped: char, is_in_class: bool) -> Option<&'static str> {
    Some(match escaped {
        'w' => "[0-9A-Za-z_]",
        'W' => "[^0-9A-Za-z_]",
        'd' => "[0-9]",
        'D' => "[^0-9]",
        's' => r"[\t\n\f\r ]",
        'S' => r"[^\t\n\f\r ]",
        'b' if !is_in_class => r"(?-u:\b)",
        _ => return None,
    })
}
