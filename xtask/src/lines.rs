//! `cargo xtask lines`: lines of the product, tests not counted, beside those of another commit.

use crate::Failure;
use clap::Args;
use std::{
    collections::{BTreeMap, BTreeSet},
    process::{Command, ExitCode},
};

/// The folders of the product.
const FOLDERS: [&str; 4] = ["src", "crates", "modules", "xtask"];

/// Counts the lines of src, crates, modules and xtask without tests: Rust and Lua that git tracks
#[derive(Args)]
pub(crate) struct Lines {
    /// A commit to compare with.
    #[arg(value_name = "COMMIT")]
    base: Option<String>,
}

/// Lines by path.
type Files = BTreeMap<String, Vec<String>>;

/// A number of lines, and how many of them are neither blank nor comments.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Count {
    all: i64,
    code: i64,
}

impl Lines {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let now = counts(&read(None)?);
        let base =
            self.base.as_deref().map(|base| read(Some(base)).map(|files| counts(&files))).transpose()?;
        let rooms: BTreeSet<&String> =
            now.keys().chain(base.iter().flatten().map(|(room, _)| room)).collect();
        println!("{:<28} {:>8} {:>8} {:>9} {:>9}", "", "lines", "code", "± lines", "± code");
        let (mut total, mut total_of_base) = (Count::default(), Count::default());
        for room in rooms {
            let count = now.get(room).copied().unwrap_or_default();
            let before = base.as_ref().map(|base| base.get(room).copied().unwrap_or_default());
            print(room, count, before);
            total.add(count);
            total_of_base.add(before.unwrap_or_default());
        }
        print("all", total, base.map(|_| total_of_base));
        Ok(ExitCode::SUCCESS)
    }
}

fn print(room: &str, Count { all, code }: Count, base: Option<Count>) {
    let change = |now: i64, before: i64| format!("{:+}", now - before);
    let [all_change, code_change] =
        base.map_or_else(Default::default, |base| [change(all, base.all), change(code, base.code)]);
    println!("{room:<28} {all:>8} {code:>8} {all_change:>9} {code_change:>9}");
}

impl Count {
    fn add(&mut self, other: Self) {
        self.all += other.all;
        self.code += other.code;
    }
}

/// The files of a commit, or of the working tree.
fn read(commit: Option<&str>) -> Result<Files, Failure> {
    let mut git = Command::new("git");
    git.args(["grep", "--null", "--no-color", "-I", "-e", ""]).args(commit).arg("--");
    for folder in FOLDERS {
        git.args(["rs", "lua"].map(|ending| format!("{folder}/**.{ending}")));
    }
    let output = git.output().map_err(|error| format!("git cannot be run: {error}"))?;
    if !output.status.success() {
        return Err(format!("git grep failed: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    let mut files = Files::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Some((path, text)) = line.split_once('\0') else { continue };
        let path = path.split_once(':').map_or(path, |(_, path)| path);
        files.entry(path.to_owned()).or_default().push(text.to_owned());
    }
    Ok(files)
}

/// The product's lines of each crate, and of each room of the root package.
fn counts(files: &Files) -> BTreeMap<String, Count> {
    let of_tests: Vec<String> = files.iter().flat_map(|(path, lines)| test_modules(path, lines)).collect();
    let mut counts = BTreeMap::<String, Count>::new();
    for (path, lines) in files {
        let is_test = path.split('/').any(|part| matches!(part, "tests" | "tests.rs"))
            || of_tests.iter().any(|module| {
                path.strip_prefix(module.as_str()).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
            });
        if !is_test {
            let room: Vec<_> = path.split('/').take(2).collect();
            counts.entry(room.join("/")).or_default().add(count(lines));
        }
    }
    counts
}

/// The paths, without endings, of the modules that a file declares for tests only.
fn test_modules(path: &str, lines: &[String]) -> Vec<String> {
    let stem = path.trim_end_matches(".rs");
    let folder = match stem.rsplit_once('/') {
        Some((folder, "mod" | "lib" | "main")) => folder,
        _ => stem,
    };
    let declared = lines.windows(2).filter(|pair| pair[0].trim() == "#[cfg(test)]");
    let names = declared
        .filter_map(|pair| pair[1].trim().strip_suffix(';')?.rsplit_once("mod ").map(|(_, name)| name));
    names.map(|name| format!("{folder}/{name}")).collect()
}

/// Counts a file without its modules of tests.
fn count(lines: &[String]) -> Count {
    let mut count = Count::default();
    let mut lines = lines.iter().peekable();
    while let Some(line) = lines.next() {
        let text = line.trim();
        if text == "#[cfg(test)]"
            && lines.peek().is_some_and(|next| next.contains("mod ") && next.ends_with('{'))
        {
            let end = format!("{}}}", &line[..line.len() - line.trim_start().len()]);
            lines.by_ref().find(|line| **line == end);
            continue;
        }
        count.all += 1;
        count.code += i64::from(!text.is_empty() && !text.starts_with("//") && !text.starts_with("--"));
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(files: &[(&str, &str)]) -> Files {
        let lines = |text: &str| text.lines().map(str::to_owned).collect();
        files.iter().map(|(path, text)| ((*path).to_owned(), lines(text))).collect()
    }

    #[test]
    fn tests_are_not_counted() {
        let files = files(&[
            (
                "src/api/a.rs",
                "// A comment.\nuse b;\n\n#[cfg(test)]\nmod tests {\n    use c;\n}\nfn d() {}\n",
            ),
            ("src/api/tests.rs", "use e;\n"),
            ("crates/core/src/lib.rs", "#[cfg(test)]\nmod simulation;\nmod product;\n"),
            ("crates/core/src/simulation/mod.rs", "use f;\n"),
            ("crates/core/src/simulation_of_products.rs", "use g;\n"),
        ]);
        let counted: Vec<_> = counts(&files).into_iter().collect();
        let expected = [("crates/core", Count { all: 4, code: 4 }), ("src/api", Count { all: 4, code: 2 })];
        assert_eq!(counted, expected.map(|(room, count)| (room.to_owned(), count)));
    }
}
