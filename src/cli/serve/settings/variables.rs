//! The variables `TIDEGATE_…`: empty ones count as unset, booleans have the usual spellings, and unknown ones are reported.

use super::given::variable_of;
use clap::{Arg, ArgAction, Command, builder::BoolishValueParser, builder::Resettable};
use std::{
    any::TypeId,
    collections::{BTreeMap, BTreeSet},
    ffi::{OsStr, OsString},
    num::{IntErrorKind, NonZeroUsize, ParseIntError},
    str::FromStr,
};

/// Variables besides those of flags: of shells' completions.
const OTHERS: [&str; 1] = ["TIDEGATE_COMPLETE"];

/// A flag of `serve` with the variable of its name. Flags without a place in a deployment have none.
pub(in crate::cli::serve) fn with_variable(arg: Arg) -> Arg {
    match arg.get_long() {
        Some(flag) if flag != "check" && !arg.is_hide_set() && arg.get_env().is_none() => {
            // A process builds the command a few times.
            let name: &'static str = variable_of(flag).leak();
            arg.env(name)
        }
        _ => arg,
    }
}

/// The command and all below it, in which empty variables are unset, and switches accept `1`, `yes` and `True` too.
pub(super) fn adjusted(command: Command, variable: impl Fn(&OsStr) -> Option<OsString> + Copy) -> Command {
    command.mut_subcommands(|below| adjusted(below, variable)).mut_args(|arg| {
        let is_empty = arg.get_env().and_then(variable).is_some_and(|value| value.is_empty());
        let arg = if is_empty { arg.env(Resettable::Reset) } else { arg };
        let is_switch = matches!(arg.get_action(), ArgAction::SetTrue) && arg.get_env().is_some();
        if is_switch { arg.value_parser(BoolishValueParser::new()) } else { with_number_remedy(arg) }
    })
}

/// The argument with errors that name the remedy, if its value is a number without bounds of its own.
fn with_number_remedy(arg: Arg) -> Arg {
    let of = arg.get_value_parser().type_id();
    if of == TypeId::of::<NonZeroUsize>() {
        arg.value_parser(number::<NonZeroUsize>)
    } else if of == TypeId::of::<usize>() {
        arg.value_parser(number::<usize>)
    } else {
        arg
    }
}

/// Parses a whole number in digits.
fn number<N: FromStr<Err = ParseIntError>>(text: &str) -> Result<N, String> {
    let number = text.parse::<N>();
    number.map_err(|error| match (error.kind(), in_digits(text)) {
        (IntErrorKind::Zero, _) => "write at least 1".to_owned(),
        (IntErrorKind::PosOverflow, _) => "the number is too large".to_owned(),
        (_, Some(digits)) => format!("write the number in digits: {digits}"),
        _ => "write a whole number, in digits".to_owned(),
    })
}

/// The number that a text with a unit, or with separators between its digits, means.
fn in_digits(text: &str) -> Option<u64> {
    let text = text.replace(['_', ',', ' '], "");
    let at = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(at);
    let factor = match unit.to_ascii_lowercase().trim_end_matches('b') {
        "" => 1,
        "k" => 1_000,
        "ki" => 1 << 10,
        "m" => 1_000_000,
        "mi" => 1 << 20,
        "g" => 1_000_000_000,
        "gi" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

/// Warnings of variables that begin with `TIDEGATE_` and that nothing reads.
pub(super) fn warnings(program: &Command, variables: &BTreeMap<String, String>) -> Vec<String> {
    let known = known(program);
    let unknown = variables.iter().filter(|(name, value)| {
        name.starts_with("TIDEGATE_") && !known.contains(*name) && !is_of_kubernetes(name, value)
    });
    let warning = |(name, _): (&String, &String)| {
        let near = known.iter().map(|known| (strsim::osa_distance(name, known), known)).min();
        let near = near.filter(|(edits, known)| *edits <= known.len().saturating_sub("TIDEGATE_".len()) / 3);
        let remedy = near.map_or_else(
            || "remove it; `tidegate serve --help` lists the variables".to_owned(),
            |(_, known)| format!("did you mean {known}?"),
        );
        format!("the variable {name} has no effect: {remedy}")
    };
    unknown.map(warning).collect()
}

fn known(program: &Command) -> BTreeSet<String> {
    fn add(command: &Command, known: &mut BTreeSet<String>) {
        let names = command.get_arguments().filter_map(|arg| arg.get_env()?.to_str());
        known.extend(names.map(str::to_owned));
        command.get_subcommands().for_each(|below| add(below, known));
    }
    let mut known = BTreeSet::from(OTHERS.map(str::to_owned));
    add(program, &mut known);
    known
}

/// Whether Kubernetes sets it, in pods of a namespace with a Service whose name begins with `tidegate`:
/// `TIDEGATE_SERVICE_HOST`, `TIDEGATE_PORT=tcp://…`, `TIDEGATE_PORT_8081_TCP_ADDR` and so on.
fn is_of_kubernetes(name: &str, value: &str) -> bool {
    let is_of_port = |(_, rest): (&str, &str)| rest.starts_with(|first: char| first.is_ascii_digit());
    name.contains("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || name.split_once("_PORT_").is_some_and(is_of_port)
        || name.ends_with("_PORT") && value.contains("://")
}
