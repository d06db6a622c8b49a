//! Bindings to the ABI of Envoy's dynamic modules, for HTTP filters: the ABI of Envoy 1.38 to 1.40, by hand.
//!
//! A filter implements [`Module`] and exports its hooks with [`export_module!`]; both are safe code. What Envoy offers during a hook is
//! the trait [`Host`], so that a test can stand in for Envoy.
//!
//! Invariants:
//!
//! - No panic crosses a hook: it is caught there, counted, and costs one request.
//! - Bytes that Envoy lends are borrowed from the [`Host`], and its setters need it exclusively: no borrow outlives them.
//! - Whatever has Envoy run further hooks of a stream, as a response or the end of a wait, is the last thing that a hook does. A hook that
//!   is called within another one all the same does nothing, and a stream that is destroyed meanwhile is freed never, not twice.
//! - A request that waits is resumed on its worker, outside any other hook of the stream.
//! - Callbacks are looked up when the module is loaded, so that one binary runs on every version that has the required ones.

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

pub use host::{
    Attribute, ConfigHost, Counter, Headers, Host, LogLevel, MetadataSource, Scheduler, Waker, is_from_1_39,
    log,
};
pub use module::{Flow, Module};
