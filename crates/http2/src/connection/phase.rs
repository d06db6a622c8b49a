//! Phases of a connection.

/// Phase of a connection. Phases only advance.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Phase {
    /// No preface from the client yet.
    AwaitingPreface,
    /// The preface was received, but no SETTINGS.
    AwaitingSettings,
    Open,
    /// A GOAWAY was sent. New streams are processed until the client has acknowledged it.
    Draining,
    /// The client has received the GOAWAY: new streams are ignored.
    GoingAway,
    /// Nothing more is read. The rest is written.
    Closing,
    /// Nothing is read or written.
    Closed,
}
