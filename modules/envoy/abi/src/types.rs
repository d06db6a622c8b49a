//! The types that cross the boundary, as the ABI lays them out.

use std::{ffi::c_void, ptr};

/// Bytes that Envoy lends until the hook returns or a setter is called. Null if there are none.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct EnvoyBuffer {
    pub(crate) ptr: *const u8,
    pub(crate) len: usize,
}

impl EnvoyBuffer {
    pub(crate) const NONE: Self = Self { ptr: ptr::null(), len: 0 };

    /// The bytes.
    ///
    /// # Safety
    ///
    /// Envoy has written this buffer, and the bytes are not used after the hook has returned or a setter was called.
    pub(crate) unsafe fn bytes<'h>(self) -> &'h [u8] {
        if self.ptr.is_null() {
            return &[];
        }
        // SAFETY: not null, and by the caller's promise a buffer of Envoy, which are `len` readable bytes.
        unsafe { std::slice::from_raw_parts(self.ptr, self.len) }
    }
}

/// Bytes that the module lends for the duration of one call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ModuleBuffer {
    pub(crate) ptr: *const u8,
    pub(crate) len: usize,
}

impl ModuleBuffer {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self { ptr: bytes.as_ptr(), len: bytes.len() }
    }
}

/// A header that the module lends for the duration of one call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ModuleHeader {
    pub(crate) key_ptr: *const u8,
    pub(crate) key_len: usize,
    pub(crate) value_ptr: *const u8,
    pub(crate) value_len: usize,
}

impl ModuleHeader {
    pub(crate) fn of(name: &str, value: &[u8]) -> Self {
        Self {
            key_ptr: name.as_ptr(),
            key_len: name.len(),
            value_ptr: value.as_ptr(),
            value_len: value.len(),
        }
    }
}

/// Envoy's object of a stream.
pub(crate) type EnvoyStream = *mut c_void;
/// Envoy's object of a configuration.
pub(crate) type EnvoyConfig = *mut c_void;
/// Envoy's object that schedules a hook on the main thread, or on the worker of a stream.
pub(crate) type EnvoyScheduler = *mut c_void;

/// The result of metrics callbacks that succeeded.
pub(crate) const METRICS_OK: u32 = 0;
