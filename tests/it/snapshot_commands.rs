//! `tidegate snapshot`, and snapshots of format 1, which every later version must read.

use crate::support::{Server, rules_file};
use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};
use tidegate_core::{
    limit::{Descriptor, Entry, Hits, Request},
    limiter::Limiter,
    rules::{self, LoadOptions, RuleSet},
    store::{OnFull, Seed, StoreSettings},
};
use tidegate_snapshot::{Archive, OnBadSnapshot};

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { per: 3660d, requests_per_unit: 1000, algorithm: fixed_window }
";

fn snapshot(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.arg("snapshot").args(args).output().expect("the program runs")
}

/// The standard output of a command, which must succeed.
fn printed(args: &[&str]) -> String {
    let output = snapshot(args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The standard error of a command, which must fail.
fn error_of(args: &[&str]) -> String {
    let output = snapshot(args);
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary paths are UTF-8")
}

#[tokio::test]
async fn a_snapshot_is_inspected_verified_exported_and_imported_elsewhere() {
    let (folder, rules) = (tempfile::tempdir().expect("a folder"), rules_file(RULES));
    let [data, file, elsewhere] = ["data", "file.jsonl", "elsewhere"].map(|name| folder.path().join(name));
    let server = Server::with_rules(rules.path(), &["--data", text(&data)]);
    let mut client = server.client().await;
    for user in ["alice", "bob", "alice"] {
        client.hit("d", &[("user", user)]).await.expect("an answer");
    }
    drop(client);
    let in_use = error_of(&["inspect", text(&data)]);
    assert!(in_use.contains(&format!("in use by process {}", server.pid())), "{in_use}");
    assert!(server.terminate().success());

    let table = printed(&["inspect", text(&data)]);
    assert!(table.contains("fixed_window") && table.contains("2 counters, written"), "{table}");
    let json: serde_json::Value =
        serde_json::from_str(&printed(&["inspect", text(&data), "--json"])).expect("it is JSON");
    assert_eq!((&json["counters"], &json["limits"][0]["domain"]), (&2.into(), &"d".into()));
    assert!(printed(&["verify", text(&data)]).contains("good, 2 counters"));

    let exported = snapshot(&["export", text(&data), text(&file)]);
    assert!(String::from_utf8_lossy(&exported.stderr).contains("2 counters exported"));
    assert_eq!(printed(&["export", text(&data), "-"]), fs::read_to_string(&file).expect("the export"));
    assert!(error_of(&["export", text(&data), text(&file)]).contains("exists"));
    assert!(printed(&["import", text(&file), text(&elsewhere)]).contains("2 counters"));
    assert!(error_of(&["import", text(&file), text(&elsewhere)]).contains("holds a snapshot already"));
    let server = Server::with_rules(rules.path(), &["--data", text(&elsewhere)]);
    let answer = server.client().await.hit("d", &[("user", "alice")]).await.expect("an answer");
    assert_eq!(answer.statuses[0].limit_remaining, 997);
}

/// Runs a command with a terminal as standard error; returns the bytes that the terminal received.
fn on_a_terminal(args: &[&str]) -> String {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudoterminal");
    grantpt(&controller).and_then(|()| unlockpt(&controller)).expect("access to its other end");
    let path = ptsname(&controller, Vec::new()).expect("its name").into_string().expect("ASCII");
    let terminal = fs::OpenOptions::new().read(true).write(true).open(path).expect("its other end");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.arg("snapshot").args(args).env("TERM", "xterm").stdout(Stdio::null()).stderr(terminal);
    let mut running = command.spawn().expect("the program runs");
    drop(command);
    let mut sent = Vec::new();
    // The read fails with EIO once the program, which has the only other end, has ended.
    let _ = fs::File::from(controller).read_to_end(&mut sent);
    assert!(running.wait().expect("it ends").success());
    String::from_utf8_lossy(&sent).into_owned()
}

#[test]
fn progress_is_shown_on_a_terminal() {
    let data = fixture("snapshot-v1/data");
    for (args, bar) in
        [(&["export", text(&data), "-"][..], "exporting ["), (&["verify", text(&data)], "reading [")]
    {
        let sent = on_a_terminal(args);
        assert!(sent.contains(bar) && sent.contains("% ") && sent.contains(" counters ("), "{sent:?}");
    }
}

#[test]
fn a_snapshot_is_imported_from_standard_input() {
    let folder = tempfile::tempdir().expect("a folder");
    let exported = fixture("snapshot-v1").join("exported.jsonl");
    let mut import = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    import.args(["snapshot", "import", "-", text(folder.path())]);
    let output =
        import.stdin(fs::File::open(exported).expect("the fixture")).output().expect("the program runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(printed(&["verify", text(folder.path())]).contains("good, 8 counters"));
}

/// Two limits of one rule used to be shown as identical rows.
#[test]
fn inspect_distinguishes_the_limits_of_one_rule() {
    let table = printed(&["inspect", text(&fixture("snapshot-v1-limits").join("data"))]);
    let mut rows: Vec<&str> = table.lines().collect();
    rows.sort_unstable();
    rows.dedup();
    assert_eq!(rows.len(), table.lines().count(), "{table}");
    for limit in ["100 per 3659d", "1000 per 3660d", "100 per day in Europe/Berlin"] {
        assert!(table.contains(limit), "{limit}: {table}");
    }
}

/// Every file and directory below a folder, with its content and the time of its last change.
fn state_of(folder: &Path) -> Vec<(PathBuf, std::time::SystemTime, Option<Vec<u8>>)> {
    let mut state = Vec::new();
    for entry in fs::read_dir(folder).expect("the folder exists") {
        let path = entry.expect("an entry").path();
        let changed = path.metadata().and_then(|metadata| metadata.modified()).expect("its time");
        if path.is_dir() {
            state.extend(state_of(&path));
        }
        state.push((path.clone(), changed, fs::read(&path).ok()));
    }
    state.sort();
    state
}

/// Inspecting used to need permission to write, created a lock file, and let sled write to its files.
#[test]
fn reading_a_snapshot_changes_nothing_in_its_directory() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    copy_folder(&fixture("snapshot-v1").join("data"), &data);
    let before = state_of(&data);
    for command in ["inspect", "verify"] {
        printed(&[command, text(&data)]);
    }
    printed(&["export", text(&data), "-"]);
    assert_eq!(state_of(&data), before);
}

#[test]
fn a_directory_without_a_snapshot_is_an_error_and_is_not_created() {
    let folder = tempfile::tempdir().expect("a folder");
    let missing = folder.path().join("missing");
    for command in ["inspect", "verify"] {
        assert!(error_of(&[command, text(&missing)]).contains("there is no snapshot"));
    }
    assert!(!missing.exists());
}

/// One flipped bit in each of many bytes over all files. `verify` once reported a damaged directory as good.
#[test]
fn a_flipped_bit_is_found_or_has_no_effect() {
    const FLIPS: usize = 60;
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    printed(&["import", text(&fixture("snapshot-v1").join("exported.jsonl")), text(&data)]);
    let exported = printed(&["export", text(&data), "-"]);
    let bytes: Vec<(PathBuf, usize)> = files_below(&data)
        .into_iter()
        .flat_map(|file| {
            let length = fs::metadata(&file).expect("a file").len() as usize;
            (0..length).map(move |offset| (file.clone(), offset))
        })
        .collect();
    let (mut tried, mut found) = (0, 0);
    for (number, (file, offset)) in bytes.iter().step_by(bytes.len() / FLIPS).enumerate() {
        let intact = fs::read(file).expect("a file");
        let mut damaged = intact.clone();
        damaged[*offset] ^= 1 << (number % 8);
        fs::write(file, damaged).expect("it is written");
        tried += 1;
        if snapshot(&["verify", text(&data)]).status.success() {
            let now = printed(&["export", text(&data), "-"]);
            assert_eq!(now, exported, "byte {offset} of {} is not found", file.display());
        } else {
            found += 1;
        }
        fs::write(file, intact).expect("it is written");
    }
    println!("{tried} flipped bits, {found} found, the others without effect");
    assert!(found > tried / 2, "{found} of {tried} found");
}

/// Damaged files used to make sled panic, and `verify` print a backtrace.
#[test]
fn damaged_files_are_reported_in_words_and_without_a_backtrace() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    copy_folder(&fixture("snapshot-v1").join("data"), &data);
    for file in files_below(&data) {
        let intact = fs::read(&file).expect("a file");
        let overwritten = [&intact[..intact.len() / 2], &vec![0xff; intact.len() / 2][..]].concat();
        for damaged in [&intact[..intact.len() / 2], &[], &overwritten] {
            fs::write(&file, damaged).expect("it is written");
            let mut verify = Command::new(env!("CARGO_BIN_EXE_tidegate"));
            verify.args(["snapshot", "verify", text(&data)]).env("RUST_BACKTRACE", "full");
            let output = verify.output().expect("the program runs");
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(matches!(output.status.code(), Some(0 | 1)), "{}: {output:?}", file.display());
            assert!(!error.contains("panicked") && !error.contains("backtrace"), "{error}");
            assert!(error.lines().count() <= 2, "{}: {error}", file.display());
        }
        fs::write(&file, intact).expect("it is written");
    }
    printed(&["verify", text(&data)]);
}

#[test]
fn a_lock_that_is_a_directory_is_reported_with_its_path() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    fs::create_dir_all(data.join("lock")).expect("a folder");
    let exported = fixture("snapshot-v1").join("exported.jsonl");
    let error = error_of(&["import", text(&exported), text(&data)]);
    assert!(error.contains(text(&data.join("lock"))) && error.lines().count() <= 2, "{error}");
    let mut serve = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    serve.args(["serve", "--listen", "127.0.0.1:0", "--log-format", "json", "--data", text(&data)]);
    let output = serve.output().expect("the program runs");
    let log = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), log.contains(text(&data.join("lock")))), (Some(1), true), "{log}");
}

