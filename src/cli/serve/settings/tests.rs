//! Origins of settings, and what is refused.

use super::*;
use crate::cli::Cli;
use clap::CommandFactory as _;
use tidegate_core::rules::Source;

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// The settings of these arguments and variables, as JSON.
fn effective_json(args: &[&str], variables: &[(&str, &str)]) -> Result<serde_json::Value, String> {
    let variables = map(variables);
    let args = args.iter().map(|arg| (*arg).to_owned()).collect();
    let (args, inserted) =
        expand(&Cli::command(), args, &variables).map_err(|failure| failure.to_string())?;
    // The variables of this test, not those of the process.
    let without = variables::adjusted(Cli::command(), |_| Some(OsString::new()));
    let matches = without.clone().try_get_matches_from(&args).map_err(|error| error.to_string())?;
    let serve = matches.subcommand_matches("serve").expect("serve");
    let settings = effective(&without, serve, inserted).map_err(|failure| failure.to_string())?;
    Ok(settings.to_json())
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::Builder::new().suffix(".yaml").tempfile().expect("a file");
    std::fs::write(file.path(), text).expect("written");
    file
}

#[test]
fn a_setting_of_the_file_applies_unless_a_flag_or_a_variable_sets_it() {
    let file =
        file("listen: [127.0.0.1:1, 'unix:/s']\nthreads: 3\nmax-queued: 9\nglobal-shadow: true\nlog: warn\n");
    let path = file.path().to_str().expect("UTF-8");
    let args = ["tidegate", "serve", "--config", path, "--max-queued=7"];
    let shown = effective_json(&args, &[("TIDEGATE_LOG", "debug"), ("TIDEGATE_THREADS", "")]).unwrap();
    let of = |name: &str| (shown["settings"][name]["value"].clone(), shown["settings"][name]["from"].clone());
    let expected = |value: serde_json::Value, from: &str| (value, serde_json::json!(from));
    assert_eq!(of("listen"), expected(serde_json::json!(["127.0.0.1:1", "unix:/s"]), "file"));
    assert_eq!(of("threads"), expected(serde_json::json!("3"), "file"), "an empty variable is unset");
    assert_eq!(of("max-queued"), expected(serde_json::json!("7"), "flag"));
    assert_eq!(of("global-shadow"), expected(serde_json::json!("true"), "file"));
    assert_ne!(of("log").1, serde_json::json!("file"), "the variable sets it");
    assert_eq!(of("drain-timeout").1, serde_json::json!("default"));
    assert_eq!(shown["file"], path);
}

#[test]
fn the_file_takes_precedence_over_variables_of_the_reference_server() {
    let file = file("http-listen: 127.0.0.1:9\n");
    let path = file.path().to_str().expect("UTF-8");
    let shown = effective_json(&["ratelimit", "--config", path], &[("PORT", "1")]).unwrap();
    assert_eq!(shown["settings"]["http-listen"]["value"], serde_json::json!(["127.0.0.1:9"]));
    assert_eq!(shown["settings"]["listen"]["from"], "reference");
}

#[test]
fn arguments_that_are_not_utf_8_stay_as_they_are_behind_inserted_ones() {
    use std::os::unix::ffi::OsStringExt as _;
    let path = OsString::from_vec(b"/d\xff".to_vec());
    let given = vec!["tidegate".into(), "serve".into(), "--data".into(), path.clone()];
    let expanded = ["tidegate", "serve", "--threads=3", "--data", "/d\u{fffd}"].map(str::to_owned);
    let args = with_originals(expanded.into(), given);
    assert_eq!(args, ["tidegate".into(), "serve".into(), "--threads=3".into(), "--data".into(), path]);
}

#[test]
fn every_error_of_the_file_names_its_place_and_the_remedy() {
    let text = "thread: 2\nthreads: many\nmax_queued: 1\nglobal-shadow: 1\nenv: reference\nlog: [a, b]\ncontrol: everywhere\n";
    let error = file::settings(&Cli::command(), &Source::file("t.yaml", text)).unwrap_err().to_string();
    for expected in [
        "t.yaml:1:1: thread: the setting is not known; did you mean `threads`?",
        "t.yaml:2:10: threads: invalid value 'many' for '--threads <N>': write a whole number",
        "t.yaml:3:1: max_queued: the setting is not known; did you mean `max-queued`?",
        "t.yaml:4:16: global-shadow: write true or false",
        "t.yaml:5:1: env: the setting is not known; ",
        "t.yaml:6:6: log: a list; write one value",
        "t.yaml:7:10: control: invalid value 'everywhere' for '--control",
    ] {
        assert!(error.contains(expected), "{expected:?} is not in\n{error}");
    }
    assert_eq!(error.lines().count(), 7, "{error}");
}

/// `--counters-timeout` requires `--counters`, which a flag may name.
#[test]
fn settings_that_need_others_are_checked_with_all_of_them() {
    let text = "counters-timeout: 20ms\ntls-cert: /c\n";
    assert!(file::settings(&Cli::command(), &Source::file("t.yaml", text)).is_ok());
}

#[test]
fn passwords_and_headers_are_not_shown() {
    for (args, expected) in [
        (["--counters=redis://user:word@store:1/2", "--threads=1"], "store:1"),
        (["--counters=unix:/s?pass=word", "--threads=1"], "/s"),
        (["--counters=redis+sentinel://:word@a:1,b:2/main", "--threads=1"], "main of a:1 b:2"),
        (["--xds-header=authorization=Bearer word", "--threads=1"], "authorization=…"),
        (["--counters=u:word@store:1", "--threads=1"], "…"),
    ] {
        let shown = effective_json(&[&["tidegate", "serve"][..], &args].concat(), &[]).unwrap().to_string();
        assert!(shown.contains(expected) && !shown.contains("word"), "{shown}");
    }
}

#[test]
fn unknown_variables_are_reported_and_those_of_kubernetes_are_not() {
    let variables = map(&[
        ("TIDEGATE_THREAD", "2"),
        ("TIDEGATE_FROBNICATE", "1"),
        ("TIDEGATE_LISTEN", "127.0.0.1:1"),
        ("TIDEGATE_ADDR", "127.0.0.1:1"),
        ("TIDEGATE_SERVICE_HOST", "10.0.0.1"),
        ("TIDEGATE_SERVICE_PORT_GRPC", "8081"),
        ("TIDEGATE_PORT", "tcp://10.0.0.1:8081"),
        ("TIDEGATE_PORT_8081_TCP_ADDR", "10.0.0.1"),
        ("TIDEGATE_HEADLESS_SERVICE_HOST", "10.0.0.1"),
    ]);
    let warnings = variables::warnings(&Cli::command(), &variables);
    let [unknown, near] = &warnings[..] else { panic!("{warnings:?}") };
    assert!(unknown.contains("TIDEGATE_FROBNICATE has no effect: remove it"), "{unknown}");
    assert!(near.ends_with("did you mean TIDEGATE_THREADS?"), "{near}");
}
