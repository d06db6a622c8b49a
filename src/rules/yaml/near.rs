//! "Did you mean …?"

/// The known word that a mistyped one is meant to be, if one is near enough.
pub(in crate::rules) fn nearest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    const WORD_BYTES_MAX: usize = 64;
    if word.len() > WORD_BYTES_MAX {
        return None;
    }
    let word = word.to_ascii_lowercase().replace('-', "_");
    // An abbreviation: `sec`, `min`.
    const ABBREVIATION_MIN: usize = 3;
    if word.len() >= ABBREVIATION_MIN
        && let Some(candidate) = known.iter().find(|candidate| candidate.starts_with(&word))
    {
        return Some(candidate);
    }
    // One slip for every three letters.
    let near = |candidate: &str| candidate.len().max(word.len()) / 3;
    let distances = known.iter().map(|candidate| (distance(&word, candidate), *candidate));
    let (slips, candidate) = distances.min_by_key(|(slips, _)| *slips)?;
    (slips <= near(candidate)).then_some(candidate)
}

/// How many letters must be put in, left out or changed to make one word the other; two swapped ones count once.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for (i, j) in (0..=a.len()).flat_map(|i| (0..=b.len()).map(move |j| (i, j))) {
        rows[i][j] = if i == 0 || j == 0 {
            i + j
        } else {
            let changed = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let least = changed.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            let swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if swapped { least.min(rows[i - 2][j - 2] + 1) } else { least }
        };
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_recognised_and_another_word_is_not() {
        let known = ["requests_per_unit", "unit", "unlimited", "name"];
        assert_eq!(nearest("request_per_unit", &known), Some("requests_per_unit"));
        assert_eq!(nearest("Requests-Per-Unit", &known), Some("requests_per_unit"));
        assert_eq!(nearest("nuit", &known), Some("unit"));
        assert_eq!(nearest("req", &known), Some("requests_per_unit"));
        assert_eq!(nearest("burst", &known), None);
        assert_eq!(nearest(&"x".repeat(1000), &known), None);
        assert_eq!(nearest("unit", &[]), None);
    }
}
