//! Expressions and their values. Comments mark those that the crate `cel` is known to evaluate differently.

use super::*;
use proptest::prelude::*;

/// Descriptors as lists of entries.
struct Lists(Vec<Vec<(&'static str, &'static str)>>);

impl Descriptors<'static> for Lists {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn entries(&self, descriptor: usize) -> usize {
        self.0[descriptor].len()
    }

    fn entry(&self, descriptor: usize, entry: usize) -> (&'static str, &'static str) {
        self.0[descriptor][entry]
    }
}

fn shown(source: &str) -> String {
    let expression = match Expression::parse(source) {
        Ok(expression) => Box::leak(Box::new(expression)),
        Err(error) => return format!("{}: {}", error.offset, error.message),
    };
    let descriptors = Lists(vec![vec![("x", "1"), ("path", "/old"), ("path", "/api/v1")]]);
    let limit = LimitNames { name: Some("named"), id: None };
    match expression.evaluate(&descriptors, limit) {
        Ok(value) => value.clone().into_text().map_or_else(|| format!("{value:?}"), Cow::into_owned),
        Err(error) => format!("{error:?}"),
    }
}

#[track_caller]
fn check(source: &str, expected: &str) {
    assert_eq!(shown(source), expected, "{source}");
}

#[test]
fn entries_of_descriptors_are_texts() {
    check("descriptors[0].x == '1'", "true");
    check("descriptors[0]['x'] == \"1\"", "true");
    check("descriptors[0u].x != '1'", "false");
    check("descriptors[0].x == 1", "false");
    check("descriptors[0].path", "/api/v1");
    check("descriptors[0].y", "NoSuchKey");
    check("descriptors[1].x", "NoSuchItem");
    check("descriptors[-1].x", "NoSuchItem");
    check("descriptors[0][1]", "NoSuchKey");
    check("descriptors[0.0].x", "1");
    check("[7, 8][1.0]", "8");
    check("[7, 8][2.0]", "NoSuchItem");
    check("[7, 8][0.5]", "Type");
    check("[7, 8][-1.0]", "Type");
    check("descriptors.x", "Type");
    check("'x' in descriptors[0]", "true");
    check("has(descriptors[0].x)", "true");
    check("has(descriptors[0].y)", "false");
    check("has(descriptors[1].x)", "NoSuchItem");
    check("size(descriptors) + descriptors[0].size()", "3");
    check("descriptors[0] == {'x': '1', 'path': '/api/v1'}", "true");
    check("(descriptors + [1]).size()", "2");
    check("limit.name + limit['name']", "namednamed");
    check("limit.id == null", "true");
}

#[test]
fn a_side_that_decides_makes_errors_of_others_irrelevant() {
    check("descriptors[0].y == '1' || true", "true");
    check("descriptors[0].y == '1' && false", "false");
    check("false && descriptors[0].y == '1'", "false");
    check("descriptors[0].y == '1' && true", "NoSuchKey");
    check("1 || true", "true");
    check("descriptors[0].x ? true : false", "Type");
    check("true ? 1 : descriptors[9].x", "1");
}

#[test]
fn loops_visit_items_and_keys() {
    check("descriptors.exists(d, d.x == '1')", "true");
    check("descriptors.exists(d, d.y == '1')", "NoSuchKey");
    check("descriptors.all(d, 'x' in d)", "true");
    check("descriptors[0].exists_one(k, k == 'x')", "true");
    check("[1, 2, 3].map(x, x * 2) == [2, 4, 6]", "true");
    check("[1, 2, 3].map(x, x > 1, x * 2) == [4, 6]", "true");
    check("descriptors.filter(d, d.x == '1').size()", "1");
    check("[1, 2].exists(x, [2, 3].exists(y, x == y))", "true");
    check("[1, 2].map(x, [x].map(x, x + 1)[0] + x) == [3, 5]", "true");
    check("[[1].all(x, true), [2].exists(y, y == 2)] == [true, true]", "true");
}

#[test]
fn numbers_compare_across_types_and_compute_within_one() {
    check("1 == 1u && 1 == 1.0 && 1 < 2.5 && 0x1F == 31", "true");
    check("1 + 1u", "Type");
    check("5 / 0", "Number");
    check("9223372036854775807 + 1", "Number");
    check("-9223372036854775808", "-9223372036854775808");
    check("-int('5') % 3", "-2");
    check("2 + 3 * 4 - 1", "13");
    check("int(descriptors[0].x) > 0", "true");
    check("descriptors[0].x > 1", "Type");
    check("int('x')", "Conversion");
    check("int(1.9)", "1");
    check("1e3", "1000");
    check("0.1 + 0.2", "0.30000000000000004");
    check("uint('3') == 3u && double('1.5') == 1.5 && string(1) == '1' && bool('true')", "true");
}

