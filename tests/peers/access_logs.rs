//! Access logs as Envoy, nginx and Apache write them in their default formats: replay reads every line, and what a client sends in a
//! header changes no other field.

use crate::{
    envoy_config,
    envoy_process::Envoy,
    support::{eventually, http1, rules_file},
};
use serde_json::Value;
use std::{
    fs,
    net::Ipv4Addr,
    path::Path,
    process::{Child, Command, Stdio},
};
use tempfile::TempDir;

pub mod envoy {
    use super::the_default_logs_of_envoy_and_istio_are_replayed;
    crate::tests_with! { ENVOY: the_default_logs_of_envoy_and_istio_are_replayed }
}

pub mod nginx {
    use super::the_log_of_nginx_is_replayed;
    crate::tests_with! { NGINX: the_log_of_nginx_is_replayed }
}

pub mod apache {
    use super::the_log_of_apache_is_replayed;
    crate::tests_with! { APACHE: the_log_of_apache_is_replayed }
}

/// Modules of Debian's Apache.
const APACHE_MODULES: &str = "/usr/lib/apache2/modules";

/// Headers that look like the end of their field in some format, or are escaped in it.
const AGENTS: [&str; 6] = ["curl/8.7.1", "a \"b\" c", "\\x22", "a\\\"", "- [x] %h", "a\"b"];

/// Requests of the first and of the second client. Two a day of each are admitted.
const OF_CLIENTS: [(Ipv4Addr, usize); 2] =
    [(Ipv4Addr::new(127, 0, 0, 2), 6), (Ipv4Addr::new(127, 0, 0, 3), 2)];

/// Whether Apache's program and its modules are installed.
pub fn has_apache() -> bool {
    let is_program = crate::peer::runs(Command::new("apache2").arg("-v"));
    is_program && Path::new(APACHE_MODULES).join("mod_mpm_event.so").exists()
}

/// Sends the requests of all clients.
async fn send_requests(port: u16) {
    for (client, requests) in OF_CLIENTS {
        for agent in AGENTS.iter().cycle().take(requests) {
            let request = http::Request::get("/a?b=c").header("user-agent", *agent);
            let response = http1::fetch(client, port, request).await;
            assert!(response.is_ok(), "{agent:?}: {response:?}");
        }
    }
}

fn lines(log: &Path) -> usize {
    fs::read_to_string(log).unwrap_or_default().lines().count()
}

/// The report of a replay of the log under a limit of two requests a day for each client.
fn replayed(log: &Path, format: &[&str], address: &str) -> Value {
    let limit = "rate_limit: { unit: day, requests_per_unit: 2 }";
    let rules = rules_file(&format!(
        "{{ domain: edge, descriptors: [{{ key: remote_address, {limit} }}, {{ key: path, {limit} }}] }}"
    ));
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["replay", "--json", "--rules"]).arg(rules.path()).args(format);
    let descriptor = format!("remote_address={address}");
    command.args(["--domain", "edge", "--descriptor", &descriptor]).arg(log);
    let output = command.stdin(Stdio::null()).output().expect("the program runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn check(log: &Path, format: &[&str], address: &str) {
    let replayed = replayed(log, format, address);
    let text = fs::read_to_string(log).unwrap_or_default();
    assert_eq!(replayed["lines"]["bad"], 0, "{replayed}\n{text}");
    assert_eq!(replayed["report"]["requests"], 8, "{text}");
    assert_eq!(replayed["report"]["proposed"]["denied"], 4, "{replayed}\n{text}");
    let denied = &replayed["report"]["keys_newly_denied"]["top"];
    assert_eq!(
        (denied[0]["entries"][0][1].as_str(), denied.as_array().map(Vec::len)),
        (Some("127.0.0.2"), Some(1))
    );
}

