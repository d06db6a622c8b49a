//! `tidegate replay` of access logs: the same requests have the same report in each format and in each order, and the report first names
//! what it does not decide.

use crate::{
    replay::{replay, report, text},
    support::rules_file,
};
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};
use tempfile::{NamedTempFile, TempDir};

/// 2026-03-01T12:00:00Z.
const START: i64 = 1_772_366_400;

/// A request of an access log. Times are whole seconds, like the times of nginx and Apache.
struct Sent {
    second: i64,
    address: String,
    path: String,
    agent: &'static str,
    code: u16,
}

/// Requests of forty clients, some of which exceed their limits.
fn sent() -> Vec<Sent> {
    let agents = ["curl/8.7.1", "Mozilla/5.0 (X11; \"odd\") \u{e9}", "-"];
    let request = |number: i64| {
        let client = number * number % 40;
        Sent {
            second: START + number / 4,
            address: if client % 5 == 0 {
                format!("2001:db8::{client:x}")
            } else {
                format!("192.0.2.{client}")
            },
            path: format!("/items/{}?a=b", number % 7),
            agent: agents[usize::try_from(number % 3).expect("an index")],
            code: if number % 11 == 0 { 429 } else { 200 },
        }
    };
    (0..1_200).map(request).collect()
}

fn rules() -> NamedTempFile {
    let limit = "unit: minute, algorithm: fixed_window, requests_per_unit: 5";
    rules_file(&format!(
        "domain: edge\ndescriptors:\n  - {{ key: remote_address, rate_limit: {{ {limit} }} }}\n  \
         - {{ key: remote_address, value_network: 192.0.2.0/28, rate_limit: {{ {limit}0 }} }}\n  \
         - {{ key: path, rate_limit: {{ {limit}0 }} }}\n  - {{ key: agent, rate_limit: {{ {limit}00 }} }}\n"
    ))
}

/// A log with a line for each request.
fn log(folder: &Path, name: &str, line: impl Fn(&Sent) -> String) -> PathBuf {
    let path = folder.join(name);
    let lines: Vec<String> = sent().iter().map(line).collect();
    fs::write(&path, lines.join("\n") + "\n").expect("written");
    path
}

fn rfc3339(second: i64) -> String {
    jiff::Timestamp::from_second(second).expect("a time").to_string()
}

fn common_log(second: i64) -> String {
    jiff::Timestamp::from_second(second).expect("a time").strftime("%d/%b/%Y:%H:%M:%S +0000").to_string()
}

fn json_line(sent: &Sent) -> String {
    let Sent { second, address, path, agent, code } = sent;
    let address = if address.contains(':') { format!("[{address}]") } else { address.clone() };
    json!({"start_time": rfc3339(*second), "client": format!("{address}:41{second}"), "path": path, "agent": agent, "response_code": code})
        .to_string()
}

const JSON: [&str; 10] = [
    "--format",
    "json",
    "--domain",
    "edge",
    "--descriptor",
    "remote_address=client",
    "--descriptor",
    "path=path",
    "--descriptor",
    "agent=agent",
];

/// Escapes quotes and characters outside ASCII as servers do.
fn escaped(text: &str, quote: &str) -> String {
    let escape = |byte: u8| match byte {
        b'"' => quote.to_owned(),
        b' '..=b'~' => char::from(byte).to_string(),
        _ => format!("\\x{byte:02X}"),
    };
    text.bytes().map(escape).collect()
}

