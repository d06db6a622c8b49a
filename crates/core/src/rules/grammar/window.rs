//! The window of a limit: `unit`, optionally with `unit_multiplier`, or `per`.

use crate::{
    limit::{Unit, Window, WindowError},
    rules::yaml::{Field, Fields, nearest, quoted},
};

/// The window; none if there is no valid one, which is reported.
pub(super) fn window(fields: &mut Fields<'_>) -> Option<Window> {
    let (unit, multiplier, per) = (fields.take("unit"), fields.take("unit_multiplier"), fields.take("per"));
    if let (None, Some(multiplier)) = (&unit, &multiplier) {
        multiplier.reject("multiplies `unit`, which is not there; write `unit`, or all of it in `per`");
    }
    match (unit, per) {
        (Some(unit), None) => of_unit(&unit, multiplier.as_ref()),
        (None, Some(per)) => of_length(&per),
        (Some(_), Some(per)) => per.refuse("is given beside `unit`; keep one of the two"),
        // The calendar states the window; the error is that another algorithm has no calendar.
        (None, None) if fields.has_unknown("calendar") => None,
        (None, None) => {
            fields.refuse("unit", "is missing; write `unit: second` (or minute, hour, …) or `per: 10s`")
        }
    }
}

fn of_unit(field: &Field<'_>, multiplier: Option<&Field<'_>>) -> Option<Window> {
    let name = field.text()?;
    let unit = Unit::from_name(name).or_else(|| {
        let names = Unit::ALL.map(Unit::name);
        let remedy = match (nearest(name, &names), length(name)) {
            (_, Ok(_)) => format!("write `per: {name}` instead of `unit`"),
            (Some(meant), _) => format!("did you mean `{meant}`?"),
            _ => format!("write one of {}", names.join(", ")),
        };
        field.refuse(format!("{} is not a unit; {remedy}", quoted(name)))
    });
    let Some(multiplier) = multiplier else { return unit.map(Unit::window) };
    let units = multiplier.whole()?;
    if units == 0 {
        return multiplier.refuse("0 units are not a window; write 1 or more");
    }
    Window::from_secs(unit?.seconds().saturating_mul(units.into()))
        .map_or_else(|error| multiplier.refuse(format!("{units} units are too many: {error}")), Some)
}

/// A duration within the bounds of a window; none if it is not valid, which is reported.
pub(super) fn of_length(field: &Field<'_>) -> Option<Window> {
    let text = field.text()?;
    length(text)
        .map_or_else(|remedy| field.refuse(format!("{} is not a duration; {remedy}", quoted(text))), Some)
}

/// The scales of a length, in nanoseconds.
const SCALES: [(&str, u64); 6] = [
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
    ("w", 604_800_000_000_000),
];

/// A duration such as `10s`, `250ms` or `1h30m`, or the remedy.
pub(in crate::rules) fn length(text: &str) -> Result<Window, String> {
    if let Some(unit) = Unit::from_name(text) {
        return Err(format!("write `unit: {unit}` instead of `per`"));
    }
    let mut rest = text;
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let letters = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (digits, after) = rest.split_at(letters);
        if digits.is_empty() {
            return Err("write a whole number and a unit, such as 10s, 250ms or 1h30m".to_owned());
        }
        if after.is_empty() {
            return Err(format!("{digits} of what? write {digits}s for seconds (or ms, m, h, d, w)"));
        }
        let end = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (name, next) = after.split_at(end);
        let Some((_, scale)) = SCALES.into_iter().find(|(known, _)| *known == name) else {
            return Err(length_remedy(digits, name));
        };
        let part = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(scale));
        total = total.saturating_add(part.unwrap_or(u64::MAX));
        rest = next;
    }
    Window::from_nanos(total).map_err(|error| match (text, error) {
        ("", _) => "write a whole number and a unit, such as 10s".to_owned(),
        (_, WindowError::TooShort | WindowError::TooLong) => error.to_string(),
    })
}

/// The remedy for a number with an unknown unit.
fn length_remedy(digits: &str, name: &str) -> String {
    let word = name.trim();
    let meant = match word {
        "." | "," => return "write whole numbers, such as 1h30m or 1500ms".to_owned(),
        _ if word.starts_with("mo") => return "months differ; write days, such as 30d".to_owned(),
        _ if word.starts_with("mil") => Some("ms"),
        _ => SCALES.map(|(known, _)| known).into_iter().find(|known| {
            // `m` for `min`, and `s` for `S`; `ms` only for itself.
            word.get(..1).is_some_and(|first| first.eq_ignore_ascii_case(known))
        }),
    };
    match meant {
        Some(meant) => format!("write {digits}{meant}"),
        None => format!("{} is none of the units ms, s, m, h, d, w", quoted(word)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_a_sum_of_numbers_with_units() {
        let nanos = |text| length(text).map(|window| window.nanos().get());
        assert_eq!(nanos("10s"), Ok(10_000_000_000));
        assert_eq!(nanos("250ms"), Ok(250_000_000));
        assert_eq!(nanos("1h30m"), Ok(5_400_000_000_000));
        assert_eq!(nanos("1w"), nanos("7d"));
    }

    #[test]
    fn a_displayed_window_parses_to_the_same_window() {
        for text in ["1ms", "250ms", "10s", "90s", "12h", "30d", "3660d"] {
            assert_eq!(length(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn an_invalid_length_has_a_remedy() {
        let remedy = |text: &str| length(text).unwrap_err();
        assert_eq!(remedy("10"), "10 of what? write 10s for seconds (or ms, m, h, d, w)");
        assert_eq!(remedy("minute"), "write `unit: minute` instead of `per`");
        assert_eq!(remedy("0s"), "a window is at least 1ms long");
        assert_eq!(remedy("3661d"), "a window is at most 10 years (3660 days) long");
        assert_eq!(remedy(&format!("{}s", "9".repeat(50))), "a window is at most 10 years (3660 days) long");
        assert_eq!(remedy("10 seconds"), "write 10s");
        assert_eq!(remedy("250millis"), "write 250ms");
        assert_eq!(remedy("5x"), "\"x\" is none of the units ms, s, m, h, d, w");
        for text in ["", "s", "1.5s", "-1s", "10 s", "١s"] {
            assert!(length(text).is_err(), "{text}");
        }
    }
}
