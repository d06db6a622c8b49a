//! Two examples for the help of each command. A test parses them all.

use clap::Command;

/// Paths of commands without the program's name, each with its examples.
const EXAMPLES: &[(&str, [&str; 2])] = &[
    (
        "serve",
        [
            "tidegate serve --demo --demo-traffic",
            "tidegate serve --rules rules.yaml --data /var/lib/tidegate --http-listen 127.0.0.1:8082",
        ],
    ),
    ("check", ["tidegate check rules.yaml", "tidegate check /etc/tidegate/rules --json"]),
    (
        "explain",
        [
            "tidegate explain --rules rules.yaml edge api_key=k,path=/search/a",
            "tidegate explain --rules rules.yaml shop user=ann plan=gold --json",
        ],
    ),
    (
        "replay",
        [
            "tidegate replay --rules proposed.yaml decisions.jsonl",
            "tidegate replay --rules proposed.yaml --against rules.yaml decisions.jsonl.gz --html report.html",
        ],
    ),
    (
        "rlqs envoy-config",
        [
            "tidegate rlqs envoy-config --rules rules.yaml",
            "tidegate rlqs envoy-config --rules rules.yaml --input api_key=header:x-api-key --fallback deny",
        ],
    ),
    (
        "envoy check",
        [
            "tidegate envoy check --rules rules.yaml envoy.yaml",
            "curl -s localhost:9901/config_dump | tidegate envoy check --rules rules.yaml -",
        ],
    ),
    (
        "envoy explain",
        [
            "tidegate envoy explain --rules rules.yaml envoy.yaml --request 'GET https://shop.example/api' --from 192.0.2.7",
            "tidegate envoy explain --rules rules.yaml envoy.yaml --request 'GET https://shop.example/api' -H 'x-api-key: a' --json",
        ],
    ),
    ("ctl unlimited", ["tidegate ctl unlimited", "tidegate ctl unlimited --json"]),
    (
        "call",
        [
            "tidegate call demo api_key=alice --repeat 6",
            "tidegate call edge plan=free,api_key=k1 remote_address=192.0.2.7 --hits 0 --exit-code",
        ],
    ),
    ("health", ["tidegate health", "tidegate health --addr unix:/run/tidegate/tidegate.sock --timeout 1s"]),
    (
        "snapshot inspect",
        ["tidegate snapshot inspect /var/lib/tidegate", "tidegate snapshot inspect /var/lib/tidegate --json"],
    ),
    (
        "snapshot export",
        [
            "tidegate snapshot export /var/lib/tidegate counters.jsonl",
            "tidegate snapshot export /var/lib/tidegate - | gzip > counters.jsonl.gz",
        ],
    ),
    (
        "snapshot import",
        [
            "tidegate snapshot import counters.jsonl /var/lib/tidegate",
            "tidegate snapshot import - /var/lib/tidegate < counters.jsonl",
        ],
    ),
    (
        "snapshot verify",
        ["tidegate snapshot verify /var/lib/tidegate", "tidegate snapshot verify /backup/tidegate"],
    ),
    (
        "store status",
        ["tidegate store status redis://127.0.0.1:6379", "tidegate store status rediss://valkey:6379 --json"],
    ),
    (
        "store verify",
        ["tidegate store verify redis://127.0.0.1:6379", "tidegate store verify rediss://valkey:6379"],
    ),
    (
        "store export",
        [
            "tidegate store export redis://127.0.0.1:6379 counters.jsonl",
            "tidegate store export redis://127.0.0.1:6379 -",
        ],
    ),
    (
        "store import",
        [
            "tidegate store import redis://127.0.0.1:6379 counters.jsonl",
            "tidegate store import redis://127.0.0.1:6379 - < counters.jsonl",
        ],
    ),
    (
        "bench",
        [
            "tidegate bench 127.0.0.1:8081 --duration 10s",
            "tidegate bench --rate 10000 --domain edge --descriptor 'remote_address={ip}' --plot latency.svg",
        ],
    ),
    (
        "completions",
        [
            "tidegate completions bash > /etc/bash_completion.d/tidegate",
            "tidegate completions fish > ~/.config/fish/completions/tidegate.fish",
        ],
    ),
    (
        "token",
        [
            "tidegate token ann --role operate --file http-tokens",
            "tidegate token prometheus --file http-tokens",
        ],
    ),
    ("ctl status", ["tidegate ctl status", "tidegate ctl status --watch"]),
    ("ctl rules", ["tidegate ctl rules --domain shop", "tidegate ctl rules --json"]),
    (
        "ctl explain",
        ["tidegate ctl explain shop user=ann", "tidegate ctl explain shop user=ann plan=gold --json"],
    ),
    ("ctl peek", ["tidegate ctl peek shop user=ann", "tidegate ctl peek shop user=ann --json"]),
    (
        "ctl counters",
        ["tidegate ctl counters shop user=ann", "tidegate ctl counters shop user=ann --watch=1s"],
    ),
    ("ctl leases", ["tidegate ctl leases", "tidegate ctl leases --json"]),
    ("ctl quotas", ["tidegate ctl quotas", "tidegate ctl quotas --json"]),
    (
        "ctl reset",
        ["tidegate ctl reset shop user=ann --reason 'paid the bill'", "tidegate ctl reset shop --rule user"],
    ),
    (
        "ctl give-back",
        [
            "tidegate ctl give-back shop user=ann --hits 5",
            "tidegate ctl give-back shop user=ann --hits 5 --reason refund",
        ],
    ),
    ("ctl top", ["tidegate ctl top", "tidegate ctl top --admitted --hour"]),
    (
        "ctl tail",
        ["tidegate ctl tail --code over-limit", "tidegate ctl tail --domain shop --entry 'user=a*'"],
    ),
    ("ctl override list", ["tidegate ctl override list", "tidegate ctl override list --json"]),
    (
        "ctl override set",
        [
            "tidegate ctl override set shop tenant=acme --limit 10/second --for 8h --reason flood",
            "tidegate ctl override set shop tenant=acme --unlimited --id acme",
        ],
    ),
    (
        "ctl override delete",
        ["tidegate ctl override delete acme", "tidegate ctl override delete acme --reason 'flood is over'"],
    ),
    ("ctl block list", ["tidegate ctl block list", "tidegate ctl block list --json"]),
    (
        "ctl block set",
        [
            "tidegate ctl block set user=mallory --for 10m --reason flood",
            "tidegate ctl block set remote_address --cidr 198.51.100.0/24 --id scanner",
        ],
    ),
    (
        "ctl block delete",
        ["tidegate ctl block delete scanner", "tidegate ctl block delete scanner --reason 'gone'"],
    ),
    ("ctl log-level", ["tidegate ctl log-level tidegate=debug", "tidegate ctl log-level"]),
    ("ctl audit", ["tidegate ctl audit", "tidegate ctl audit --limit 20 --json"]),
    (
        "audit verify",
        ["tidegate audit verify /var/lib/tidegate/audit.jsonl", "tidegate audit verify audit.jsonl"],
    ),
];

