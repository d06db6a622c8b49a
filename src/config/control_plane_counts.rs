//! Figures of the connection to a control plane, for metrics.

use parking_lot::Mutex;
use tidegate_core::limit::Timestamp;

/// Figures of the connection to a control plane.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ControlPlaneFigures {
    /// Whether there is a connection.
    pub is_connected: bool,
    /// Connections made.
    pub connections: u64,
    /// Attempts to connect that failed.
    pub failed_connections: u64,
    /// Responses accepted (ACK).
    pub accepted: u64,
    /// Responses refused (NACK).
    pub refused: u64,
    /// Time of the last response accepted; zero before the first.
    pub accepted_at: Timestamp,
}

/// The figures, as the feed counts them.
#[derive(Debug, Default)]
pub struct ControlPlaneCounts(Mutex<ControlPlaneFigures>);

impl ControlPlaneCounts {
    /// The figures now.
    pub fn figures(&self) -> ControlPlaneFigures {
        *self.0.lock()
    }

    /// Counts an attempt to connect.
    pub fn connected(&self, is_connected: bool) {
        let mut figures = self.0.lock();
        figures.is_connected = is_connected;
        *(if is_connected { &mut figures.connections } else { &mut figures.failed_connections }) += 1;
    }

    /// Notes that the connection ended.
    pub fn disconnected(&self) {
        self.0.lock().is_connected = false;
    }

    /// Counts a response that was put in force.
    pub fn accepted(&self, now: Timestamp) {
        let mut figures = self.0.lock();
        figures.accepted += 1;
        figures.accepted_at = now;
    }

    /// Counts a response that was refused.
    pub fn refused(&self) {
        self.0.lock().refused += 1;
    }
}
