//! Expressions: every text is an expression or has an error at a place in it, evaluation ends, and a condition holds only with the entry
//! that it requires.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_cel::{Descriptors, Expression, LimitNames, RequiredEntry};

struct Two;

impl<'t> Descriptors<'t> for Two {
    fn len(&self) -> usize {
        2
    }

    fn entries(&self, descriptor: usize) -> usize {
        2 - descriptor
    }

    fn entry(&self, _: usize, entry: usize) -> (&'t str, &'t str) {
        [("a", "1"), ("path", "/api/v1")][entry]
    }
}

fuzz_target!(|text: &str| {
    let expression = match Expression::parse(text) {
        Ok(expression) => expression,
        Err(error) => {
            assert!(text.is_char_boundary(error.offset), "{error}");
            return;
        }
    };
    let limit = LimitNames { name: Some("n"), id: None };
    let value = expression.evaluate(&Two, limit).map(|value| value.into_text().map(|text| text.into_owned()));
    assert_eq!(
        value,
        expression.evaluate(&Two, limit).map(|value| value.into_text().map(|text| text.into_owned()))
    );
    if let (true, Some(RequiredEntry { descriptor, key, value })) =
        (expression.holds(&Two, limit), expression.required_entry())
    {
        assert_eq!(Two.value(descriptor, key), Some(value));
    }
});
