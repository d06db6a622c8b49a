//! The pages for users: every rule file in them loads, and every command in a `console` block prints what the page shows.

use crate::support::{Server, rules_file};
use std::{
    env, fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};
use tempfile::{NamedTempFile, TempDir};

/// A fenced block of a page.
struct Block {
    language: String,
    line: usize,
    text: String,
}

/// The fenced blocks of a page, without the indentation of lists.
fn blocks(page: &str) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let mut indentation = None;
    for (line, text) in page.lines().enumerate() {
        let content = text.trim_start();
        match (content.strip_prefix("```"), indentation) {
            (Some(language), None) => {
                indentation = Some(text.len() - content.len());
                found.push(Block { language: language.to_owned(), line: line + 1, text: String::new() });
            }
            (Some(_), Some(_)) => indentation = None,
            (None, Some(spaces)) => {
                let block = found.last_mut().expect("a block has begun");
                block.text.push_str(text.get(spaces..).unwrap_or_default());
                block.text.push('\n');
            }
            (None, None) => {}
        }
    }
    assert_eq!(indentation, None, "a block without its end");
    found
}

impl Block {
    /// Whether the block is a whole rule file. Comments may precede it.
    fn is_rule_file(&self) -> bool {
        let mut lines = self.text.lines().filter(|line| !line.starts_with('#'));
        let first = lines.next().unwrap_or_default();
        self.language == "yaml" && (first.starts_with("domain:") || first.starts_with("- namespace:"))
    }

    /// The commands and the lines that each prints.
    fn commands(&self) -> Vec<(&str, Vec<&str>)> {
        let mut commands: Vec<(&str, Vec<&str>)> = Vec::new();
        for line in self.text.lines() {
            match line.strip_prefix("$ ") {
                Some(command) => commands.push((command, Vec::new())),
                None => commands.last_mut().expect("a block begins with a command").1.push(line),
            }
        }
        commands
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// README.md and every page of docs.
fn pages() -> Vec<PathBuf> {
    let folders = ["", "docs", "docs/gateways"].map(|folder| root().join(folder));
    let files = folders.iter().flat_map(|folder| fs::read_dir(folder).expect("a folder"));
    let paths = files.map(|file| file.expect("an entry").path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
}

/// A folder with `rules.yaml` and a server with these rules, for the commands of a page.
struct Sandbox {
    folder: TempDir,
    server: Option<(Server, NamedTempFile)>,
}

impl Sandbox {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("bin")).expect("a folder");
        symlink(env!("CARGO_BIN_EXE_tidegate"), path("bin/tidegate")).expect("a link");
        for sources in ["deploy", "examples"] {
            symlink(root().join(sources), path(sources)).expect("a link");
        }
        Self { folder, server: None }
    }

    /// Starts a server with the rules of a block, and stops the server before it.
    fn serve(&mut self, rules: &str) {
        fs::write(self.folder.path().join("rules.yaml"), rules).expect("a file");
        self.server = None;
        let file = rules_file(rules);
        let socket = format!("unix:{}", self.folder.path().join("tidegate.sock").display());
        let arguments = ["--listen", &socket, "--control", "loopback", "--http-listen", "127.0.0.1:0"];
        self.server = Some((Server::with_rules(file.path(), &arguments), file));
    }

    /// The output of a command, both streams in one.
    fn run(&self, command: &str) -> String {
        let path = [self.folder.path().join("bin")];
        let inherited = env::var_os("PATH").expect("a PATH");
        let path = env::join_paths(path.into_iter().chain(env::split_paths(&inherited))).expect("a PATH");
        let socket = format!("unix:{}", self.folder.path().join("tidegate.sock").display());
        let mut script = command.to_owned();
        if let Some((server, _)) = &self.server {
            script = script.replace(":8082", &format!(":{}", server.admin_port()));
        }
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("exec 2>&1; {script}")]).current_dir(&self.folder);
        let output = shell.env("PATH", path).env("TIDEGATE_ADDR", socket).output().expect("a shell");
        String::from_utf8(output.stdout).expect("UTF-8")
    }
}

impl Sandbox {
    /// The first command of a block whose output differs from the page, with its output.
    fn first_that_differs(&self, block: &Block) -> Option<String> {
        block.commands().into_iter().find_map(|(command, shown)| {
            let printed = self.run(command);
            let agrees = agrees(&shown, &printed.lines().collect::<Vec<_>>());
            (!agrees).then(|| format!("$ {command}\n{printed}"))
        })
    }
}

/// The words of a line. Numbers that differ from run to run (waits, times, tickets, ports) are written as `#`.
fn comparable(line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    let mut shown = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let is_wait = words.get(at + 1).is_some_and(|unit| *unit == "s") && word.contains('.');
        let is_ticket = word.contains("slot-");
        let is_time = word.len() > 8 && word.starts_with("20") && word.contains(':');
        shown.push(if is_wait || is_ticket || is_time { "#" } else { word });
    }
    shown.join(" ")
}

