//! Flow control (RFC 9113, section 5.2): how much DATA may be sent, and how much may be received.

use super::{ConnectionError, ErrorCode};

/// The window before any SETTINGS or WINDOW_UPDATE.
pub const DEFAULT_WINDOW: u32 = 65_535;
/// The largest window.
pub const WINDOW_MAX: u32 = 0x7fff_ffff;

/// The peer raised a window beyond [`WINDOW_MAX`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WindowOverflow;

/// The peer sent more DATA than a window allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WindowExceeded;

impl From<WindowOverflow> for ConnectionError {
    fn from(_: WindowOverflow) -> Self {
        Self::new(ErrorCode::FlowControl, "flow-control window overflow")
    }
}

impl From<WindowExceeded> for ConnectionError {
    fn from(_: WindowExceeded) -> Self {
        Self::new(ErrorCode::FlowControl, "flow-control window exceeded")
    }
}

/// Bytes of DATA that may be sent on a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SendWindow(u32);

impl SendWindow {
    pub(crate) fn new(size: u32) -> Self {
        Self(size)
    }

    /// Bytes that may be sent now.
    #[inline]
    pub(crate) fn available(self) -> usize {
        self.0 as usize
    }

    /// Takes sent bytes, at most [`Self::available`].
    #[inline]
    pub(crate) fn consume(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.available());
        self.0 -= bytes as u32;
    }

    /// Applies a WINDOW_UPDATE.
    pub(crate) fn increase(&mut self, by: u32) -> Result<(), WindowOverflow> {
        self.0 = self.0.checked_add(by).filter(|&raised| raised <= WINDOW_MAX).ok_or(WindowOverflow)?;
        Ok(())
    }
}

/// Bytes of DATA that may be sent on a stream, relative to SETTINGS_INITIAL_WINDOW_SIZE: a change of that setting changes
/// the windows of all streams without touching them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct StreamSendWindow {
    /// WINDOW_UPDATEs received minus bytes sent.
    credit: i64,
}

impl StreamSendWindow {
    /// Bytes that may be sent now. A window can be below zero, since SETTINGS may shrink it.
    #[inline]
    pub(crate) fn available(self, initial_window: u32) -> usize {
        (i64::from(initial_window) + self.credit).max(0) as usize
    }

    /// Takes sent bytes. Expects that as many were available.
    #[inline]
    pub(crate) fn consume(&mut self, bytes: usize) {
        self.credit -= bytes as i64;
    }

    /// Applies a WINDOW_UPDATE. An overflow caused by SETTINGS is found here, not when SETTINGS are applied.
    pub(crate) fn increase(&mut self, by: u32, initial_window: u32) -> Result<(), WindowOverflow> {
        let credit = self.credit + i64::from(by);
        if i64::from(initial_window) + credit > i64::from(WINDOW_MAX) {
            return Err(WindowOverflow);
        }
        self.credit = credit;
        Ok(())
    }

    pub(crate) fn credit(self) -> i64 {
        self.credit
    }
}

/// Bytes of DATA that may be received, and bytes to return by WINDOW_UPDATE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RecvWindow {
    /// The size it is raised to.
    size: u32,
    /// Bytes that may still be received.
    available: u32,
    /// Bytes received and processed, not yet returned.
    unreturned: u32,
}

impl RecvWindow {
    pub(crate) fn new(size: u32) -> Self {
        Self { size, available: size, unreturned: 0 }
    }

    /// Takes bytes received.
    #[inline]
    pub(crate) fn receive(&mut self, bytes: usize) -> Result<(), WindowExceeded> {
        let bytes = u32::try_from(bytes).map_err(|_| WindowExceeded)?;
        self.available = self.available.checked_sub(bytes).ok_or(WindowExceeded)?;
        Ok(())
    }

    /// Releases processed bytes. Returns the increment of a WINDOW_UPDATE once half of the window is used.
    #[inline]
    pub(crate) fn release(&mut self, bytes: usize) -> Option<u32> {
        // At most as many bytes are released as were received, so that the sum fits.
        self.unreturned += bytes as u32;
        if self.unreturned < self.size.div_ceil(2) {
            return None;
        }
        let returned = std::mem::take(&mut self.unreturned);
        self.available += returned;
        Some(returned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_window_below_zero_has_nothing_available_until_it_is_raised_above() {
        let mut window = StreamSendWindow::default();
        assert_eq!(window.available(10), 10);
        window.consume(8);
        assert_eq!(window.available(10), 2);
        assert_eq!(window.available(0), 0);
        assert_eq!(window.increase(9, 0), Ok(()));
        assert_eq!(window.available(0), 1);
        assert_eq!(window.increase(WINDOW_MAX, 0), Err(WindowOverflow));
        assert_eq!(window.increase(WINDOW_MAX - 1, 0), Ok(()));
    }

    #[test]
    fn a_connections_window_does_not_overflow() {
        let mut window = SendWindow::new(DEFAULT_WINDOW);
        assert_eq!(window.increase(WINDOW_MAX - DEFAULT_WINDOW + 1), Err(WindowOverflow));
        assert_eq!(window.increase(WINDOW_MAX - DEFAULT_WINDOW), Ok(()));
        assert_eq!(window.increase(1), Err(WindowOverflow));
    }

    proptest! {
        #[test]
        fn a_sender_within_the_window_is_never_refused_and_never_stuck(
            size in 1..1000_u32, pieces in prop::collection::vec(1..1000_usize, 1..100),
        ) {
            let (mut receiver, mut sender) = (RecvWindow::new(size), SendWindow::new(size));
            for piece in pieces {
                let mut left = piece;
                while left > 0 {
                    let sent = left.min(sender.available());
                    prop_assert!(sent > 0, "stuck");
                    sender.consume(sent);
                    prop_assert_eq!(receiver.receive(sent), Ok(()));
                    left -= sent;
                    if let Some(returned) = receiver.release(sent) {
                        prop_assert_eq!(sender.increase(returned), Ok(()));
                    }
                }
            }
            prop_assert_eq!(receiver.receive(sender.available() + 1), Err(WindowExceeded));
        }
    }
}
