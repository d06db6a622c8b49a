//! Byte streams: TCP and Unix sockets, with or without TLS, behind one type, with their addresses and listeners.
//!
//! Invariant: nothing above this crate depends on which kind of stream a connection uses.

mod address;
mod bind;
mod inherited;
mod listener;
mod peer;
mod socket_file;
mod stream;
mod tls;
mod unread_alert;

pub use address::{ListenAddress, ListenAddressError};
pub use bind::{BindError, bind};
pub use inherited::InheritedSockets;
pub use listener::Listener;
pub use peer::Peer;
pub use stream::{Accepted, Stream};
pub use tls::{
    H2, HTTP_1_1, HandshakeError, HandshakeResult, RefusedConnection, San, SanError, TlsClient,
    TlsClientError, TlsCounts, TlsFiles, TlsFilesError, TlsPort, read_pem,
};
pub use unread_alert::UnreadAlert;
