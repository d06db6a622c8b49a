//! "Did you mean …?" for mistyped keys and values.

/// The known word that `word` most likely stands for, if one is close enough. Case, and hyphens for underscores, make no difference.
pub fn nearest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    const WORD_BYTES_MAX: usize = 64;
    if word.len() > WORD_BYTES_MAX {
        return None;
    }
    let plain = |word: &str| word.to_ascii_lowercase().replace('-', "_");
    let word = plain(word);
    // An abbreviation: `sec`, `min`.
    const ABBREVIATION_MIN: usize = 3;
    if word.len() >= ABBREVIATION_MIN
        && let Some(candidate) = known.iter().find(|candidate| plain(candidate).starts_with(&word))
    {
        return Some(candidate);
    }
    // One edit for every three letters; swapping two neighbours is one edit.
    let edits_max = |candidate: &str| candidate.len().max(word.len()) / 3;
    let distances =
        known.iter().map(|candidate| (strsim::osa_distance(&word, &plain(candidate)), *candidate));
    let (edits, candidate) = distances.min_by_key(|(edits, _)| *edits)?;
    (edits <= edits_max(candidate)).then_some(candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typing_error_is_recognised_and_another_word_is_not() {
        let known = ["requests_per_unit", "unit", "unlimited", "name"];
        assert_eq!(nearest("request_per_unit", &known), Some("requests_per_unit"));
        assert_eq!(nearest("Requests-Per-Unit", &known), Some("requests_per_unit"));
        assert_eq!(nearest("nuit", &known), Some("unit"));
        assert_eq!(nearest("x_usr", &["X-Request-Id", "X-User"]), Some("X-User"));
        assert_eq!(nearest("req", &known), Some("requests_per_unit"));
        assert_eq!(nearest("burst", &known), None);
        assert_eq!(nearest(&"x".repeat(1000), &known), None);
        assert_eq!(nearest("unit", &[]), None);
    }
}
