//! Phases of a connection.

/// Phase of the connection. Phases only advance.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Phase {
    /// No preface from the client yet.
    AwaitingPreface,
    /// The preface, but no SETTINGS.
    AwaitingSettings,
    Open,
    /// A GOAWAY is sent; new streams are processed until the client has acknowledged it.
    Draining,
    /// The client knows: new streams are ignored.
    GoingAway,
    /// Nothing is read any more; the rest is written.
    Closing,
    /// Nothing is read or written.
    Closed,
}
