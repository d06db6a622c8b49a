//! Byte streams: TCP and Unix sockets behind one type, with their addresses and listeners.
//!
//! Invariant: above this module nothing depends on which kind of socket a connection uses.

mod address;
mod inherited;
mod listener;
mod peer;
mod stream;

pub use address::{ListenAddress, ListenAddressError};
pub(crate) use inherited::InheritedSockets;
pub(crate) use listener::{BindError, Listener, bind};
pub(crate) use peer::Peer;
pub(crate) use stream::{Accepted, Stream};
