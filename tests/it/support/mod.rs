//! Shared by the integration tests.

pub mod certificates;
pub mod frames;
pub mod http1;
pub mod http2;
mod in_process;
mod limiter;
mod server;
pub mod tls;
pub mod vectors;
mod waiting;

pub use in_process::InProcess;
pub use limiter::{limiter, limiter_with_room};
pub use server::{Client, Server, descriptor, rules_file};
pub use waiting::{PATIENCE, eventually, eventually_blocking, eventually_within};
