//! HTTP/2 (RFC 9113) for unary gRPC calls: the server half, and a client half (`client`) for the load generator.
//!
//! [`serve()`] drives one connection over a byte stream. The state machine in `connection` does no IO and reads no clock: it maps bytes
//! read to bytes to write. Calls on the fast path of the [`Service`] are decided in a batch with the other calls of the same read, without
//! a task. Every other request is routed: passed on as an `http::Request`, with back-pressure from the connection's windows.
//!
//! Why not a library: `docs/decisions/0005-own-http2.md`.

mod activity;
mod body_memory;
pub mod client;
mod connection;
mod counts;
mod deferred;
mod delivery;
mod error;
pub mod flow_control;
pub(crate) mod frame;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz_bridge;
pub mod grpc;
mod header_block;
pub mod hpack;
mod long_lived;
mod read_buffer;
mod request_body;
mod request_headers;
mod response_headers;
mod routed;
mod serve;
mod service;
mod settings;
mod steps;
mod task_event;

pub use activity::Activity;
pub use body_memory::{BodyMemory, BodyShare, HeldBytes, NoRoom};
pub use counts::{CloseReason, ConnectionCounts, ConnectionEvent, ConnectionRefusal, StreamRefusal};
pub use deferred::{DeferredBody, DeferredResponse, OnReset};
pub use delivery::{Delivery, Unconfirmed};
pub use error::{ConnectionError, ErrorCode, error_name};
pub use header_block::PartialHeaderBlock;
pub use hpack::{FieldNames, Fields};
pub use long_lived::{LongLived, LongLivedCall};
pub use read_buffer::ReadBuffer;
pub use request_body::{BodyError, RequestBody};
pub use serve::is_tls_client;
pub use serve::serve;
pub use service::{CLASSES, ClassCounts, Responses, Service};
pub use settings::Http2Settings;
