//! Messages to a watch.

/// An event of the operating system, or the loss of some.
pub(super) type Event = notify::Result<notify::Event>;

pub(super) enum Message {
    /// The operating system reported an event, or the loss of some.
    Event(Event),
    Request,
    Stop,
}
