//! Bindings to the ABI of Envoy's dynamic modules, for HTTP filters: the ABI of Envoy 1.38 to 1.40, by hand.
//!
//! A filter implements [`Module`] and exports its hooks with [`export_module!`]; both are safe code. The trait [`Host`] is Envoy during a
//! hook, so that tests can replace it.
//!
//! Invariants:
//!
//! - No panic crosses a hook: it is caught there, counted, and costs one request.
//! - Bytes that Envoy lends are borrowed from the [`Host`], and its setters borrow it exclusively: no borrow outlives the bytes.
//! - A hook ends with whatever makes Envoy run further hooks of the stream, such as a response or the end of a wait. A hook that is called
//!   within another hook nevertheless has no effect, and a stream destroyed meanwhile is never freed rather than freed twice.
//! - A waiting request is resumed on its worker, outside any other hook of the stream.
//! - Callbacks are looked up when the module is loaded, so that one binary runs on every version that has the required callbacks.

mod callbacks;
mod envoy;
mod export;
#[doc(hidden)]
pub mod hooks;
mod host;
mod module;
#[cfg(test)]
mod tests;
mod types;

pub use host::{ConfigHost, Counter, Host, LogLevel, Scheduler, Waker, is_from_1_39, log};
pub use module::{Flow, Module};