#[test]
fn each_format_has_the_report_that_json_has() {
    let (folder, rules) = (tempfile::tempdir().expect("a folder"), rules());
    let with_rules = ["--rules", text(rules.path())];
    let of_json = report(&[&with_rules, &JSON[..], &[text(&log(folder.path(), "json", json_line))]].concat());
    let expected = &of_json["report"];
    assert_eq!(expected["requests"], 1_200);
    assert!(
        expected["newly_denied"].as_u64() > Some(100) && expected["newly_admitted"].as_u64() > Some(20),
        "{expected}"
    );
    assert_eq!(of_json["warnings"], json!([]));

    let port =
        |address: &str| if address.contains(':') { format!("[{address}]:1") } else { format!("{address}:1") };
    let envoy = |sent: &Sent| {
        let Sent { second, address, path, agent, code } = sent;
        format!(
            "[{}] \"GET {path} HTTP/2\" {code} - 0 9 1 0 \"198.51.100.9, {address}\" \"{agent}\" \"r\" \"a.test\" \"10.0.0.1:80\"",
            rfc3339(*second).replace('Z', ".000Z")
        )
    };
    let istio = |sent: &Sent| {
        let Sent { second, address, path, agent, code } = sent;
        format!(
            "[{}] \"GET {path} HTTP/1.1\" {code} - via_upstream - \"-\" 0 9 1 0 \"-\" \"{agent}\" \"r\" \"a.test\" \"10.0.0.1:80\" \
             outbound|80||a 10.0.0.2:1 10.0.0.3:80 {} - default",
            rfc3339(*second).replace('Z', ".000Z"),
            port(address)
        )
    };
    let combined = |sent: &Sent, quote: &str| {
        let Sent { second, address, path, agent, code } = sent;
        let (time, agent) = (common_log(*second), escaped(agent, quote));
        format!("{address} - - [{time}] \"GET {path} HTTP/1.1\" {code} 9 \"-\" \"{agent}\"")
    };
    let own = |sent: &Sent| {
        let Sent { second, address, path, agent, code } = sent;
        format!("{second}000 {code} {path} ua=\"{}\" {address}, 10.0.0.9", escaped(agent, "\\x22"))
    };
    let cri = |sent: &Sent| format!("{}.5Z stdout F {}", &rfc3339(START)[..19], istio(sent));
    let docker = |sent: &Sent| {
        json!({"log": json_line(sent) + "\n", "stream": "stdout", "time": "2026-03-01T12:00:00Z"}).to_string()
    };
    let with_mark = |sent: &Sent| {
        if sent.second == START && sent.address == "2001:db8::0" {
            format!("\u{feff}{}", json_line(sent))
        } else {
            json_line(sent)
        }
    };
    let csv = log(folder.path(), "csv", |sent| {
        let Sent { second, address, path, agent, code } = sent;
        format!("{second}000000,{},{path},\"{}\",{code}", port(address), agent.replace('"', "\"\""))
    });
    let records = fs::read_to_string(&csv).expect("written");
    fs::write(&csv, format!("\u{feff}start_time,client,path,agent,response_code\r\n{records}"))
        .expect("written");

    let descriptors = |address: &'static str, path: &'static str, agent: &'static str| {
        ["--descriptor", address, "--descriptor", path, "--descriptor", agent]
    };
    let of_envoy = descriptors("remote_address=x-forwarded-for", "path=:path", "agent=user-agent");
    let of_istio =
        descriptors("remote_address=%DOWNSTREAM_REMOTE_ADDRESS%", "path=REQ(:PATH)", "agent=user-agent");
    let of_nginx = descriptors("remote_address=$remote_addr", "path=$request_uri", "agent=$http_user_agent");
    let of_apache = descriptors("remote_address=%h", "path=path", "agent=%{User-Agent}i");
    let of_own =
        descriptors("remote_address=http_x_forwarded_for[0]", "path=request_uri", "agent=http_user_agent");
    let of_json = descriptors("remote_address=client", "path=path", "agent=agent");
    let format = "$msec $status $request_uri ua=\"$http_user_agent\" $http_x_forwarded_for";
    let file = |name: &str, line: &dyn Fn(&Sent) -> String| log(folder.path(), name, line);
    for (format, path, descriptors) in [
        (&["--format", "envoy"][..], file("envoy", &envoy), of_envoy),
        (&["--format", "istio"], file("istio", &istio), of_istio),
        (&["--format", "nginx"], file("nginx", &|sent| combined(sent, "\\x22")), of_nginx),
        (&["--format", "apache"], file("apache", &|sent| combined(sent, "\\\"")), of_apache),
        (&["--format", "text", "--log-format", format], file("own", &own), of_own),
        (&["--format", "istio"], file("cri", &cri), of_istio),
        (&["--format", "json"], file("docker", &docker), of_json),
        (&["--format", "json"], file("mark", &with_mark), of_json),
        (&["--format", "csv"], csv, of_json),
    ] {
        let args = [format, &["--domain", "edge"], &descriptors, &with_rules, &[text(&path)]].concat();
        let replayed = report(&args);
        assert_eq!(replayed["lines"]["bad"], 0, "{replayed}");
        assert_eq!(replayed["report"], *expected, "{path:?}");
    }
}

/// Replays a log of JSON lines in this order.
fn in_order(folder: &TempDir, rules: &NamedTempFile, lines: &[String]) -> Value {
    let path = folder.path().join("ordered");
    fs::write(&path, lines.join("\n") + "\n").expect("written");
    report(&[&["--rules", text(rules.path())], &JSON[..], &[text(&path)]].concat())
}

