//! The grammar of a LIMITS_FILE, in the form of Limitador's: a list of limits, each with the name of its domain.

use super::{DefaultAlgorithm, debt_max_default, declared::DeclaredDomain};
use crate::{
    algorithm::{Algorithm, Schedule},
    limit::Window,
    rules::{
        Rule, RuleLimit,
        conditions::ConditionalLimit,
        limits::{LimitIdentity, LimitInfo, Registrar, TAG_UNNAMED},
        load_options::LoadOptions,
        overlay::OverrideLimit,
        semantics::Semantics,
        yaml::{Field, Fields, quoted},
    },
};
use smallvec::smallvec;
use std::{collections::BTreeMap, sync::Arc};
use tidegate_cel::Expression;

/// The domains of the limits in the list.
pub(super) fn domains(
    list: &Field<'_>,
    options: &LoadOptions,
    limits: &mut Registrar,
) -> Vec<DeclaredDomain> {
    let items = list.list().unwrap_or_default();
    let mut domains: BTreeMap<Arc<str>, DeclaredDomain> = BTreeMap::new();
    for item in &items {
        let Some((name, limit)) = limit(item, options, limits) else { continue };
        let domain = domains.entry(Arc::clone(&name)).or_insert_with(|| DeclaredDomain {
            name,
            origin: limit.rule.origin.clone(),
            descriptors: Vec::new(),
            limits: Vec::new(),
            is_shared: options.shared_counters,
            quotas: None,
            own_limits: None,
        });
        domain.limits.push(limit);
    }
    domains.into_values().collect()
}

/// A limit with the name of its domain.
fn limit(
    item: &Field<'_>,
    options: &LoadOptions,
    limits: &mut Registrar,
) -> Option<(Arc<str>, ConditionalLimit)> {
    let mut fields = item.fields()?;
    let namespace = namespace(&mut fields);
    let requests = number(&mut fields, "max_value");
    let seconds = number(&mut fields, "seconds");
    let name = fields.text("name").unwrap_or_default();
    let id = fields.text("id");
    let conditions = expressions(fields.take("conditions").as_ref(), condition);
    let mut variables = expressions(fields.take("variables").as_ref(), variable);
    // Limitador accepts them.
    for name in ["conditions", "variables"] {
        fields.doubt_null(name, "has no value, so that it narrows nothing; list some, or write `[]`");
    }
    if let Some(variables) = &mut variables {
        variables.sort_by(|one, other| one.source().cmp(other.source()));
        variables.dedup();
    }
    let algorithm = fields.take("algorithm");
    let window = seconds.as_ref().and_then(|(field, seconds)| {
        let refuse = |error| {
            field.refuse(format!("{seconds} is not a window: {error}; write a number of seconds, at least 1"))
        };
        Window::from_secs(u64::from(*seconds)).map_or_else(refuse, Some)
    });
    let algorithm = window.zip(requests.as_ref()).and_then(|(window, (_, requests))| {
        let algorithm = counting(algorithm.as_ref(), *requests, window)?;
        Some(if options.shared_counters { shareable(algorithm, item) } else { algorithm })
    });
    fields.finish(|name| match name {
        "policy" => Some("a limit denies what exceeds it; remove the key"),
        "domain" | "descriptors" => {
            Some("a list has limits with `namespace`; a file with `domain` is a map, in a file of its own")
        }
        _ => None,
    });
    let (domain, amount, algorithm) = (namespace?, (requests?.1, window?), algorithm?);
    let (conditions, variables) = (conditions?, variables?);
    let path: Arc<str> = path(seconds?.1, &conditions, &variables).into();
    let label = if name.is_empty() { Arc::clone(&path) } else { name.into() };
    let identity = LimitIdentity { domain: Arc::clone(&domain), path: Arc::clone(&path), tag: TAG_UNNAMED };
    let numbers = limits.register(LimitInfo { identity, algorithm: algorithm.clone() }, label);
    let limit = RuleLimit {
        name: name.into(),
        debt_max: debt_max_default(&algorithm),
        ..RuleLimit::new(numbers, TAG_UNNAMED, amount, algorithm)
    };
    let rule = Rule::new(path, smallvec![limit], item.origin());
    let (conditions, variables) = (conditions.into(), variables.into());
    Some((domain, ConditionalLimit { rule, conditions, variables, id: id.map(Into::into) }))
}

