//! `serve --demo`: one command, a link that opens the console, traffic in it.

use crate::support::{eventually, http1};
use http::Request;
use serde_json::Value;
use std::{
    fs,
    io::{BufRead as _, BufReader},
    net::{Ipv4Addr, TcpListener},
    process::{Command, Stdio},
};

/// A port that was free a moment ago.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port").port()
}

/// The keys with most admitted hits, as the control API returns them.
async fn top_keys(port: u16, token: &str) -> Result<usize, String> {
    let request = Request::post("/control/v1/TopKeys")
        .header("authorization", format!("Bearer {token}"))
        .header("content-type", "application/json");
    let request = request.body(r#"{"outcome":"ADMITTED"}"#).expect("a request");
    let response =
        http1::send(Ipv4Addr::LOCALHOST, port, request).await.map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(response.body()).into_owned();
    let body: Value = serde_json::from_str(&text).map_err(|_| text.clone())?;
    body["keys"].as_array().map(Vec::len).ok_or(text)
}

#[tokio::test]
async fn the_printed_link_opens_the_console_and_shows_traffic() {
    let (grpc, http) = (free_port(), free_port());
    let mut server = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    server.args(["serve", "--demo", "--demo-traffic", "--listen", &format!("127.0.0.1:{grpc}")]);
    server.args(["--http-listen", &format!("127.0.0.1:{http}")]).stdout(Stdio::piped()).stderr(Stdio::null());
    let folder = tempfile::tempdir().expect("a folder");
    server.env("TMPDIR", folder.path());
    let mut server = server.spawn().expect("the server starts");
    let mut link = String::new();
    BufReader::new(server.stdout.take().expect("piped")).read_line(&mut link).expect("a line");
    let start = format!("Console: http://127.0.0.1:{http}/console#token=");
    let token = link.trim().strip_prefix(&start).expect("the link").to_owned();
    // The link used to be printed 0.2 s before the server listened.
    let opened = http1::fetch(Ipv4Addr::LOCALHOST, http, Request::get("/console")).await.expect("it listens");
    assert_eq!(opened.status(), 200);

    eventually("keys of the traffic", async || match top_keys(http, &token).await {
        Ok(keys) if keys >= 2 => Ok(()),
        found => Err(found),
    })
    .await;
    assert!(top_keys(http, "tidegate_other").await.is_err(), "another token opens nothing");
    let from_index = Request::get("/").header("accept", "text/html,*/*");
    let response = http1::fetch(Ipv4Addr::LOCALHOST, http, from_index).await.expect("a response");
    assert_eq!(
        (response.status().as_u16(), &response.headers()["location"]),
        (307, &"console".parse().unwrap())
    );

    let files = || fs::read_dir(folder.path()).expect("a folder").flatten().map(|entry| entry.file_name());
    let of_run = format!("tidegate-demo-{}", server.id());
    assert!(files().all(|name| name != *of_run), "a name that a killed server may have left");
    assert_eq!(files().filter(|name| name.as_encoded_bytes().starts_with(b"tidegate-demo-")).count(), 1);
    let pid = rustix::process::Pid::from_child(&server);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
    assert!(server.wait().expect("it ends").success());
    assert_eq!(files().count(), 0, "the token file is removed at the end");
}
