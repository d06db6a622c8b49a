//! What the integration tests share.

mod envoy;
pub mod frames;
pub mod http1;
pub mod http2;
mod in_process;
mod limiter;
mod server;

pub use envoy::Envoy;
pub use in_process::InProcess;
pub use limiter::{limiter, limiter_with_room};
pub use server::{Client, Server, descriptor, rules_file};

use std::io::Write;

/// Tells whether a test that needs `name` can run: it can if `found`. If not, the skip is said loudly, or is a failure if
/// `TIDEGATE_REQUIRE` names it.
pub fn can_run(name: &str, found: bool) -> bool {
    let required = std::env::var("TIDEGATE_REQUIRE").unwrap_or_default();
    let is_required = required.split(',').any(|one| one.trim() == name);
    assert!(found || !is_required, "TIDEGATE_REQUIRE names {name}, and it is not here");
    if !found {
        // Not by a macro: the test runner keeps from sight what those print in a test that passes.
        let said = format!(
            "\n*** SKIPPED: {name} is not here; TIDEGATE_REQUIRE={name} makes this a failure ***\n\n"
        );
        let _ = std::io::stderr().write_all(said.as_bytes());
    }
    found
}
