//! The grammar of a LIMITS_FILE, in the form of Limitador's: a list of limits, each with the name of its domain.

use super::{DefaultAlgorithm, debt_max_default, declared::DeclaredDomain};
use crate::{
    algorithm::{Algorithm, Schedule},
    limit::Window,
    rules::{
        Origin, Rule, RuleLimit, Source,
        conditions::ConditionalLimit,
        error::Problems,
        limits::{LimitIdentity, LimitInfo, Registrar, TAG_UNNAMED},
        load_options::LoadOptions,
        overlay::OverrideLimit,
        semantics::Semantics,
        yaml::{Field, Fields, Node, Report, quoted},
    },
};
use smallvec::smallvec;
use std::{collections::BTreeMap, sync::Arc};
use tidegate_cel::Expression;

/// A limit as the file declares it.
struct Declared {
    namespace: Arc<str>,
    origin: Origin,
    requests: u32,
    seconds: u64,
    window: Window,
    algorithm: Algorithm,
    name: Box<str>,
    id: Option<Box<str>>,
    conditions: Vec<Expression>,
    variables: Vec<Expression>,
}

/// The domains of the limits in the list.
pub(super) fn domains(
    root: &Node,
    source: &Source,
    options: &LoadOptions,
    limits: &mut Registrar,
    problems: &mut Problems,
) -> Vec<DeclaredDomain> {
    let mut report = Report::new(&source.id, problems);
    let items = Field::root(root).list(&mut report).unwrap_or_default();
    let mut domains: BTreeMap<Arc<str>, DeclaredDomain> = BTreeMap::new();
    for item in &items {
        let Some(declared) = limit(item, options, &mut report) else { continue };
        let domain = domains.entry(Arc::clone(&declared.namespace)).or_insert_with(|| DeclaredDomain {
            name: Arc::clone(&declared.namespace),
            origin: declared.origin.clone(),
            descriptors: Vec::new(),
            limits: Vec::new(),
            is_shared: options.shared_counters,
            quotas: None,
            own_limits: None,
        });
        domain.limits.push(register(declared, limits));
    }
    domains.into_values().collect()
}

fn limit(item: &Field<'_>, options: &LoadOptions, report: &mut Report<'_>) -> Option<Declared> {
    let mut fields = item.fields(report)?;
    let namespace = namespace(&mut fields, report);
    let requests = number(&mut fields, "max_value", report);
    let seconds = number(&mut fields, "seconds", report);
    let name = fields.text("name", report).unwrap_or_default();
    let id = fields.text("id", report);
    let conditions = expressions(fields.take("conditions").as_ref(), report);
    let mut variables = expressions(fields.take("variables").as_ref(), report);
    if let Some(variables) = &mut variables {
        variables.sort_by(|one, other| one.source().cmp(other.source()));
        variables.dedup();
    }
    let algorithm = fields.take("algorithm");
    let window = seconds.as_ref().and_then(|field| match Window::from_secs(u64::from(field.1)) {
        Ok(window) => Some(window),
        Err(error) => {
            let message =
                format!("{} is not a window: {error}; write a number of seconds, at least 1", field.1);
            field.0.reject(report, message);
            None
        }
    });
    let algorithm = window.zip(requests.as_ref()).and_then(|(window, (_, requests))| {
        let algorithm = counting(algorithm.as_ref(), *requests, window, report)?;
        Some(if options.shared_counters { shareable(algorithm, item, report) } else { algorithm })
    });
    fields.finish(report, |name| match name {
        "policy" => Some("a limit denies what exceeds it; remove the key"),
        "domain" | "descriptors" => {
            Some("a list has limits with `namespace`; a file with `domain` is a map, in a file of its own")
        }
        _ => None,
    });
    Some(Declared {
        namespace: namespace?,
        origin: report.origin(item.place()),
        requests: requests?.1,
        seconds: u64::from(seconds?.1),
        window: window?,
        algorithm: algorithm?,
        name: name.into(),
        id: id.map(Into::into),
        conditions: conditions?,
        variables: variables?,
    })
}

fn namespace(fields: &mut Fields<'_>, report: &mut Report<'_>) -> Option<Arc<str>> {
    let Some(field) = fields.take("namespace") else {
        let message = "is missing; write the domain that requests name";
        report.at(fields.place(), fields.path_of("namespace"), message);
        return None;
    };
    match field.text(report)? {
        "" => {
            field.reject(report, "is empty; write the domain that requests name");
            None
        }
        text => Some(text.into()),
    }
}