/// Whether the output is as shown. A line `…` stands for any number of lines, and `…` at the end of a line for the rest of the line.
fn agrees(shown: &[&str], printed: &[&str]) -> bool {
    let Some((first, rest)) = shown.split_first() else { return printed.is_empty() };
    if *first == "…" {
        return (0..=printed.len()).any(|skipped| agrees(rest, &printed[skipped..]));
    }
    let Some((line, others)) = printed.split_first() else { return false };
    let same = match first.strip_suffix('…') {
        Some(start) => comparable(line).starts_with(&comparable(start)),
        None => comparable(line) == comparable(first),
    };
    same && agrees(rest, others)
}

/// Attempts at a block: on a busy machine, a window of a second may end between two commands.
const ATTEMPTS: usize = 10;

/// Runs the commands of a page, each `console` block with a new server that has the last rules before it.
fn the_commands_print_what_the_page_shows(name: &str, commands_at_least: usize) {
    let page = fs::read_to_string(root().join(name)).expect(name);
    let mut sandbox = Sandbox::new();
    let mut rules = None;
    let mut run = 0;
    let mut wrong = Vec::new();
    for block in blocks(&page) {
        if block.is_rule_file() {
            rules = Some(block.text.clone());
        }
        if block.language != "console" {
            continue;
        }
        run += block.commands().len();
        let mut attempts = (0..ATTEMPTS).map(|_| {
            rules.iter().for_each(|rules| sandbox.serve(rules));
            sandbox.first_that_differs(&block)
        });
        // Stops at the first attempt that does not differ.
        let differences: Vec<String> = attempts.by_ref().map_while(|difference| difference).collect();
        if let (ATTEMPTS, Some(last)) = (differences.len(), differences.last()) {
            wrong.push(format!("{name}:{}: {last}", block.line));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(run >= commands_at_least, "only {run} commands were run");
}

#[test]
fn every_rule_file_of_every_page_loads() {
    let mut loaded = 0;
    let mut wrong = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(&page).expect("a page");
        for block in blocks(&text).into_iter().filter(Block::is_rule_file) {
            loaded += 1;
            let file = rules_file(&block.text);
            let check = Command::new(env!("CARGO_BIN_EXE_tidegate")).arg("check").arg(file.path()).output();
            let check = check.expect("the binary runs");
            if !check.status.success() {
                let errors = String::from_utf8_lossy(&check.stderr).into_owned();
                wrong.push(format!("{}:{}:\n{errors}", page.display(), block.line));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(loaded >= 40, "only {loaded} rule files were found");
}

#[test]
fn the_recipes_do_what_their_page_shows() {
    the_commands_print_what_the_page_shows("docs/recipes.md", 20);
}

/// The configuration of the quick start with the domain and the entries of a recipe, as the page describes.
fn quickstart_with(entries: &str) -> String {
    let quickstart =
        fs::read_to_string(root().join("deploy/envoy/quickstart.yaml")).expect("a configuration");
    let spaces = |line: &str| line.len() - line.trim_start().len();
    let mut config = String::new();
    let mut lines = quickstart.lines().peekable();
    while let Some(line) = lines.next() {
        if line.trim() != "rate_limits:" {
            config += &format!("{}\n", line.replace("domain: demo", "domain: shop"));
            continue;
        }
        entries.lines().for_each(|entry| config += &format!("{}{entry}\n", " ".repeat(spaces(line))));
        while lines.next_if(|next| spaces(next) > spaces(line)).is_some() {}
    }
    config
}

/// A reader copies rules and actions together: if their keys differed, requests would be unlimited.
#[test]
fn the_envoy_actions_of_each_recipe_reach_its_limits() {
    let page = fs::read_to_string(root().join("docs/recipes.md")).expect("the page");
    let folder = tempfile::tempdir().expect("a folder");
    let [rules, config] = ["rules.yaml", "envoy.yaml"].map(|name| folder.path().join(name));
    let (mut checked, mut wrong) = (0, Vec::new());
    for recipe in page.split("\n## ").skip(1) {
        let heading = recipe.lines().next().expect("a heading");
        let blocks = blocks(recipe);
        let Some(entries) = blocks.iter().find(|block| block.text.starts_with("rate_limits:")) else {
            panic!("{heading}: no entries of Envoy");
        };
        fs::write(&config, quickstart_with(&entries.text)).expect("a file");
        for block in blocks.iter().filter(|block| block.is_rule_file()) {
            checked += 1;
            fs::write(&rules, &block.text).expect("a file");
            let mut check = Command::new(env!("CARGO_BIN_EXE_tidegate"));
            check.args(["envoy", "check", "--rules"]).args([&rules, &config]);
            let output = check.output().expect("the binary runs");
            let shown = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
            if !output.status.success() || !shown.contains("findings: 0 unlimited") {
                wrong.push(format!("{heading}:\n{shown}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(checked >= 10, "only {checked} rule files were found");
}

#[test]
fn troubleshooting_prints_what_its_page_shows() {
    the_commands_print_what_the_page_shows("docs/troubleshooting.md", 18);
}

#[test]
fn limits_translated_from_nginx_do_what_their_page_shows() {
    the_commands_print_what_the_page_shows("docs/from-nginx.md", 2);
}
