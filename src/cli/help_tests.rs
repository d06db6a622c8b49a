//! The headings of `--help`. A heading set for one group of flags applies to those after it too, until another is set.

use super::Cli;
use clap::{Arg, Command, CommandFactory as _};
use std::collections::{BTreeMap, BTreeSet};

/// Flags of `serve` by heading, as beginnings of their names; the longest beginning applies.
const HEADINGS_OF_SERVE: [(&str, &[&str]); 17] = [
    ("", &["config", "check", "env", "listen", "threads", "test-clock"]),
    ("Logs", &["log"]),
    ("Demo", &["demo"]),
    (
        "Rules",
        &[
            "rules",
            "blocks",
            "strict-rules",
            "wait-for-rules",
            "healthy-without-rules",
            "health-needs-rules",
            "global-shadow",
            "compat",
            "default-algorithm",
            "merge-domains",
            "quota-mode",
            "stop-counting-over-limit",
        ],
    ),
    ("Control plane of rules", &["xds-"]),
    ("Counters", &["max-counters", "on-full", "data", "snapshot-", "on-bad-snapshot"]),
    ("Shared counters", &["counters", "lease", "on-store-failure"]),
    ("Queues", &["max-queued", "queue-"]),
    ("Bounds on requests", &["max-descriptors", "max-entries", "max-text-bytes", "max-message-bytes"]),
    ("Responses", &["dynamic-metadata", "response-headers", "retry-jitter"]),
    (
        "Connections",
        &[
            "max-",
            "stream-window",
            "connection-window",
            "first-request-timeout",
            "keep-alive-",
            "idle-timeout",
            "body-timeout",
            "write-timeout",
            "drain-",
        ],
    ),
    ("TLS", &["tls-", "http-tls-"]),
    ("HTTP", &["http-", "limitador-", "metrics-path", "console"]),
    ("Control API", &["control", "audit-log"]),
    ("Leases", &["leases"]),
    ("Metrics", &["metrics-", "reference-metrics", "near-limit-percent", "statsd"]),
    ("Decision log", &["decision-log"]),
];

/// Paths of commands with their flags by long name.
fn flags(command: &Command, path: &str, found: &mut BTreeMap<String, Vec<Arg>>) {
    let of_command = command.get_arguments().filter(|arg| arg.get_long().is_some()).cloned();
    found.insert(path.to_owned(), of_command.collect());
    for inner in command.get_subcommands() {
        flags(inner, &format!("{path} {}", inner.get_name()), found);
    }
}

fn heading_of_serve(flag: &str) -> Option<&'static str> {
    let beginnings =
        HEADINGS_OF_SERVE.iter().flat_map(|(heading, flags)| flags.iter().map(move |flag| (*flag, *heading)));
    beginnings
        .filter(|(beginning, _)| flag.starts_with(beginning))
        .max_by_key(|(beginning, _)| beginning.len())
        .map(|(_, heading)| heading)
}

fn expected(command: &str, flag: &str) -> Option<&'static str> {
    match flag {
        "help" | "version" => Some(""),
        _ if command == "tidegate serve" => heading_of_serve(flag),
        _ if flag.starts_with("tls-") => Some("TLS"),
        _ => Some(""),
    }
}

#[test]
fn every_option_of_every_command_is_under_the_heading_of_its_subject() {
    let mut command = Cli::command();
    command.build();
    let mut commands = BTreeMap::new();
    flags(&command, "tidegate", &mut commands);
    assert!(commands.len() > 30, "{:?}", commands.keys());
    let mut wrong = Vec::new();
    for (command, flags) in &commands {
        for arg in flags {
            let flag = arg.get_long().unwrap_or_default();
            let heading = arg.get_help_heading().unwrap_or_default();
            if expected(command, flag) != Some(heading) {
                wrong.push(format!("{command} --{flag} is under {heading:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_heading_of_serve_appears_once_and_each_has_options() {
    let mut command = Cli::command();
    let serve = command.find_subcommand_mut("serve").unwrap();
    let shown: BTreeSet<String> =
        serve.get_arguments().filter_map(|arg| arg.get_help_heading().map(str::to_owned)).collect();
    let known = HEADINGS_OF_SERVE.iter().map(|(heading, _)| (*heading).to_owned());
    assert_eq!(shown, known.filter(|heading| !heading.is_empty()).collect());
    let help = serve.render_long_help().to_string();
    for heading in shown {
        assert_eq!(help.lines().filter(|line| **line == format!("{heading}:")).count(), 1, "{heading}");
    }
}
