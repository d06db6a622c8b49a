//! A refused connection with a TLS alert that its client may not have read yet.

use super::stream::Socket;
use std::time::Duration;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, copy, sink},
    time::timeout,
};

/// Time in which a client may read its alert.
const TIME_MAX: Duration = Duration::from_secs(2);

/// The most bytes that are read from it meanwhile.
const BYTES_MAX: u64 = 256 * 1024;

/// A connection that is closed once its client has read its alert. If it is dropped, it is closed at once.
pub struct UnreadAlert(Socket);

impl UnreadAlert {
    pub(super) fn new(socket: Socket) -> Self {
        Self(socket)
    }

    /// Waits for a bounded time until the client closes the connection, and closes it. If a connection is closed with unread bytes, it is
    /// reset, and a client that is writing gets the reset before it reads the alert.
    pub async fn linger(self) {
        let Self(mut socket) = self;
        let closed = async {
            socket.shutdown().await?;
            copy(&mut socket.take(BYTES_MAX), &mut sink()).await
        };
        // The connection is closed whatever the result is.
        let _ = timeout(TIME_MAX, closed).await;
    }
}
