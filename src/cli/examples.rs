//! Examples for the help of each command. A test parses them all.

use clap::Command;
use std::collections::BTreeMap;

/// A line each.
const EXAMPLES: &str = include_str!("examples.txt");

/// The program with its examples below the help of each command.
pub(super) fn with_examples(program: Command) -> Command {
    let mut texts = BTreeMap::new();
    for example in EXAMPLES.lines() {
        let text = texts.entry(path(&program, example)).or_insert_with(|| "Examples:".to_owned());
        *text += &format!("\n  {example}");
    }
    texts.into_iter().fold(program, |program, (path, text)| at_path(program, &path, text))
}

/// The names of the command that an example calls, the program's left out. Another program may stand in front, with a pipe.
fn path<'e>(program: &Command, example: &'e str) -> Vec<&'e str> {
    let words = example.split(' ').skip_while(|word| *word != program.get_name()).skip(1);
    let below = |command: &mut &Command, word: &'e str| {
        *command = command.find_subcommand(word)?;
        Some(word)
    };
    words.scan(program, below).collect()
}

fn at_path(command: Command, path: &[&str], text: String) -> Command {
    match path.split_first() {
        None => command.after_help(text),
        Some((first, rest)) => command.mut_subcommand(first, |below| at_path(below, rest, text)),
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
        let paths: Vec<String> = EXAMPLES.lines().map(|line| path(&Cli::command(), line).join(" ")).collect();
        let count = |command: &String| paths.iter().filter(|path| *path == command).count();
        let without: Vec<_> = commands.iter().filter(|command| count(command) != 2).collect();
        assert!(without.is_empty(), "write two examples of {without:?}");
        assert_eq!(paths.len(), 2 * commands.len());
        let mut program = with_examples(Cli::command());
        let help = program.find_subcommand_mut("call").expect("a command").render_long_help().to_string();
        assert!(help.contains("Examples:\n  tidegate call demo"), "{help}");
    }

    #[test]
    fn every_example_is_accepted() {
        let mut wrong = Vec::new();
        for example in EXAMPLES.lines() {
            let called = &example[example.find("tidegate ").expect("the program's name")..];
            if let Err(error) = Cli::command().try_get_matches_from(words(called)) {
                wrong.push(format!("{example}: {error}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}