async fn the_default_logs_of_envoy_and_istio_are_replayed() {
    let folder = tempfile::tempdir().expect("a folder");
    let [by_default, istio] = ["default", "istio"].map(|name| folder.path().join(name));
    let format = serde_json::to_string(&format!("{}\n", tidegate_replay::ISTIO_DEFAULT)).expect("a text");
    let logger = "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog";
    let settings = format!(
        r#"use_remote_address: true
access_log:
  - name: default
    typed_config: {{ "@type": {logger}, path: {by_default:?} }}
  - name: istio
    typed_config: {{ "@type": {logger}, path: {istio:?}, log_format: {{ text_format_source: {{ inline_string: {format} }} }} }}
"#
    );
    let config = envoy_config::bootstrap(&settings, "", envoy_config::SERVED);
    let envoy = Envoy::start_with(&config, "unix:none", &[]).await;
    send_requests(envoy.port(envoy_config::LISTENER)).await;
    // A header that ends its field and states other fields. Envoy writes it unescaped, and the line is not read.
    let forged = r#"a" "r" "a.test" "10.0.0.1:80""#;
    let request = http::Request::get("/").header("user-agent", forged);
    http1::fetch(OF_CLIENTS[1].0, envoy.port(envoy_config::LISTENER), request).await.expect("a response");
    // Envoy writes its logs when it ends.
    let quit =
        http1::fetch(Ipv4Addr::LOCALHOST, envoy.port(9901), http::Request::post("/quitquitquit")).await;
    assert!(quit.is_ok(), "{quit:?}");
    for (log, format, address) in
        [(&by_default, "envoy", "x-forwarded-for"), (&istio, "istio", "downstream_remote_address")]
    {
        eventually("the log is written", async || (lines(log) == 9).then_some(())).await;
        let args = ["--format", format];
        let with_forged = replayed(log, &args, address);
        let first_bad = with_forged["lines"]["first_bad"][0].as_str().unwrap_or_default().to_owned();
        assert!(first_bad.contains(":9: the line fits the format in several ways"), "{with_forged}");
        let text = fs::read_to_string(log).expect("a log");
        let honest: String = text.split_inclusive('\n').take(8).collect();
        fs::write(log, honest).expect("written");
        check(log, &args, address);
    }
}

/// A server that is killed when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a server that writes `access.log` in the folder, sends it the requests, and replays the log.
async fn check_server(folder: &TempDir, mut command: Command, port: u16, format: &[&str], address: &str) {
    let mut server = Running(command.stdin(Stdio::null()).spawn().expect("the program runs"));
    eventually("the server listens", async || {
        assert_eq!(server.0.try_wait().expect("a child"), None, "it ended");
        let socket = tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await;
        socket.is_ok().then_some(())
    })
    .await;
    send_requests(port).await;
    let log = folder.path().join("access.log");
    eventually("the log is written", async || (lines(&log) >= 8).then_some(())).await;
    check(&log, format, address);
}

async fn the_log_of_nginx_is_replayed() {
    let (folder, port) = (tempfile::tempdir().expect("a folder"), crate::shared_store::free_port());
    let path = folder.path().display();
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|of| format!("{of}_temp_path {path}/{of}; "));
    let config = format!(
        "daemon off; master_process off; pid {path}/pid; events {{ }}\n\
         http {{ {} access_log {path}/access.log; server {{ listen 127.0.0.1:{port}; location / {{ return 204; }} }} }}\n",
        temporary.concat()
    );
    let config_path = folder.path().join("nginx.conf");
    fs::write(&config_path, config).expect("written");
    let mut command = Command::new("nginx");
    command
        .arg("-p")
        .arg(folder.path())
        .arg("-e")
        .arg(folder.path().join("errors"))
        .arg("-c")
        .arg(config_path);
    check_server(&folder, command, port, &["--format", "nginx"], "remote_addr").await;
}

async fn the_log_of_apache_is_replayed() {
    let (folder, port) = (tempfile::tempdir().expect("a folder"), crate::shared_store::free_port());
    let path = folder.path().display();
    let config = format!(
        "ServerRoot {path}\nServerName test\nListen 127.0.0.1:{port}\nPidFile {path}/pid\nErrorLog {path}/errors\nDocumentRoot {path}\n\
         User nobody\nGroup nogroup\nDefaultRuntimeDir {path}\n\
         LoadModule mpm_event_module {APACHE_MODULES}/mod_mpm_event.so\nLoadModule authz_core_module {APACHE_MODULES}/mod_authz_core.so\n\
         LogFormat \"%h %l %u %t \\\"%r\\\" %>s %b \\\"%{{Referer}}i\\\" \\\"%{{User-Agent}}i\\\"\" combined\nCustomLog {path}/access.log combined\n"
    );
    let config_path = folder.path().join("apache.conf");
    fs::write(&config_path, config).expect("written");
    let mut command = Command::new("apache2");
    command.arg("-X").arg("-f").arg(config_path);
    check_server(&folder, command, port, &["--format", "apache"], "%h").await;
}
