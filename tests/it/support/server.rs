//! A real `tidegate serve` in a process of its own, and a client for it.

use super::{
    http1,
    waiting::{PATIENCE, eventually_blocking},
};
use std::{
    borrow::BorrowMut,
    io::{BufRead, BufReader, Write},
    net::Ipv4Addr,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, mpsc},
    thread,
    time::Duration,
};
use tempfile::NamedTempFile;
use tidegate::api::pb::{
    common::{RateLimitDescriptor, rate_limit_descriptor::Entry},
    service::{RateLimitRequest, RateLimitResponse, rate_limit_service_client::RateLimitServiceClient},
};
use tonic::{
    Status,
    transport::{Channel, Endpoint},
};

/// Longest life of a server. A test that waits for it without a bound then fails.
const LIFETIME: Duration = Duration::from_secs(600);

/// A running server; killed when dropped.
pub struct Server {
    child: Child,
    _lifetime: mpsc::Sender<()>,
    address: String,
    log: Arc<Mutex<Vec<String>>>,
}

/// Rules in a file that lives as long as the value.
pub fn rules_file(yaml: &str) -> NamedTempFile {
    let mut file = tempfile::Builder::new().suffix(".yaml").tempfile().expect("a temporary file");
    file.write_all(yaml.as_bytes()).expect("rules are written");
    file
}

impl Server {
    /// Starts `tidegate serve` on a free port of loopback with further arguments.
    pub fn start(args: &[&str]) -> Self {
        Self::start_on("127.0.0.1:0", args)
    }

    /// Starts a server with the rules of a file.
    pub fn with_rules(rules: &Path, args: &[&str]) -> Self {
        let rules = rules.to_str().expect("temporary paths are UTF-8");
        Self::start(&[&["--rules", rules], args].concat())
    }

    /// Starts a server with the rules of a file and with variables of its environment.
    pub fn with_variables(rules: &Path, args: &[&str], variables: &[(&str, &str)]) -> Self {
        let rules = rules.to_str().expect("temporary paths are UTF-8");
        Self::spawn("127.0.0.1:0", &[&["--rules", rules], args].concat(), variables)
    }

    /// Starts a server on a given address.
    pub fn start_on(listen: &str, args: &[&str]) -> Self {
        Self::spawn(listen, args, &[])
    }

