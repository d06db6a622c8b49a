//! The level of the log in a setting: a level, or a list of `target=level`.
//!
//! [`Targets`] reads a word that is not a level as the name of a target, and silences all targets that are not named. Here such a word is
//! an error, and targets that are not named have the level `info`.

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;

/// Levels and their names.
const LEVELS: [(&str, LevelFilter); 7] = [
    ("off", LevelFilter::OFF),
    ("error", LevelFilter::ERROR),
    ("warn", LevelFilter::WARN),
    ("warning", LevelFilter::WARN),
    ("info", LevelFilter::INFO),
    ("debug", LevelFilter::DEBUG),
    ("trace", LevelFilter::TRACE),
];

/// A part of the text that is neither a level nor `target=level`.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{part:?} is not a log level{}; write off, error, warn, info, debug or trace, or a list of target=level", suggestion(.part))]
pub struct LogFilterError {
    part: String,
}

/// Reads a level, or a list of `target=level` with at most one level for all other targets. Their default is `info`.
pub(super) fn parse(text: &str) -> Result<Targets, LogFilterError> {
    let mut filter = Targets::new().with_default(LevelFilter::INFO);
    for part in text.split(',') {
        let wrong = || LogFilterError { part: part.to_owned() };
        filter = match part.split_once('=') {
            None => filter.with_default(level(part).ok_or_else(wrong)?),
            Some((target, name)) => {
                let is_target = |byte: u8| byte.is_ascii_alphanumeric() || b"_:".contains(&byte);
                let target = target.trim();
                if target.is_empty() || !target.bytes().all(is_target) {
                    return Err(wrong());
                }
                filter.with_target(target, level(name).ok_or_else(wrong)?)
            }
        };
    }
    Ok(filter)
}

fn level(name: &str) -> Option<LevelFilter> {
    let name = name.trim();
    LEVELS.iter().find(|(known, _)| name.eq_ignore_ascii_case(known)).map(|(_, level)| *level)
}

/// The level that was probably meant. Empty if none is similar.
fn suggestion(part: &str) -> String {
    let name = part.rsplit('=').next().unwrap_or_default().trim().to_ascii_lowercase();
    let near = LEVELS.iter().map(|(known, _)| (strsim::damerau_levenshtein(&name, known), *known)).min();
    near.filter(|(distance, _)| *distance <= 2 && !name.is_empty())
        .map(|(_, known)| format!(", did you mean {known}?"))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Result<String, String> {
        parse(text).map(|filter| filter.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn levels_and_lists_of_targets_are_read() {
        assert_eq!(shown("WARNING"), shown("warn"));
        assert_eq!(shown("warn").as_deref(), Ok("warn"));
        assert_eq!(shown("tidegate=debug, warning").as_deref(), Ok("tidegate=debug,warn"));
        assert_eq!(shown("off").as_deref(), Ok("off"));
    }

    /// `--log h2=debug` silenced the server: no other target had a level.
    #[test]
    fn targets_that_are_not_named_have_the_level_info() {
        assert_eq!(shown("h2=debug"), shown("h2=debug,info"));
        assert_eq!(shown("off,h2=debug").as_deref(), Ok("h2=debug,off"));
    }

    /// `--log warning`, `inof` and an empty variable silenced the server, because they were names of targets.
    #[test]
    fn a_word_that_is_no_level_is_refused_with_the_levels() {
        for wrong in
            ["inof", "verbose", "none", "", "info,", "warn,tidegate", "tidegate=loud", "=?=", "a b=info"]
        {
            let error = shown(wrong).expect_err(wrong);
            assert!(error.contains("write off, error, warn, info, debug or trace"), "{error}");
        }
        assert!(shown("inof").unwrap_err().contains("did you mean info?"));
    }
}
