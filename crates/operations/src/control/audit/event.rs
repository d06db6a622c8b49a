//! The content of a line.

/// The outcome of a change that is about to be made.
pub const INTENT: &str = "INTENT";

/// Content of a line.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AuditEvent {
    /// See [`AuditEntry::actor`].
    pub actor: String,
    /// See [`AuditEntry::peer`].
    pub peer: String,
    /// See [`AuditEntry::action`].
    pub action: String,
    /// See [`AuditEntry::outcome`].
    pub outcome: String,
    /// See [`AuditEntry::reason`].
    pub reason: String,
    /// See [`AuditEntry::details`].
    pub details: String,
    /// See [`AuditEntry::intent`].
    pub intent: Option<u64>,
}