    /// Starts a server with the rules of a file, in a shell that has run these commands. The arguments contain its address.
    pub fn in_shell(commands: &str, rules: &Path, args: &[&str]) -> Self {
        let (rules, program) =
            (rules.to_str().expect("temporary paths are UTF-8"), env!("CARGO_BIN_EXE_tidegate"));
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{commands}; exec \"$0\" \"$@\""), program]);
        shell.args(["serve", "--log-format", "json", "--rules", rules]).args(args);
        Self::run(shell)
    }

    fn spawn(listen: &str, args: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut program = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        program.args(["serve", "--listen", listen, "--log-format", "json"]).args(args);
        Self::run(program.envs(variables.iter().copied()))
    }

    fn run(mut program: impl BorrowMut<Command>) -> Self {
        let program = program.borrow_mut().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = program.spawn().expect("the server starts");
        let lifetime = end_after(LIFETIME, &child);
        let log = Arc::new(Mutex::new(Vec::new()));
        let (serving, address) = mpsc::channel();
        let stderr = BufReader::new(child.stderr.take().expect("piped"));
        let lines = Arc::clone(&log);
        thread::spawn(move || {
            let mut address = String::new();
            for line in stderr.lines().map_while(Result::ok) {
                let parsed: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
                lines.lock().expect("no thread panics while holding it").push(line);
                if address.is_empty() && parsed["message"] == "listening" {
                    parsed["address"].as_str().unwrap_or_default().clone_into(&mut address);
                } else if parsed["message"] == "serving" {
                    // The receiver is gone if the time limit has passed.
                    let _ = serving.send(std::mem::take(&mut address));
                }
            }
        });
        let Ok(address) = address.recv_timeout(PATIENCE) else {
            let _ = child.kill();
            panic!(
                "the server does not serve: {:#?}",
                log.lock().expect("no thread panics while holding it")
            );
        };
        Self { child, _lifetime: lifetime, address, log }
    }

    /// First address it listens on: `host:port` or `unix:/path`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The port of `--http-listen`.
    pub fn admin_port(&self) -> u16 {
        let is_line = |line: &String| line.contains("HTTP port listening");
        let line = self.log().into_iter().find(is_line).expect("it is logged");
        let line: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        let address = line["address"].as_str().expect("an address");
        address.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port")
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Lines logged so far.
    pub fn log(&self) -> Vec<String> {
        self.log.lock().expect("no thread panics while holding it").clone()
    }

    /// Reads the lines logged so far where they are: a copy of a long log takes longer than most waits.
    pub fn read_log<T>(&self, read: impl FnOnce(&[String]) -> T) -> T {
        read(&self.log.lock().expect("no thread panics while holding it"))
    }

    /// The lines of the log that contain the text. Waits for the first such line: it may arrive after the event that it reports.
    pub fn logged(&self, text: &str) -> Vec<String> {
        eventually_blocking(text, || {
            let log = self.log();
            let lines: Vec<String> = log.iter().filter(|line| line.contains(text)).cloned().collect();
            if lines.is_empty() { Err(log) } else { Ok(lines) }
        })
    }

    /// A count of the metrics, by its name and labels.
    pub async fn metric(&self, name: &str) -> u64 {
        let request = http::Request::get("/metrics");
        let page = http1::fetch(Ipv4Addr::LOCALHOST, self.admin_port(), request).await.expect("a page");
        let page = String::from_utf8_lossy(page.body()).into_owned();
        let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no metric {name} in\n{page}"))
    }

    /// A connection, for clients of any service.
    pub async fn channel(&self) -> Channel {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address)).expect("host:port");
        endpoint.connect().await.expect("the server accepts")
    }

    /// A connected client.
    pub async fn client(&self) -> Client {
        Client(RateLimitServiceClient::new(self.channel().await))
    }

    /// Stops it with SIGTERM; returns its exit status.
    pub fn terminate(mut self) -> ExitStatus {
        self.signal(rustix::process::Signal::TERM);
        self.wait()
    }

    /// Sends a signal to this one process.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("the server is there to be signalled");
    }

    /// Sends a signal again and again until the process has ended.
    pub fn signal_until_it_ends(&mut self, signal: rustix::process::Signal) -> ExitStatus {
        eventually_blocking("the server ends", || {
            let ended = self.child.try_wait().expect("a child can be waited for");
            if ended.is_none() {
                self.signal(signal);
            }
            ended.ok_or_else(|| self.log())
        })
    }

    /// Suspends it with SIGSTOP; returns once it is suspended. SIGCONT resumes it.
    pub fn freeze(&self) {
        self.signal(rustix::process::Signal::STOP);
        let pid = rustix::process::Pid::from_child(&self.child);
        let stopped = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::UNTRACED);
        assert!(stopped.is_ok_and(|seen| seen.is_some_and(|(_, status)| status.stopped())));
    }

    /// Waits for the process to end by itself.
    pub fn wait(&mut self) -> ExitStatus {
        eventually_blocking("the server ends", || {
            self.child.try_wait().expect("a child can be waited for").ok_or_else(|| self.log())
        })
    }
}

/// Kills the process after the time, unless the value returned is dropped before.
fn end_after(time: Duration, child: &Child) -> mpsc::Sender<()> {
    let process = rustix::process::Pid::from_child(child);
    let process =
        rustix::process::pidfd_open(process, rustix::process::PidfdFlags::empty()).expect("a child");
    let (lifetime, ended) = mpsc::channel();
    thread::spawn(move || {
        if ended.recv_timeout(time) == Err(mpsc::RecvTimeoutError::Timeout) {
            // It may have ended by itself.
            let _ = rustix::process::pidfd_send_signal(&process, rustix::process::Signal::KILL);
        }
    });
    lifetime
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A generated client. Its clones share its connection.
#[derive(Clone)]
pub struct Client(pub RateLimitServiceClient<Channel>);

impl Client {
    /// Sends one hit of one descriptor.
    pub async fn hit(&mut self, domain: &str, entries: &[(&str, &str)]) -> Result<RateLimitResponse, Status> {
        self.should_rate_limit(domain, vec![descriptor(entries)]).await
    }

    /// Sends one hit of each descriptor.
    pub async fn should_rate_limit(
        &mut self,
        domain: &str,
        descriptors: Vec<RateLimitDescriptor>,
    ) -> Result<RateLimitResponse, Status> {
        let request = RateLimitRequest { domain: domain.into(), descriptors, hits_addend: 0 };
        self.0.should_rate_limit(request).await.map(tonic::Response::into_inner)
    }
}

/// A descriptor of those entries.
pub fn descriptor(entries: &[(&str, &str)]) -> RateLimitDescriptor {
    let entry = |(key, value): &(&str, &str)| Entry { key: (*key).into(), value: (*value).into() };
    RateLimitDescriptor { entries: entries.iter().map(entry).collect(), ..RateLimitDescriptor::default() }
}
