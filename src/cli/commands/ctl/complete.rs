//! Names of rules and domains for the completion of shells, read from the running server that the command line or the variables name. None
//! are offered unless it responds in time: a shell waits for its completion.

use super::connection::Connection;
use crate::api::pb::control as pb;
use clap::Parser;
use clap_complete::CompletionCandidate;
use std::{collections::BTreeSet, env, ffi::OsStr, time::Duration};

/// Time limit of all.
const DEADLINE: Duration = Duration::from_millis(700);

/// Flags of the connection that are taken from the command line. The others are in variables.
const FLAGS: [&str; 7] =
    ["--addr", "--token", "--token-file", "--tls-ca", "--tls-cert", "--tls-key", "--tls-server-name"];

/// The connection of a command line that is not complete.
#[derive(Parser)]
struct Partial {
    #[command(flatten)]
    connection: Connection,
}

/// Paths of rules that begin with the text.
pub(super) fn rules(current: &OsStr) -> Vec<CompletionCandidate> {
    candidates(current, |rule| rule.rule)
}

/// Domains with rules that begin with the text.
pub(super) fn domains(current: &OsStr) -> Vec<CompletionCandidate> {
    candidates(current, |rule| rule.domain)
}

fn candidates(current: &OsStr, name: impl Fn(pb::Rule) -> String) -> Vec<CompletionCandidate> {
    let is_bash = env::var_os("_CLAP_COMPLETE_COMP_TYPE").is_some();
    let current = unescaped(&current.to_string_lossy());
    let rules = fetch(env::args().collect()).unwrap_or_default();
    let names: BTreeSet<String> = rules.into_iter().map(name).collect();
    let names = names.into_iter().filter(|name| name.starts_with(&current));
    // Bash inserts a candidate as it is; the other shells escape it.
    names.map(|name| CompletionCandidate::new(if is_bash { escaped(&name) } else { name })).collect()
}

/// The first page of rules; none if the server does not respond in time.
fn fetch(words: Vec<String>) -> Option<Vec<pb::Rule>> {
    let Partial { connection } = Partial::try_parse_from(of_connection(words)).ok()?;
    let runtime = tidegate_threads::runtime().ok()?;
    let listed = runtime.block_on(async {
        tokio::time::timeout(DEADLINE, async {
            let mut caller = connection.caller().await.ok()?;
            Some(caller.call(pb::ListRulesRequest::default()).await.ok()?.rules)
        })
        .await
    });
    listed.ok()?
}

/// The flags of the connection among the words of a command line.
fn of_connection(words: Vec<String>) -> Vec<String> {
    let mut flags = vec!["tidegate".to_owned()];
    let mut words = words.into_iter().peekable();
    while let Some(word) = words.next() {
        if FLAGS.iter().any(|flag| word.strip_prefix(flag).is_some_and(|rest| rest.starts_with('=')))
            || word == "--tls-insecure"
        {
            flags.push(word);
        } else if FLAGS.contains(&&*word)
            && let Some(value) = words.next_if(|next| !next.starts_with("--"))
        {
            flags.extend([word, value]);
        }
    }
    flags
}

/// A text as one word of a command line.
fn escaped(text: &str) -> String {
    let is_plain =
        |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | '=' | ':' | ',' | '→');
    text.chars().flat_map(|c| (!is_plain(c)).then_some('\\').into_iter().chain([c])).collect()
}

fn unescaped(text: &str) -> String {
    let mut characters = text.chars();
    let mut plain = String::new();
    while let Some(c) = characters.next() {
        plain.extend(if c == '\\' { characters.next() } else { Some(c) });
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_unescaped_to_the_text_that_it_was_escaped_from() {
        for text in ["user", "user → path=/login", "a'b\"c$d\\e*"] {
            assert_eq!(unescaped(&escaped(text)), text);
        }
        assert_eq!(escaped("user → x"), "user\\ →\\ x");
    }

    #[test]
    fn flags_of_the_connection_are_found_in_a_command_line_that_is_not_complete() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let line =
            "tidegate -- tidegate ctl --addr 127.0.0.1:1 top --tls-insecure --token=t --rule --token-file";
        assert_eq!(of_connection(words(line)), words("tidegate --addr 127.0.0.1:1 --tls-insecure --token=t"));
    }
}
