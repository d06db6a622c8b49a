//! Byte streams: TCP and Unix sockets, with or without TLS, behind one type, with their addresses and listeners.
//!
//! Invariant: above this module nothing depends on which kind of stream a connection uses.

mod address;
mod bind;
mod inherited;
mod listener;
mod peer;
mod stream;
mod tls;

pub use address::{ListenAddress, ListenAddressError};
pub(crate) use bind::{BindError, bind};
pub(crate) use inherited::InheritedSockets;
pub(crate) use listener::Listener;
pub(crate) use peer::Peer;
pub(crate) use stream::Accepted;
pub(crate) use tls::{H2, HTTP_1_1, HandshakeError, San, TlsClient, TlsClientError, TlsPort, read_pem};
pub use tls::{HandshakeResult, TlsCounts, TlsFiles, TlsFilesError};