#[test]
fn texts_have_methods_and_escapes() {
    check("descriptors[0].path.startsWith('/api')", "true");
    check("descriptors[0].path.endsWith('v1') && descriptors[0].path.contains('pi/')", "true");
    check(r"descriptors[0].path.matches('^/api/v[0-9]+$')", "true");
    check("matches(descriptors[0].x, '[a-z]')", "false");
    check("'é'.size()", "1");
    check(r"'\x41\n\u0041' == 'A\nA'", "true");
    check(r"r'a\b' == 'a\\b'", "true");
    check("\"\"\"a\nb\"\"\".size()", "3");
    check("descriptors[0].x in ['1', '2'] // one of two", "true");
}

/// As in RE2, whose syntax CEL prescribes.
#[test]
fn classes_of_patterns_are_of_ascii_and_texts_of_unicode() {
    for (text, pattern, matches) in [
        ("é", r"^\w$", false),
        ("é", r"^\W$", true),
        ("é", r"^[\w]$", false),
        ("-z", r"^[\w-]+$", true),
        ("٣", r"^\d$", false),
        ("7", r"^\d$", true),
        ("\u{2003}", r"^\s$", false),
        ("é", r"^.$", true),
        ("É", r"^(?i)é$", true),
        ("aé", r"^a\b", true),
        ("w", r"^\\w", false),
        ("]9", r"^[]\d]+$", true),
    ] {
        check(&format!("'{text}'.matches(r'{pattern}')"), &matches.to_string());
    }
}

#[test]
fn mistakes_are_found_when_the_text_is_parsed() {
    check("", "0: the end is not expected here; write a value");
    check(
        "x == '5'",
        "0: `x` is not a variable; write descriptors[0][\"x\"] for an entry of the request, or put a text in quotes",
    );
    check(
        "req.http.method.matches('P.*')",
        "0: `req.http.method` is not a variable; write descriptors[0][\"req.http.method\"] for an entry of the request, or put a text in quotes",
    );
    check("descriptors[0].x = '1'", "17: `=` is not an operator; write `==`");
    check("'a", "0: the text has no end; close it with '");
    check("'a\\q'", "2: is not an escape sequence; write `\\\\` for a backslash");
    check("descriptors[0", "13: the end is not expected here; write `]`");
    check("true false", "5: `false` is not expected here; write an operator, or end the expression");
    check("limit.max", "9: `limit` has no other fields than `limit.name` and `limit.id`");
    check("'a'.matches('(')", "4: \"(\" is not a regular expression: unclosed group");
    check(
        "'a'.matches(limit.name)",
        "4: `matches` has a pattern that is not known beforehand; write it as a text in quotes",
    );
    check("'a'.size(1)", "4: `size` has 0 arguments, not 1");
    check("b'a'", "0: bytes are not supported; write a text, without `b`");
    check("99999999999999999999", "0: the number is too long");
    assert!(shown("duration('1h') > 1").contains("`duration` is not a function; supported are has, size"));
}

#[test]
fn members_of_entries_are_doubted() {
    let doubts = |source: &str| Expression::parse(source).expect("valid").doubts();
    for (source, meant) in [
        ("descriptors[0]['req'].method == 'POST'", Some("descriptors[0][\"req.method\"]")),
        ("descriptors[2].req.http['method'] == 'POST'", Some("descriptors[2][\"req.http.method\"]")),
        ("!(true && has(descriptors[0].req.method))", Some("descriptors[0][\"req.method\"]")),
        ("descriptors.exists(d, descriptors[0].a.b == d.a)", Some("descriptors[0][\"a.b\"]")),
        ("descriptors[0][''] == 'a'", Some("no entry has an empty key")),
        (
            "descriptors[0].path.startsWith('/') || has(descriptors[0].a) || descriptors[0]['a.b'] == limit.name",
            None,
        ),
        ("descriptors.exists(d, d.a == 'b') ? {'a': [1]}.a[0] == 1 : descriptors[0].size() > 1", None),
    ] {
        let found = doubts(source);
        assert_eq!(found.len(), usize::from(meant.is_some()), "{source}: {found:?}");
        assert!(meant.is_none_or(|meant| found[0].contains(meant)), "{source}: {found:?}");
    }
}