fn namespace(fields: &mut Fields<'_>) -> Option<Arc<str>> {
    let field = fields.require("namespace", "write the domain that requests name")?;
    match field.text()? {
        "" => field.refuse("is empty; write the domain that requests name"),
        text => Some(text.into()),
    }
}

fn number<'n>(fields: &mut Fields<'n>, name: &'static str) -> Option<(Field<'n>, u32)> {
    let field = fields.require(name, "write a whole number")?;
    let number = field.whole()?;
    Some((field, number))
}

/// None after an error in any of them: without an expression, the limit would be another.
fn expressions(
    list: Option<&Field<'_>>,
    read: fn(&Field<'_>) -> Option<Expression>,
) -> Option<Vec<Expression>> {
    let items = list.map_or(Some(Vec::new()), Field::list)?;
    // All are read, so that all errors are reported.
    let read: Vec<Option<Expression>> = items.iter().map(read).collect();
    read.into_iter().collect()
}

/// Parses a condition.
pub(super) fn condition(field: &Field<'_>) -> Option<Expression> {
    expression(field, Expression::doubts_of_condition)
}

/// Parses an expression whose value is part of the key of counters.
fn variable(field: &Field<'_>) -> Option<Expression> {
    expression(field, Expression::doubts)
}

/// Parses the expression of a text; reports the place of an error in the text, and the doubts.
fn expression(field: &Field<'_>, doubts: fn(&Expression) -> Vec<String>) -> Option<Expression> {
    let text = field.text()?;
    match Expression::parse(text) {
        Ok(expression) => {
            for doubt in doubts(&expression) {
                field.doubt(format!("{}: {doubt}", quoted(text)));
            }
            Some(expression)
        }
        Err(error) => {
            let at = text.get(..error.offset).map_or(0, |before| before.chars().count()) + 1;
            field.refuse(format!("{}, character {at}: {error}", quoted(text)))
        }
    }
}

/// Windows that begin with their first hit, unless the limit names another algorithm.
fn counting(named: Option<&Field<'_>>, requests: u32, window: Window) -> Option<Algorithm> {
    let fixed = || Algorithm::fixed_window(requests, Schedule::FirstHit(window));
    let Some(field) = named else { return Some(fixed()) };
    let text = field.text()?;
    if text == "fixed_window" {
        return Some(fixed());
    }
    match OverrideLimit::new(requests, &window.to_string(), Some(text), None) {
        Ok(limit) => Some(limit.algorithm(Semantics::Exact, None)),
        Err(error) if DefaultAlgorithm::named(text).is_some() => field.refuse(error.to_string()),
        Err(_) => {
            let names = DefaultAlgorithm::NAMES.join(", ");
            field.refuse(format!("{} is not an algorithm; write one of: {names}", quoted(text)))
        }
    }
}

/// The algorithm as it counts in a shared store; reports an algorithm that cannot.
fn shareable(algorithm: Algorithm, item: &Field<'_>) -> Algorithm {
    algorithm.in_microseconds().unwrap_or_else(|reason| {
        item.reject(format!("cannot be counted in a shared store: {reason}"));
        algorithm
    })
}

/// Window, conditions and variables, which identify the limit. Numbers, names and the order may change.
fn path(seconds: u32, conditions: &[Expression], variables: &[Expression]) -> String {
    let mut path = format!("per {seconds} s");
    for (expressions, before, between) in [(conditions, " if ", " and "), (variables, " for each ", ", ")] {
        let mut texts: Vec<&str> = expressions.iter().map(Expression::source).collect();
        texts.sort_unstable();
        texts.dedup();
        if !texts.is_empty() {
            path = path + before + &texts.join(between);
        }
    }
    path
}
