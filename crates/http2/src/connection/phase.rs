//! Phases of a connection, and of its opening by the client.

/// Phase of a connection. Phases only advance.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Phase {
    /// New streams are processed.
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

/// What is expected of the client's opening (RFC 9113, section 3.4). It only advances, and is independent of the phase: a connection may
/// drain before its client has sent anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Opening {
    /// No whole preface was received yet.
    AwaitingPreface,
    /// The preface was received, but no SETTINGS.
    AwaitingSettings,
    Complete,
}
