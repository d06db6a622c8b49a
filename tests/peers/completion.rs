//! Completion by real shells, of commands and of the rules of a running server.

use crate::support::{Server, eventually_blocking, rules_file};
use std::{process::Command, str};
use tempfile::NamedTempFile;

crate::tests_with! { BASH: bash_completes_commands_and_rules, bash_completes_commands_by_the_static_script }

const TIDEGATE: &str = env!("CARGO_BIN_EXE_tidegate");

const RULES: &str = "
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: day, requests_per_unit: 3 }
    descriptors:
      - { key: path, value: /login, rate_limit: { unit: day, requests_per_unit: 1 } }
  - { key: plan, rate_limit: { unit: day, requests_per_unit: 1 } }
";

/// A server whose Unix socket gives this user the role to read its rules.
struct Shop {
    address: String,
    _server: Server,
    _files: (NamedTempFile, tempfile::TempDir),
}

impl Shop {
    fn start() -> Self {
        let (folder, rules) = (tempfile::tempdir().expect("a folder"), rules_file(RULES));
        let address = format!("unix:{}", folder.path().join("socket").display());
        let path = rules.path().to_str().expect("UTF-8");
        let server = Server::start_on(&address, &["--rules", path, "--control", "loopback"]);
        Self { address, _server: server, _files: (rules, folder) }
    }
}

/// The lines that a script prints, sorted.
fn lines(shell: &str, args: &[&str], script: &str, address: &str) -> Vec<String> {
    let output = Command::new(shell)
        .args(args)
        .args(["-c", script])
        .env("TIDEGATE_ADDR", address)
        .env("PATH", path_with_tidegate())
        .output()
        .expect("the shell runs");
    let text = str::from_utf8(&output.stdout).expect("UTF-8");
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// Asserts these completions. A command waits for the server only as long as a person who presses a key, so a busy machine may need several.
fn assert_completions(complete: impl Fn() -> Vec<String>, expected: &[&str]) {
    eventually_blocking("the completions", || {
        let completed = complete();
        if completed == expected { Ok(()) } else { Err(completed) }
    });
}

fn path_with_tidegate() -> String {
    let folder = std::path::Path::new(TIDEGATE).parent().expect("a folder").display();
    format!("{folder}:{}", std::env::var("PATH").unwrap_or_default())
}

/// Completions by bash, of the function that `source` registers for the command.
fn bash(source: &str, words: &[&str], address: &str) -> Vec<String> {
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let script = format!(
        "source <({source})\n\
         function=$(complete -p tidegate | sed 's/.*-F \\([^ ]*\\).*/\\1/')\n\
         COMP_WORDS=({words}); COMP_CWORD={index}; COMP_TYPE=9; COMP_LINE=\"${{COMP_WORDS[*]}}\"; COMP_POINT=${{#COMP_LINE}}\n\
         $function tidegate \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"\n\
         printf '%s\\n' \"${{COMPREPLY[@]}}\"\n",
        words = quoted.join(" "),
        index = words.len() - 1,
    );
    lines("bash", &["--norc", "--noprofile"], &script, address)
}

const DYNAMIC: &str = "TIDEGATE_COMPLETE=bash tidegate";

async fn bash_completes_commands_and_rules() {
    let shop = Shop::start();
    let completed = |words: &[&str]| bash(DYNAMIC, words, &shop.address);
    assert!(completed(&["tidegate", "ct"]).contains(&"ctl".to_owned()));
    assert!(completed(&["tidegate", "ctl", "bl"]).contains(&"block".to_owned()));
    let rules = ["user", "user\\ →\\ path=/login"];
    let expect = |words: &[&str], expected: &[&str]| assert_completions(|| completed(words), expected);
    expect(&["tidegate", "ctl", "top", "--rule", "us"], &rules);
    expect(&["tidegate", "ctl", "top", "--rule", "user\\ "], &rules[1..]);
    expect(&["tidegate", "ctl", "reset", "shop", "--rule", "pl"], &["plan"]);
    expect(&["tidegate", "ctl", "peek", "sh"], &["shop"]);
    // Without a server there are no completions, and no error.
    let nowhere = bash(DYNAMIC, &["tidegate", "ctl", "top", "--rule", "us"], "127.0.0.1:1");
    assert_eq!(nowhere, [""; 1]);
    // The address on the command line has precedence.
    let words = ["tidegate", "ctl", "--addr", &shop.address, "top", "--rule", "pl"];
    assert_completions(|| bash(DYNAMIC, &words, "127.0.0.1:1"), &["plan"]);
}

async fn bash_completes_commands_by_the_static_script() {
    let completed = bash("tidegate completions bash", &["tidegate", "ctl", "bl"], "127.0.0.1:1");
    assert_eq!(completed, ["block"]);
}

pub mod zsh {
    //! Zsh's functions that display completions work in its line editor only; here they print.

    use super::{Shop, assert_completions, lines};

    crate::tests_with! { ZSH: zsh_completes_commands_and_rules }

    async fn zsh_completes_commands_and_rules() {
        let shop = Shop::start();
        let completed = |source: &str, words: &str| {
            let script = format!(
                "compdef() {{ completer=$1 }}\n\
                 _describe() {{ local array=$argv[-1]; print -rl -- ${{(P)array}} }}\n\
                 eval \"$({source})\"\n\
                 words=({words} ''); words[-1]=(); CURRENT=${{#words}}\n\
                 $completer\n"
            );
            let lines = lines("zsh", &["-f"], &script, &shop.address);
            lines
                .into_iter()
                .map(|line| line.split(':').next().unwrap_or_default().to_owned())
                .collect::<Vec<_>>()
        };
        let dynamic = "TIDEGATE_COMPLETE=zsh tidegate";
        assert_eq!(completed(dynamic, "tidegate ctl bl"), ["block"]);
        let expect =
            |words: &str, expected: &[&str]| assert_completions(|| completed(dynamic, words), expected);
        expect("tidegate ctl top --rule us", &["user", "user → path=/login"]);
        expect("tidegate ctl peek sh", &["shop"]);
        // The static script is accepted.
        let parsed =
            lines("zsh", &["-f"], "zsh -n =(tidegate completions zsh) && print parsed", &shop.address);
        assert_eq!(parsed, ["parsed"]);
    }
}

pub mod fish {
    use super::{Shop, assert_completions, lines};

    crate::tests_with! { FISH: fish_completes_commands_and_rules }

    async fn fish_completes_commands_and_rules() {
        let shop = Shop::start();
        let completed = |source: &str, line: &str| {
            let script = format!("{source} | source; complete -C '{line}'");
            let lines = lines("fish", &["--no-config"], &script, &shop.address);
            lines
                .into_iter()
                .map(|line| line.split('\t').next().unwrap_or_default().to_owned())
                .collect::<Vec<_>>()
        };
        let dynamic = "TIDEGATE_COMPLETE=fish tidegate";
        assert_eq!(completed(dynamic, "tidegate ctl bl"), ["block"]);
        let expect =
            |words: &str, expected: &[&str]| assert_completions(|| completed(dynamic, words), expected);
        expect("tidegate ctl top --rule us", &["user", "user → path=/login"]);
        expect("tidegate ctl peek sh", &["shop"]);
        assert_eq!(completed("tidegate completions fish", "tidegate ctl bl"), ["block"]);
    }
}