/// The files of a directory and of its directories, except the lock.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => files.extend(files_below(&path)),
            false if path.ends_with("lock") => {}
            false => files.push(path),
        }
    }
    files.sort();
    files
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("the folder exists") {
        let (from, name) = entry.map(|entry| (entry.path(), entry.file_name())).expect("an entry");
        match from.is_dir() {
            true => copy_folder(&from, &to.join(name)),
            false => drop(fs::copy(&from, to.join(name)).expect("a copy")),
        }
    }
}

/// Exports a copy of a fixture, compares it with the export kept beside it, imports that export, and restores both: five
/// hits were counted under each of the keys.
fn check_fixture(name: &str, keys: &[&str]) {
    let folder = tempfile::tempdir().expect("a folder");
    let (data, file) = (folder.path().join("data"), folder.path().join("file.jsonl"));
    copy_folder(&fixture(name).join("data"), &data);
    printed(&["verify", text(&data)]);
    printed(&["export", text(&data), text(&file)]);
    let lines = |path: &Path| {
        let content = fs::read_to_string(path).expect("a file");
        let mut lines: Vec<String> = content.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(lines(&file), lines(&fixture(name).join("exported.jsonl")));
    let imported = folder.path().join("imported");
    printed(&["import", text(&fixture(name).join("exported.jsonl")), text(&imported)]);
    for data in [&data, &imported] {
        check_restored(data, &fixture(name).join("rules.yaml"), keys);
    }
}

fn check_restored(data: &Path, rules: &Path, keys: &[&str]) {
    // The clock stands at the time of the snapshot.
    let at = Archive::open(data).expect("it is good").expect("it exists").at();
    let sources = rules::read(&[rules.to_owned()]).expect("rules");
    let rules = RuleSet::parse(&sources, &LoadOptions::default()).expect("good rules");
    let build = |seed| {
        let store = StoreSettings { seed, counters_max: 100, on_full: OnFull::Deny };
        Limiter::new(rules.clone(), store, false)
    };
    let other_seed = Seed::from_bytes([0; 16]);
    let started = tidegate_snapshot::start(data, OnBadSnapshot::Refuse, other_seed, build, at, |_| {});
    let started = started.unwrap_or_else(|error| panic!("{error}"));
    for key in keys {
        let mut request = Request::new("fixture");
        let entries = [Entry { key, value: "alice" }].into_iter().collect();
        request.push(Descriptor { entries, hits: Hits::Peek, limit: None });
        let pinned = started.limiter.pin();
        let decision = pinned.decide(&request, at);
        assert_eq!(decision.statuses[0].remaining, 95, "{key}");
    }
}

/// Written by the first version with snapshots, with every algorithm. If this fails, the format was changed without a way to read the old
/// format: do not write the fixture again.
#[test]
fn the_first_snapshot_of_format_1_stays_readable() {
    let keys = ["sliding", "precise", "log", "fixed", "first_hit", "calendar", "tokens", "leaky"];
    check_fixture("snapshot-v1", &keys);
}

/// Written by a later version of the same format, with the parameters and kinds of limits that the first fixture lacks: every calendar
/// period, a refill by intervals, a queue, several limits of one rule, limits sent with the request.
#[test]
fn every_kind_of_limit_of_format_1_stays_readable() {
    let keys = ["day", "week", "month", "intervals", "queued", "always"];
    check_fixture("snapshot-v1-limits", &keys);
}
