//! The reference server in a process of its own.

use crate::support::eventually;
use crate::{peer::runs, shared_store::RedisServer};
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::OnceLock,
};
use tempfile::TempDir;
use tidegate::api::pb::{
    health::{HealthCheckRequest, health_client::HealthClient},
    service::rate_limit_service_client::RateLimitServiceClient,
};
use tonic::transport::{Channel, Endpoint};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/reference")
}

/// A build of the server other than that of `go.mod`.
fn other_build() -> Option<PathBuf> {
    env::var_os("TIDEGATE_REFERENCE_SERVER").map(PathBuf::from)
}

/// Whether Go is installed and the modules have been downloaded (`go mod download` in the folder of the program).
pub fn is_here() -> bool {
    let mut list = Command::new("go");
    list.args(["list", "-deps", "./..."]).current_dir(folder()).env("GOPROXY", "off");
    other_build().is_some() || runs(&mut list)
}

/// The program, built once.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        if let Some(other) = other_build() {
            return other;
        }
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ratelimit");
        let mut build = Command::new("go");
        build.args(["build", "-buildvcs=false", "-o"]).arg(&program).arg(".").current_dir(folder());
        let built = build.output().expect("Go runs");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        program
    })
}

/// A running reference server with a store of its own; both are killed when dropped.
pub struct ReferenceServer {
    child: Child,
    folder: TempDir,
    _store: RedisServer,
}

impl ReferenceServer {
    /// Starts it with the rule files of a folder and with these variables.
    pub async fn start(rules: &Path, variables: &[(&str, &str)]) -> Self {
        let (store, folder) = (RedisServer::start(), tempfile::tempdir().expect("a temporary folder"));
        let log = fs::File::create(folder.path().join("log")).expect("a log file");
        let child = Command::new(program())
            .env_clear()
            .envs([
                ("HOST", "127.0.0.1"),
                ("PORT", "0"),
                ("DEBUG_HOST", "127.0.0.1"),
                ("DEBUG_PORT", "0"),
                ("RUNTIME_WATCH_ROOT", "false"),
                ("USE_STATSD", "false"),
                ("REDIS_SOCKET_TYPE", "unix"),
            ])
            .env("GRPC_UDS", folder.path().join("socket"))
            .env("REDIS_URL", store.socket())
            .env("RUNTIME_ROOT", rules.parent().expect("a folder in a folder"))
            .env("RUNTIME_APPDIRECTORY", rules.file_name().expect("a name"))
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a descriptor"))
            .stderr(log)
            .spawn()
            .expect("it starts");
        let server = Self { child, folder, _store: store };
        eventually("the reference server serves", async || match server.serves().await {
            true => Ok(()),
            false => Err(server.log()),
        })
        .await;
        server
    }

    async fn serves(&self) -> bool {
        let Ok(channel) = self.connect().await else { return false };
        let request = HealthCheckRequest { service: "ratelimit".into() };
        HealthClient::new(channel).check(request).await.is_ok()
    }

    async fn connect(&self) -> Result<Channel, tonic::transport::Error> {
        let address = format!("unix:{}", self.folder.path().join("socket").display());
        Endpoint::from_shared(address)?.connect().await
    }

    /// A client.
    pub async fn client(&self) -> RateLimitServiceClient<Channel> {
        RateLimitServiceClient::new(self.connect().await.expect("it serves"))
    }

    /// Output so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for ReferenceServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