/// The program with its examples below the help of each command.
pub(super) fn with_examples(program: Command) -> Command {
    EXAMPLES.iter().fold(program, |program, (path, examples)| {
        let names: Vec<&str> = path.split(' ').collect();
        at_path(program, &names, &format!("Examples:\n  {}\n  {}", examples[0], examples[1]))
    })
}

fn at_path(command: Command, path: &[&str], text: &str) -> Command {
    match path.split_first() {
        None => command.after_help(text.to_owned()),
        Some((first, rest)) => {
            let first = (*first).to_owned();
            command.mut_subcommand(first, |below| at_path(below, rest, text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::CommandFactory as _;

    /// The words of an example up to a pipe or a redirection, without quotes.
    fn words(example: &str) -> Vec<String> {
        let mut words = vec![String::new()];
        let mut is_quoted = false;
        for character in example.chars() {
            match character {
                '\'' => is_quoted = !is_quoted,
                '|' | '<' | '>' if !is_quoted => break,
                ' ' if !is_quoted => words.push(String::new()),
                other => words.last_mut().expect("there is one").push(other),
            }
        }
        words.retain(|word| !word.is_empty());
        words
    }

    fn leaves(command: &Command, path: &str, found: &mut Vec<String>) {
        let visible =
            command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help");
        let mut is_leaf = true;
        for below in visible {
            is_leaf = false;
            leaves(below, format!("{path} {}", below.get_name()).trim_start(), found);
        }
        if is_leaf {
            found.push(path.to_owned());
        }
    }

    #[test]
    fn every_command_has_two_examples_in_its_help() {
        let mut commands = Vec::new();
        leaves(&Cli::command(), "", &mut commands);
        let without: Vec<_> =
            commands.iter().filter(|path| !EXAMPLES.iter().any(|(known, _)| known == path)).collect();
        assert!(without.is_empty(), "add examples of {without:?}");
        assert_eq!(commands.len(), EXAMPLES.len());
        let mut program = with_examples(Cli::command());
        let help = program.find_subcommand_mut("call").expect("a command").render_long_help().to_string();
        assert!(help.contains("Examples:\n  tidegate call demo"), "{help}");
    }

    #[test]
    fn every_example_is_accepted() {
        let mut wrong = Vec::new();
        for (path, examples) in EXAMPLES {
            for example in examples {
                // Another program may stand in front, with a pipe.
                let example = &example[example.find("tidegate ").expect("the program's name")..];
                assert!(
                    example.starts_with(&format!("tidegate {path}")),
                    "{example} is of another command than {path}"
                );
                if let Err(error) = Cli::command().try_get_matches_from(words(example)) {
                    wrong.push(format!("{example}: {error}"));
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}
