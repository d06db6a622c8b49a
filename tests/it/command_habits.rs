//! What people expect of commands: output as it arrives, exit codes that scripts can read, and errors that name the source of a value.

use crate::{
    control::Controlled,
    support::{Server, eventually, rules_file},
    tls::Pki,
};
use std::{
    io::{BufRead as _, BufReader},
    net::TcpListener,
    process::{Child, Command, Output, Stdio},
};

fn tidegate(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(args).env_remove("TIDEGATE_ADDR");
    command
}

fn run(args: &[&str]) -> Output {
    tidegate(args).output().expect("the binary runs")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const SLOW: &str = "domain: slow
descriptors:
  - key: user
    rate_limit: {unit: second, requests_per_unit: 1, algorithm: leaky_bucket, burst: 1, max_wait: 1h, max_queue: 10}
";

#[test]
fn call_prints_each_response_as_it_arrives_and_sums_up_at_ctrl_c() {
    let rules = rules_file(SLOW);
    let server = Server::with_rules(rules.path(), &[]);
    let mut call = tidegate(&[
        "call",
        "slow",
        "user=a",
        "--repeat",
        "1000",
        "--timeout",
        "1h",
        "--addr",
        server.address(),
    ]);
    let mut call = call.stdout(Stdio::piped()).spawn().expect("the command runs");
    let mut lines =
        BufReader::new(call.stdout.take().expect("piped")).lines().map(|line| line.expect("text"));
    // The header, and the first response; the second response comes a second later.
    assert!(lines.next().expect("a line").starts_with("call"));
    assert!(lines.next().expect("a line").starts_with("1 "));
    let pid = rustix::process::Pid::from_child(&call);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    let last = lines.last().expect("a line");
    assert!(last.starts_with("interrupted after ") && last.ends_with(" OK, 0 OVER_LIMIT"), "{last}");
    assert!(call.wait().expect("it ends").success());
}

#[test]
fn a_denied_call_exits_with_three_where_that_is_asked_for() {
    let server = Server::start(&[]);
    let call = |args: &[&str]| {
        run(&[&["call", "demo", "api_key=a", "--addr", server.address()], args].concat()).status.code()
    };
    assert_eq!(call(&["--repeat", "5", "--exit-code"]), Some(0));
    assert_eq!(call(&["--exit-code"]), Some(3));
    assert_eq!(call(&[]), Some(0));
}

#[test]
fn an_error_of_a_variable_names_the_variable() {
    let serve = |variable: &str, value: &str| {
        let done = tidegate(&["serve"]).env(variable, value).output().expect("the binary runs");
        assert_eq!(done.status.code(), Some(2), "{done:?}");
        stderr(&done)
    };
    let error = serve("TIDEGATE_LISTEN", "abc");
    assert!(error.contains("the variable TIDEGATE_LISTEN: `abc` is not an address"), "{error}");
    assert_eq!(error.matches("abc").count(), 1, "the value stands there once: {error}");
    let error = serve("TIDEGATE_MAX_COUNTERS", "many");
    assert!(error.contains("'many' for the variable TIDEGATE_MAX_COUNTERS"), "{error}");

    let reference =
        tidegate(&["serve", "--env", "reference"]).env("PORT", "abc").output().expect("the binary runs");
    assert!(stderr(&reference).contains("the variable PORT"), "{reference:?}");
    let redis = tidegate(&["serve", "--env", "reference"])
        .env("REDIS_URL", "a:1,b:2")
        .output()
        .expect("the binary runs");
    assert!(stderr(&redis).contains("set REDIS_TYPE"), "{redis:?}");
}

#[test]
fn a_rule_file_without_its_flag_has_the_flag_as_remedy() {
    let error = stderr(&run(&["serve", "rules.yaml"]));
    assert!(error.contains("write --rules rules.yaml"), "{error}");
    let rules = rules_file(SLOW);
    let path = rules.path().to_str().expect("UTF-8");
    let error = stderr(&run(&["serve", "--listen", "127.0.0.1:0", "--data", path]));
    assert!(error.contains("a file has this name"), "{error}");
}

#[test]
fn a_server_that_requires_a_client_certificate_and_a_mute_port_have_their_remedies() {
    let pki = Pki::new();
    let ca = pki.path("ca.crt");
    let server = pki.start(&["--tls-client-ca", ca.to_str().expect("UTF-8")]);
    let error = stderr(&run(&[
        "call",
        "demo",
        "api_key=a",
        "--addr",
        server.address(),
        "--tls-ca",
        ca.to_str().expect("UTF-8"),
    ]));
    assert!(error.contains("the server requires a client certificate: give it with --tls-cert"), "{error}");
    assert!(error.contains("refuses the connection") && !error.contains("HTTP/2"), "{error}");

    // The kernel completes its connections; nothing reads them.
    let mute = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = mute.local_addr().expect("an address").to_string();
    let error = stderr(&run(&["call", "demo", "api_key=a", "--addr", &address, "--timeout", "100ms"]));
    assert!(error.contains("does not answer in time; check that it is the gRPC port"), "{error}");
}

#[tokio::test]
async fn bench_takes_its_address_as_call_does_and_reports_until_its_server_goes() {
    let server = Server::start(&["--http-listen", "127.0.0.1:0"]);
    let mut bench =
        tidegate(&["bench", "--addr", server.address(), "-d", "10m", "--warm-up", "0s", "--rate", "200"]);
    bench.args(["--timeout", "100ms"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let bench = bench.spawn().expect("the command runs");
    eventually("decisions of the bench", async || {
        let decided = server.metric("tidegate_requests_total{code=\"ok\"}").await;
        if decided > 10 { Ok(()) } else { Err(decided) }
    })
    .await;
    drop(server);
    let done = bench.wait_with_output().expect("it ends");
    assert_eq!(done.status.code(), Some(1));
    assert!(!done.stdout.is_empty(), "the report of the time before");
    assert!(
        stderr(&done).contains("the run ended early, and the report covers the time until then"),
        "{}",
        stderr(&done)
    );
}

#[test]
fn watch_repeats_no_command_that_changes_something() {
    let error = stderr(&run(&["ctl", "--watch", "block", "set", "user=a"]));
    assert!(error.contains("--watch repeats commands that only read"), "{error}");
}

const SHOP: &str =
    "domain: shop\ndescriptors: [{ key: user, rate_limit: { unit: day, requests_per_unit: 3 } }]\n";

/// A `ctl` command whose output is piped.
fn started(shop: &Controlled, args: &[&str]) -> Child {
    let mut command =
        tidegate(&[&["ctl", "--addr", shop.server.address(), "--token", &shop.operate], args].concat());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command runs")
}

/// They went on behind `| head`.
#[tokio::test]
async fn commands_that_show_a_server_until_interrupted_end_when_their_pipe_is_closed() {
    let shop = Controlled::start(SHOP, &[]);
    let mut client = shop.server.client().await;
    for args in [&["status", "--watch=10ms"][..], &["status", "--json", "--watch=10ms"], &["tail"]] {
        let mut command = started(&shop, args);
        drop(command.stdout.take());
        let ended = eventually("the end of the command", async || {
            client.hit("shop", &[("user", "ada")]).await.expect("a decision");
            command.try_wait().expect("its status").ok_or(args)
        });
        assert!(ended.await.success(), "{args:?}");
    }
}

/// `tail` ended with success and without a word, and `--watch` with advice about TLS.
#[tokio::test]
async fn commands_that_show_a_server_until_interrupted_report_that_it_is_gone() {
    let shop = Controlled::start(SHOP, &[]);
    let address = shop.server.address().to_owned();
    let (mut watch, mut tail) =
        (started(&shop, &["status", "--json", "--watch=10ms"]), started(&shop, &["tail"]));
    let mut statuses = BufReader::new(watch.stdout.take().expect("piped"));
    statuses.read_line(&mut String::new()).expect("a status");
    let (shown, is_shown) = std::sync::mpsc::channel();
    let lines = BufReader::new(tail.stdout.take().expect("piped")).lines();
    std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| _ = shown.send(line)));
    let mut client = shop.server.client().await;
    eventually("a decision in the stream", async || {
        client.hit("shop", &[("user", "ada")]).await.expect("a decision");
        is_shown.try_recv()
    })
    .await;
    assert!(shop.server.terminate().success());

    let tail = tail.wait_with_output().expect("it ends");
    assert_eq!(
        (tail.status.code(), stderr(&tail)),
        (Some(1), format!("error: {address}: the server ended the stream\n"))
    );
    let errors = BufReader::new(watch.stderr.take().expect("piped")).lines().map(|line| line.expect("text"));
    let errors: Vec<String> = errors.take(2).collect();
    assert_eq!(errors.len(), 2, "it goes on: {errors:?}");
    assert!(
        errors.iter().all(|error| error.starts_with(&format!("error: no connection to {address}: "))),
        "{errors:?}"
    );
    watch.kill().and_then(|()| watch.wait()).expect("it is killed");

    let refused = run(&["ctl", "tail", "--sample", "0"]);
    assert!(stderr(&refused).contains("write a number from above 0 to 1"), "{refused:?}");
}
