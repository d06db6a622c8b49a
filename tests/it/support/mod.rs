//! Shared by the integration tests.

pub mod frames;
pub mod http1;
pub mod http2;
mod in_process;
mod limiter;
mod server;

pub use in_process::InProcess;
pub use limiter::{limiter, limiter_with_room};
pub use server::{Client, Server, descriptor, rules_file};

/// Fails unless `name`, which the calling test needs beside Rust, is installed.
///
/// Such a test carries `#[ignore = "needs NAME"]`, so that `cargo test` lists it as ignored where it cannot run and CI runs
/// it with `--include-ignored`. Without the attribute it fails here, whatever is installed.
pub fn require(name: &str, found: bool) {
    let selected = std::env::args().any(|arg| arg == "--include-ignored" || arg == "--ignored");
    assert!(selected, "mark this test with #[ignore = \"needs {name}\"]");
    assert!(found, "{name} is not installed");
}
