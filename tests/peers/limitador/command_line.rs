//! Limitador's command line, as its own `--help` prints it: Tidegate has each flag and storage too, and docs/migrate.md describes its
//! effect.

use crate::limitador::{process, tidegate};
use std::{collections::BTreeSet, path::Path, process::Command};

/// The options of a help page: each `-x` and `--long` at the start of a line.
fn options(help: &str) -> BTreeSet<String> {
    let is_option = |line: &&str| line.trim_start().starts_with('-');
    let words = help.lines().filter(is_option).flat_map(|line| {
        let names = line.trim_start().split("  ").next().unwrap_or_default();
        names.split([',', ' ']).filter(|word| word.starts_with('-')).map(|word| word.trim_end_matches("..."))
    });
    words.map(str::to_owned).collect()
}

/// The storages of a help page.
fn storages(help: &str) -> BTreeSet<String> {
    let lines = help.lines().skip_while(|line| *line != "STORAGES:" && *line != "Commands:").skip(1);
    let names = lines.take_while(|line| !line.is_empty()).filter_map(|line| line.split_whitespace().next());
    names.map(str::to_owned).collect()
}

fn help(program: &Path, args: &[&str]) -> String {
    let shown = Command::new(program).args(args).arg("--help").output().expect("it runs");
    assert!(shown.status.success(), "{program:?} {args:?}: {shown:?}");
    String::from_utf8(shown.stdout).expect("text")
}

pub(super) async fn each_flag_and_storage_is_known_and_documented() {
    let folder = tempfile::tempdir().expect("a folder");
    let (there, here) = (process::limitador(), tidegate(&folder));
    let there = Path::new(&there);
    let page = include_str!("../../../docs/migrate.md");
    let table = page
        .split("| Limitador | here |")
        .nth(1)
        .and_then(|rest| rest.split("\n\n").next())
        .expect("a table");
    let of_there = storages(&help(there, &[]));
    assert!(of_there.len() > 2, "{of_there:?}");
    let of_here = storages(&help(&here, &[]));
    assert!(of_there.is_subset(&of_here), "{of_there:?}, {of_here:?}");
    let mut compared = 0;
    for storage in std::iter::once(None).chain(of_there.iter().map(Some)) {
        let args: Vec<&str> = storage.map(String::as_str).into_iter().collect();
        let [theirs, ours] = [options(&help(there, &args)), options(&help(&here, &args))];
        let unknown: Vec<_> = theirs.difference(&ours).collect();
        assert!(unknown.is_empty(), "{storage:?}: {unknown:?}");
        let own = ["-h", "--help", "-V", "--version"];
        for option in theirs.iter().filter(|option| !own.contains(&option.as_str())) {
            // `-v...` counts.
            let is_documented =
                table.contains(&format!("`{option}`")) || table.contains(&format!("{option} "));
            assert!(is_documented, "{option} is not in docs/migrate.md");
            compared += 1;
        }
        if let Some(storage) = storage {
            assert!(table.contains(&format!("`{storage}")), "{storage} is not in docs/migrate.md");
        }
    }
    println!("{} storages and {compared} options", of_there.len());
    assert!(compared > 15, "{compared}");
}
