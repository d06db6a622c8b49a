//! What the layouts have in common: the fields of a line, and elements of lists in fields.

use super::{mapping::Mapping, missing::UnknownField};
use std::borrow::Cow;

/// The text of a field, none if the field is absent. Servers write a hyphen or nothing then.
pub(super) fn present(text: Cow<'_, str>) -> Option<Cow<'_, str>> {
    (!matches!(&*text, "" | "-")).then_some(text)
}

/// A name, and the index behind it in brackets: `xff[-1]`.
pub(super) fn name_and_index(name: &str) -> Option<(&str, i64)> {
    let (name, index) = name.strip_suffix(']')?.rsplit_once('[')?;
    Some((name, index.parse().ok()?))
}

/// The place of each field of a mapping, and the index of an element if the field names one in a list. The fields of the log have names.
/// `kind` is what messages call a field, and `known` returns the names of the log.
pub(super) fn places<'n, P, K: Iterator<Item = &'n str>>(
    mapping: &Mapping,
    kind: &'static str,
    known: impl Fn() -> K,
    find: impl Fn(&str) -> Option<P>,
) -> Result<Vec<(P, Option<i64>)>, UnknownField> {
    let place = |name: &str| {
        let of_element = || name_and_index(name).and_then(|(name, index)| Some((find(name)?, Some(index))));
        find(name).map(|place| (place, None)).or_else(of_element)
    };
    let fields = mapping.fields.iter().enumerate();
    fields
        .map(|(field, name)| place(name).ok_or_else(|| UnknownField::new(mapping, field, kind, known())))
        .collect()
}

/// The position of an element by its index. A negative index counts from the end.
pub(super) fn place_of(index: i64, length: usize) -> Option<usize> {
    let index_from_start = if index < 0 { i64::try_from(length).ok()? + index } else { index };
    usize::try_from(index_from_start).ok().filter(|place| *place < length)
}

/// An element of a text that is a list with commas. Without an index, the whole text.
pub(super) fn element(text: Cow<'_, str>, index: Option<i64>) -> Option<Cow<'_, str>> {
    let Some(index) = index else { return present(text) };
    fn nth(text: &str, index: i64) -> Option<&str> {
        let place = place_of(index, text.split(',').count())?;
        text.split(',').nth(place).map(str::trim)
    }
    present(match text {
        Cow::Borrowed(text) => Cow::Borrowed(nth(text, index)?),
        Cow::Owned(text) => Cow::Owned(nth(&text, index)?.to_owned()),
    })
}