fn number<'n>(
    fields: &mut Fields<'n>,
    name: &'static str,
    report: &mut Report<'_>,
) -> Option<(Field<'n>, u32)> {
    let Some(field) = fields.take(name) else {
        let message = "is missing; write a whole number";
        report.at(fields.place(), fields.path_of(name), message);
        return None;
    };
    let number = field.whole(report)?;
    Some((field, number))
}

/// None after an error in one of them: without it, the limit would be another one.
fn expressions(list: Option<&Field<'_>>, report: &mut Report<'_>) -> Option<Vec<Expression>> {
    let items = match list {
        Some(list) => list.list(report)?,
        None => Vec::new(),
    };
    let read: Vec<Option<Expression>> = items.iter().map(|item| expression(item, report)).collect();
    read.into_iter().collect()
}

/// The expression that a text is; reports the place in the text that is wrong.
pub(super) fn expression(field: &Field<'_>, report: &mut Report<'_>) -> Option<Expression> {
    let text = field.text(report)?;
    match Expression::parse(text) {
        Ok(expression) => {
            for doubt in expression.doubts() {
                field.doubt(report, format!("{}: {doubt}", quoted(text)));
            }
            Some(expression)
        }
        Err(error) => {
            let at = text.get(..error.offset).map_or(0, |before| before.chars().count()) + 1;
            field.reject(report, format!("{}, character {at}: {error}", quoted(text)));
            None
        }
    }
}

/// Windows that begin with their first hit, unless the limit names another algorithm.
fn counting(
    named: Option<&Field<'_>>,
    requests: u32,
    window: Window,
    report: &mut Report<'_>,
) -> Option<Algorithm> {
    let fixed = || Algorithm::fixed_window(requests, Schedule::FirstHit(window));
    let Some(field) = named else { return Some(fixed()) };
    let text = field.text(report)?;
    if text == "fixed_window" {
        return Some(fixed());
    }
    match OverrideLimit::new(requests, &window.to_string(), Some(text), None) {
        Ok(limit) => Some(limit.algorithm(Semantics::Exact, None)),
        Err(error) if DefaultAlgorithm::named(text).is_some() => {
            field.reject(report, error.to_string());
            None
        }
        Err(_) => {
            let names = DefaultAlgorithm::NAMES.join(", ");
            field.reject(report, format!("{} is not an algorithm; write one of: {names}", quoted(text)));
            None
        }
    }
}

/// The algorithm as it counts in a shared store; reports one that cannot.
fn shareable(algorithm: Algorithm, item: &Field<'_>, report: &mut Report<'_>) -> Algorithm {
    algorithm.in_microseconds().unwrap_or_else(|reason| {
        item.reject(report, format!("cannot be counted in a shared store: {reason}"));
        algorithm
    })
}

/// Window, conditions and variables: what makes it another limit if it changes. Numbers, names and the order may change.
fn path(declared: &Declared) -> String {
    let join = |expressions: &[Expression], between: &str| {
        let mut texts: Vec<&str> = expressions.iter().map(Expression::source).collect();
        texts.sort_unstable();
        texts.dedup();
        texts.join(between)
    };
    let mut path = format!("per {} s", declared.seconds);
    if !declared.conditions.is_empty() {
        path = format!("{path} if {}", join(&declared.conditions, " and "));
    }
    if !declared.variables.is_empty() {
        path = format!("{path} for each {}", join(&declared.variables, ", "));
    }
    path
}

fn register(declared: Declared, limits: &mut Registrar) -> ConditionalLimit {
    let path: Arc<str> = path(&declared).into();
    let label = if declared.name.is_empty() { Arc::clone(&path) } else { Arc::from(&*declared.name) };
    let identity =
        LimitIdentity { domain: Arc::clone(&declared.namespace), path: Arc::clone(&path), tag: TAG_UNNAMED };
    let info = LimitInfo { identity, algorithm: declared.algorithm.clone() };
    let numbers = limits.register(info, label);
    let limit = RuleLimit {
        name: declared.name,
        debt_max: debt_max_default(&declared.algorithm),
        ..RuleLimit::new(numbers, TAG_UNNAMED, (declared.requests, declared.window), declared.algorithm)
    };
    let rule = Rule::new(path, smallvec![limit], declared.origin);
    ConditionalLimit {
        rule,
        conditions: declared.conditions.into(),
        variables: declared.variables.into(),
        id: declared.id,
    }
}
