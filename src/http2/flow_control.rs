//! Flow control (RFC 9113, section 5.2): how much DATA may be sent, and how much may come.

use super::{ConnectionError, ErrorCode};

/// The window before any SETTINGS or WINDOW_UPDATE.
pub(crate) const DEFAULT_WINDOW: u32 = 65_535;
/// No window is larger.
pub(crate) const WINDOW_MAX: u32 = 0x7fff_ffff;

/// How many bytes of DATA the other side still takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SendWindow(i64);

/// The other side raised a window beyond its bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WindowOverflow;

/// The other side sent more than its window let it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WindowExceeded;

impl From<WindowOverflow> for ConnectionError {
    fn from(_: WindowOverflow) -> Self {
        Self::new(ErrorCode::FlowControl, "a window grows beyond its bound")
    }
}

impl From<WindowExceeded> for ConnectionError {
    fn from(_: WindowExceeded) -> Self {
        Self::new(ErrorCode::FlowControl, "more DATA come than their window lets")
    }
}

impl SendWindow {
    pub(crate) fn new(size: u32) -> Self {
        Self(i64::from(size))
    }

    /// Bytes that may be sent now. A window can be below zero, since SETTINGS may shrink it.
    #[inline]
    pub(crate) fn available(self) -> usize {
        self.0.max(0) as usize
    }

    /// So many bytes, for which there was room, are sent.
    #[inline]
    pub(crate) fn consume(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.available());
        self.0 -= bytes as i64;
    }

    /// Raises it, or lowers it if SETTINGS said so.
    pub(crate) fn adjust(&mut self, by: i64) -> Result<(), WindowOverflow> {
        let raised = self.0 + by;
        if raised > i64::from(WINDOW_MAX) {
            return Err(WindowOverflow);
        }
        self.0 = raised;
        Ok(())
    }
}

/// How many bytes of DATA may come, and how many of those that came are to be asked for anew.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RecvWindow {
    /// What it is raised to.
    size: u32,
    /// What may still come.
    room: u32,
    /// What came and was read, and is not yet given back.
    unreturned: u32,
}

impl RecvWindow {
    pub(crate) fn new(size: u32) -> Self {
        Self { size, room: size, unreturned: 0 }
    }

    /// So many bytes came; an error if that was more than they might.
    #[inline]
    pub(crate) fn receive(&mut self, bytes: usize) -> Result<(), WindowExceeded> {
        let bytes = u32::try_from(bytes).map_err(|_| WindowExceeded)?;
        self.room = self.room.checked_sub(bytes).ok_or(WindowExceeded)?;
        Ok(())
    }

    /// So many of the bytes that came have been read; what the other side is to be told, once it is worth a frame.
    #[inline]
    pub(crate) fn release(&mut self, bytes: usize) -> Option<u32> {
        // No more is read than came, and what came fits.
        self.unreturned += bytes as u32;
        if self.unreturned < self.size.div_ceil(2) {
            return None;
        }
        let returned = std::mem::take(&mut self.unreturned);
        self.room += returned;
        Some(returned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_window_that_settings_shrank_has_no_room_until_it_is_raised_again() {
        let mut window = SendWindow::new(10);
        window.consume(8);
        assert_eq!(window.adjust(-10), Ok(()));
        assert_eq!(window.available(), 0);
        assert_eq!(window.adjust(9), Ok(()));
        assert_eq!(window.available(), 1);
        assert_eq!(window.adjust(i64::from(WINDOW_MAX)), Err(WindowOverflow));
    }

    proptest! {
        #[test]
        fn whoever_keeps_to_the_window_is_never_refused_and_never_stuck(
            size in 1..1000_u32, pieces in prop::collection::vec(1..1000_usize, 1..100),
        ) {
            let (mut recv_window, mut sender) = (RecvWindow::new(size), SendWindow::new(size));
            for piece in pieces {
                // A sender with a piece to send sends what there is room for, until all is sent.
                let mut left = piece;
                while left > 0 {
                    let sent = left.min(sender.available());
                    prop_assert!(sent > 0, "stuck");
                    sender.consume(sent);
                    prop_assert_eq!(recv_window.receive(sent), Ok(()));
                    left -= sent;
                    if let Some(returned) = recv_window.release(sent) {
                        prop_assert_eq!(sender.adjust(returned.into()), Ok(()));
                    }
                }
            }
            prop_assert_eq!(recv_window.receive(sender.available() + 1), Err(WindowExceeded));
        }
    }
}