#[test]
fn a_log_in_another_order_is_sorted_and_has_the_same_report() {
    let (folder, rules) = (tempfile::tempdir().expect("a folder"), rules());
    // Far more lines than are kept in memory to be sorted.
    let line = |number: i64| {
        let time = format!("{}.{:06}", START + number / 100, number % 100);
        format!(
            "{{\"start_time\":{time},\"client\":\"192.0.2.{}\",\"path\":\"/\",\"agent\":\"a\"}}",
            number * number % 250
        )
    };
    let oldest_first: Vec<String> = (0..18_000).map(line).collect();
    let expected = in_order(&folder, &rules, &oldest_first);
    assert_eq!(
        (&expected["lines"]["sorted"], &expected["report"]["requests"]),
        (&json!(false), &json!(18_000))
    );
    assert!(expected["report"]["proposed"]["denied"].as_u64() > Some(0));
    let (first, second) = oldest_first.split_at(9_000);
    let newest_first: Vec<String> = oldest_first.iter().rev().cloned().collect();
    let halves_exchanged = [second, first].concat();
    // A request that lasted for minutes is logged when it ends, with the time of its start.
    let late = [&oldest_first[1..], &oldest_first[..1]].concat();
    for lines in [&newest_first, &halves_exchanged, &late] {
        let replayed = in_order(&folder, &rules, lines);
        assert_eq!(replayed["lines"]["sorted"], true);
        assert_eq!(replayed["report"], expected["report"]);
    }

    // Standard input is read once: it cannot be sorted in a second reading.
    fs::write(folder.path().join("late"), late.join("\n")).expect("written");
    let input = fs::File::open(folder.path().join("late")).expect("a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.arg("replay").args(["--rules", text(rules.path())]).args(JSON).arg("-").stdin(Stdio::from(input));
    let output = command.output().expect("the program runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
    assert!(error.contains("-: the requests are not in the order of time; write them to a file"), "{error}");
}

/// A decision log of version 2 has numbers, which are also out of order if its files were joined in the wrong order.
#[test]
fn a_decision_log_in_another_order_is_sorted() {
    let (folder, rules) = (tempfile::tempdir().expect("a folder"), rules());
    let line = |number: i64| {
        let descriptor = json!({"entries": [{"key": "remote_address", "value": "192.0.2.200"}], "hits": 1, "code": "OK", "limit": null,
            "remaining": 0, "reset_ns": null});
        json!({"v": 2, "time": rfc3339(START + number / 100), "run": "00000000000000aa", "seq": number + 1, "generation": 1, "domain": "edge",
            "code": "OK", "sample": 1.0, "latency_ns": 1, "descriptors": [descriptor]}).to_string()
    };
    let lines: Vec<String> = (0..20_000).map(line).collect();
    let path = folder.path().join("decisions");
    let replayed = |lines: &[String]| {
        fs::write(&path, lines.join("\n") + "\n").expect("written");
        report(&["--rules", text(rules.path()), text(&path)])
    };
    let expected = replayed(&lines);
    let exchanged = replayed(&[&lines[10_000..], &lines[..10_000]].concat());
    assert_eq!((&expected["lines"]["sorted"], &exchanged["lines"]["sorted"]), (&json!(false), &json!(true)));
    assert_eq!(exchanged["report"], expected["report"]);
    assert_eq!(expected["report"]["proposed"]["admitted"], 5 * 4, "of 200 s, in four minutes of the clock");
}

#[test]
fn what_is_not_limited_is_named_first_and_nothing_limited_is_a_failure() {
    let (folder, rules) = (tempfile::tempdir().expect("a folder"), rules());
    let path = log(folder.path(), "json", json_line);
    let run = |domain: &str, descriptors: &[&str], format: &[&str]| {
        let args = [&["--rules", text(rules.path()), "--domain", domain], format, &[text(&path)]].concat();
        let descriptors = descriptors.iter().flat_map(|descriptor| ["--descriptor", descriptor]);
        let output = replay(&args.into_iter().chain(descriptors).collect::<Vec<_>>());
        let [shown, error] =
            [output.stdout, output.stderr].map(|text| String::from_utf8(text).expect("UTF-8"));
        (output.status.code(), shown, error)
    };
    let json = ["--format", "json"];

    let (code, shown, error) = run("egde", &["path=path"], &json);
    assert_eq!((code, &*shown), (Some(1), ""));
    assert!(
        error.contains("--domain \"egde\": the proposed rules have no such domain; the nearest is \"edge\""),
        "{error}"
    );

    let (code, shown, _) = run("edge", &["path=path", "agent=agnet"], &json);
    assert_eq!(code, Some(0));
    let warning = "warning: no line has a value for the field `agnet`, for the entry `agent` of a descriptor; the nearest is `agent`\n";
    assert!(shown.starts_with(warning), "{shown}");
    assert!(
        shown.contains("warning: the rule `agent` of \"edge\" limits no request of the log\n"),
        "{shown}"
    );

    let (code, shown, error) = run("edge", &["pth=path"], &json);
    assert_eq!(code, Some(1));
    assert!(error.contains("no rule of --rules limits a request of the logs"), "{error}");
    assert!(shown.contains("the rule `path` of \"edge\" limits no request of the log; the nearest descriptor without a limit is `pth`"), "{shown}");

    let (code, shown, error) = run("edge", &["path=pth"], &json);
    assert_eq!((code, &*shown), (Some(1), ""));
    assert!(error.contains("warning: no line has a value for the field `pth`"), "{error}");
    assert!(error.contains("the logs have no decision that can be replayed"), "{error}");

    for (format, expected) in [
        (
            &["--format", "envoy"][..],
            "there is no field `path`, for the entry `path` of a descriptor; the nearest is",
        ),
        (&["--format", "text", "--log-format", "path"], "--log-format: the format has no field"),
        (
            &["--format", "text", "--log-format", "$path $status"],
            "the format has no field with the time; name one with --time-field",
        ),
        (
            &["--format", "text", "--log-format", "$path $msec"],
            "the format has no field with the status; name the denied requests",
        ),
        (&["--format", "json", "--log-format", "%h"], "--log-format is for lines of text"),
    ] {
        let (code, _, error) = run("edge", &["path=path"], format);
        assert_eq!(code, Some(1));
        assert!(error.contains(expected), "{error}");
    }
    assert_eq!(run("edge", &["path=path"], &["--format", "text"]).0, Some(2));
}

#[test]
fn binary_lines_and_lines_of_another_format_are_counted_and_skipped() {
    let (folder, rules) = (tempfile::tempdir().expect("a folder"), rules());
    let path = log(folder.path(), "nginx", |sent| {
        format!("192.0.2.1 - - [{}] \"GET / HTTP/1.1\" 200 9 \"-\" \"-\"", common_log(sent.second))
    });
    let mut bytes = fs::read(&path).expect("written");
    bytes.extend_from_slice(b"\x7fELF\0\xff\xfe\x1b[2J\n\n192.0.2.1 - - [noon] \"GET / HTTP/1.1\" 200 9 \"-\" \"-\"\n192.0.2.1 - \n");
    fs::write(&path, bytes).expect("written");
    let args = [
        "--format",
        "nginx",
        "--domain",
        "edge",
        "--descriptor",
        "remote_address=remote_addr",
        "--rules",
        text(rules.path()),
    ];
    let replayed = report(&[&args[..], &[text(&path)]].concat());
    assert_eq!(
        (&replayed["report"]["requests"], &replayed["lines"]["bad"]),
        (&json!(1_200), &json!(3)),
        "{replayed}"
    );
    let reasons = replayed["lines"]["first_bad"].to_string();
    assert!(
        reasons
            .contains(":1201: the line does not fit the format: the field `remote_addr` at column 1 has no"),
        "{reasons}"
    );
    assert!(
        reasons.contains(":1203: the time is \\\"noon\\\"; the forms that are read are RFC 3339"),
        "{reasons}"
    );

    // Most lines are of another format: the report states that first.
    let lines = fs::read_to_string(log(folder.path(), "json", json_line)).expect("written");
    fs::write(
        &path,
        lines + "192.0.2.1 - - [01/Mar/2026:12:00:00 +0000] \"GET / HTTP/1.1\" 200 9 \"-\" \"-\"\n",
    )
    .expect("written");
    let output = replay(&[&args[..], &[text(&path)]].concat());
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.starts_with("warning: most lines could not be read: 1200, and 1 could\n"), "{shown}");
}

/// The example of docs/replay.md.
#[test]
fn the_sample_log_is_replayed_as_the_page_has_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("docs/replay.md")).expect("the page");
    let (_, example) = page.split_once("```console\n$ ").expect("an example");
    let (example, _) = example.split_once("```").expect("its end");
    let (command, expected) = example.split_once("\n\n").expect("a command and its output");
    let command = command.replace("\\\n", " ");
    let args: Vec<&str> = command.split_whitespace().skip(2).collect();
    let mut tidegate = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    let output = tidegate.arg("replay").args(args).current_dir(root).output().expect("the program runs");
    let shown = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(shown.starts_with(expected.trim_end()), "{shown}\nexpected:\n{expected}");
}