/// Entries are texts, whatever they look like.
#[test]
fn entries_beside_numbers_and_booleans_are_doubted() {
    let doubts = |source: &str| Expression::parse(source).expect("valid").doubts_of_condition();
    for (source, meant) in [
        (
            "descriptors[0].tokens > 1000",
            Some("has no value together with 1000; write int(…) around the entry"),
        ),
        ("-2.5 <= descriptors[0]['tokens']", Some("has no value together with -2.5; write int(…)")),
        (
            "descriptors[0].tokens == 5",
            Some("the entry \"tokens\" is a text and never equals 5; write \"5\" in quotes"),
        ),
        ("5u != descriptors[0].tokens", Some("always differs from 5; write \"5\" in quotes, or int(…)")),
        ("descriptors[0].premium == true", Some("never equals true; write \"true\" in quotes")),
        ("descriptors[0].status in [429, 503]", Some("never equals 429; write \"429\" in quotes")),
        ("int(descriptors[0].tokens + 1) > 5", Some("has no value together with 1")),
        ("descriptors.exists(d, d.tokens > 1000)", Some("the entry \"tokens\" is a text and has no value")),
        (
            "descriptors[0].tokens",
            Some("the entry \"tokens\" is a text, so that this never holds; compare it"),
        ),
        ("true && descriptors[0].a", Some("so that this never holds")),
        ("!descriptors[0].a ? false : true", Some("so that this never holds")),
        ("descriptors.all(d, d.a)", Some("so that this never holds")),
        ("'true'", Some("\"true\" is a text, and neither true nor false, so that this never holds")),
        ("limit.name", Some("so that this never holds")),
        ("1", Some("a number is neither true nor false")),
        ("int(descriptors[0].tokens) > 1000 && bool(descriptors[0].premium)", None),
        ("descriptors[0].tokens == '5' || descriptors[0].a in ['b'] || descriptors.size() > 1", None),
        ("descriptors[0].a < 'b' && has(descriptors[0].a) && size(descriptors[0].a) == 3", None),
        ("[{'a': 1}].exists(d, d.a == 1) && descriptors.exists(d, [d].exists(e, e.a == 'b'))", None),
        ("descriptors.map(d, d.a)[0] == 'b' && true", None),
    ] {
        let found = doubts(source);
        assert_eq!(found.len(), usize::from(meant.is_some()), "{source}: {found:?}");
        assert!(meant.is_none_or(|meant| found[0].contains(meant)), "{source}: {found:?}");
    }
    let variable = Expression::parse("descriptors[0].user").expect("valid");
    assert!(variable.doubts().is_empty(), "the value of a variable is a text");
}

#[test]
fn depth_and_loops_are_bounded() {
    for (open, close) in [("(", ")"), ("[", "]"), ("!", ""), ("-", "")] {
        let deep = format!("{}1{}", open.repeat(3_000), close.repeat(3_000));
        assert!(shown(&deep).contains("levels deep"), "{open}");
    }
    assert!(shown(&format!("1{}", " + 1".repeat(1_000))).contains("levels deep"));
    check(&format!("true{}", " && true".repeat(900)), "true");
    let loops = |depth: usize| format!("{}true{}", "[1].all(x, ".repeat(depth), ")".repeat(depth));
    check(&loops(LOOPS_MAX), "true");
    assert!(shown(&loops(LOOPS_MAX + 1)).contains("loops are nested"));
    assert!(shown(&"x".repeat(LENGTH_MAX + 1)).contains("bytes long"));
}

/// No request evades a limit by the length of its evaluation.
#[test]
fn what_exceeds_the_cost_counts() {
    let list = format!("[{}]", ["1"; 100].join(","));
    let source = format!("{list}.all(x, {list}.all(y, {list}.all(z, true))) && false");
    let expression = Expression::parse(&source).unwrap();
    let descriptors = Lists(Vec::new());
    // Borrowed for as long as the texts, which are static.
    let expression: &'static Expression = Box::leak(Box::new(expression));
    assert_eq!(expression.evaluate(&descriptors, LimitNames::default()).unwrap_err(), EvaluationError::Cost);
    assert!(expression.holds(&descriptors, LimitNames::default()));
    assert_eq!(expression.text(&descriptors, LimitNames::default()).as_deref(), Some(""));
}

#[test]
fn the_entry_that_a_condition_requires_is_known() {
    let required = |source: &str| {
        let expression = Expression::parse(source).unwrap();
        expression.required_entry().map(|entry| format!("{}/{}/{}", entry.descriptor, entry.key, entry.value))
    };
    assert_eq!(required("descriptors[2]['a b'] == 'v'").as_deref(), Some("2/a b/v"));
    assert_eq!(required("'v' == descriptors[0].k").as_deref(), Some("0/k/v"));
    assert_eq!(required("1 == 1 && descriptors[0].k == 'v'").as_deref(), Some("0/k/v"));
    assert_eq!(required("descriptors[0].k == 'v' || true"), None);
    assert_eq!(required("descriptors[0].k != 'v'"), None);
}

proptest! {
    #[test]
    fn any_text_is_parsed_or_refused_at_a_place_in_it(source in "[a-z0-9'\"\\[\\](){}.,:?!&|=<>+*/% -]{0,60}") {
        if let Err(error) = Expression::parse(&source) {
            prop_assert!(error.offset <= source.len() && source.is_char_boundary(error.offset));
        }
    }

    #[test]
    fn random_expressions_have_a_value_or_an_error(
        parts in proptest::collection::vec(prop::sample::select(vec![
            "descriptors", "[0]", ".x", "==", "'1'", "&&", "||", "!", "(", ")", "1", "+", ".size()", "in", "[", "]", ",",
            ".exists(d, ", "d", "true", "? ", ":", "{", "}", "has(", ".matches('a+')", "-", "*", "2.5", "null", "limit.name",
        ]), 0..14)
    ) {
        shown(&parts.join(" "));
    }
}
