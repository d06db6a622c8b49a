//! The functions of Envoy, found by name when the module is loaded.
//!
//! Envoy rejects a library that imports a missing function as a whole, with a message about the library's path. With lookup by name, an
//! optional function may be missing, and the error about a required function names it.

use crate::types::{EnvoyBuffer, EnvoyConfig, EnvoyScheduler, EnvoyStream, ModuleBuffer, ModuleHeader};
use std::{
    ffi::{CStr, c_char, c_void},
    mem,
    sync::OnceLock,
};

macro_rules! callbacks {
    (
        required { $($(#[$required_doc:meta])* $required:ident: $required_type:ty,)* }
        optional { $($(#[$optional_doc:meta])* $optional:ident: $optional_type:ty,)* }
    ) => {
        /// The callbacks that the module uses.
        pub(crate) struct Callbacks {
            $($(#[$required_doc])* pub(crate) $required: $required_type,)*
            $($(#[$optional_doc])* pub(crate) $optional: Option<$optional_type>,)*
        }

        impl Callbacks {
            /// Finds each callback by its name; the error is the name of a missing required callback.
            ///
            /// # Safety
            ///
            /// `find` returns null or the function that the ABI of Envoy 1.38 to 1.40 declares under that name.
            pub(crate) unsafe fn find(find: impl Fn(&CStr) -> *mut c_void) -> Result<Self, &'static str> {
                Ok(Self {
                    $($required: {
                        const NAME: &str = concat!("envoy_dynamic_module_callback_", stringify!($required), "\0");
                        let found = find(c_name(NAME));
                        if found.is_null() {
                            return Err(NAME.trim_end_matches('\0'));
                        }
                        // SAFETY: not null, so by the caller's promise a function of this type.
                        unsafe { mem::transmute::<*mut c_void, $required_type>(found) }
                    },)*
                    $($optional: {
                        const NAME: &str = concat!("envoy_dynamic_module_callback_", stringify!($optional), "\0");
                        let found = find(c_name(NAME));
                        // SAFETY: null becomes none; anything else is by the caller's promise a function of this type.
                        unsafe { mem::transmute::<*mut c_void, Option<$optional_type>>(found) }
                    },)*
                })
            }
        }
    };
}

callbacks! {
    required {
        http_get_header: unsafe extern "C" fn(EnvoyStream, u32, ModuleBuffer, *mut EnvoyBuffer, usize, *mut usize) -> bool,
        http_add_header: unsafe extern "C" fn(EnvoyStream, u32, ModuleBuffer, ModuleBuffer) -> bool,
        http_filter_get_attribute_string: unsafe extern "C" fn(EnvoyStream, u32, *mut EnvoyBuffer) -> bool,
        http_get_metadata_string:
            unsafe extern "C" fn(EnvoyStream, u32, ModuleBuffer, ModuleBuffer, *mut EnvoyBuffer) -> bool,
        http_get_metadata_number: unsafe extern "C" fn(EnvoyStream, u32, ModuleBuffer, ModuleBuffer, *mut f64) -> bool,
        // In some versions they return whether it worked.
        http_set_dynamic_metadata_string: unsafe extern "C" fn(EnvoyStream, ModuleBuffer, ModuleBuffer, ModuleBuffer),
        http_set_dynamic_metadata_number: unsafe extern "C" fn(EnvoyStream, ModuleBuffer, ModuleBuffer, f64),
        http_get_cluster_name: unsafe extern "C" fn(EnvoyStream, *mut EnvoyBuffer) -> bool,
        http_get_filter_state_typed: unsafe extern "C" fn(EnvoyStream, ModuleBuffer, *mut EnvoyBuffer) -> bool,
        http_send_response: unsafe extern "C" fn(EnvoyStream, u32, *mut ModuleHeader, usize, ModuleBuffer, ModuleBuffer),
        http_send_response_headers: unsafe extern "C" fn(EnvoyStream, *mut ModuleHeader, usize, bool),
        get_most_specific_route_config: unsafe extern "C" fn(EnvoyStream) -> *const c_void,
        http_filter_config_define_counter:
            unsafe extern "C" fn(EnvoyConfig, ModuleBuffer, *mut ModuleBuffer, usize, *mut usize) -> u32,
        http_filter_increment_counter:
            unsafe extern "C" fn(EnvoyStream, usize, *mut ModuleBuffer, usize, u64) -> u32,
        http_filter_config_scheduler_new: unsafe extern "C" fn(EnvoyConfig) -> EnvoyScheduler,
        http_filter_config_scheduler_commit: unsafe extern "C" fn(EnvoyScheduler, u64),
        http_filter_config_scheduler_delete: unsafe extern "C" fn(EnvoyScheduler),
        http_filter_scheduler_new: unsafe extern "C" fn(EnvoyStream) -> EnvoyScheduler,
        http_filter_scheduler_commit: unsafe extern "C" fn(EnvoyScheduler, u64),
        http_filter_scheduler_delete: unsafe extern "C" fn(EnvoyScheduler),
        http_filter_continue_decoding: unsafe extern "C" fn(EnvoyStream),
        log: unsafe extern "C" fn(u32, ModuleBuffer),
    }
    optional {
        /// Since Envoy 1.39.
        http_filter_config_increment_counter:
            unsafe extern "C" fn(EnvoyConfig, usize, *mut ModuleBuffer, usize, u64) -> u32,
        /// Since Envoy 1.40.
        get_runtime_int: unsafe extern "C" fn(ModuleBuffer, u64) -> u64,
    }
}

fn c_name(name: &'static str) -> &'static CStr {
    CStr::from_bytes_with_nul(name.as_bytes()).unwrap_or_default()
}

static CALLBACKS: OnceLock<Callbacks> = OnceLock::new();

/// The callbacks; none before the module was loaded.
pub(crate) fn callbacks() -> Option<&'static Callbacks> {
    CALLBACKS.get()
}

/// Finds the callbacks in the process that has loaded this module. The error is the name of a missing callback.
pub(crate) fn load() -> Result<&'static Callbacks, &'static str> {
    if let Some(found) = CALLBACKS.get() {
        return Ok(found);
    }
    // SAFETY: the names are those of Envoy's ABI, which no other library uses.
    let found = unsafe { Callbacks::find(symbol) }?;
    Ok(CALLBACKS.get_or_init(|| found))
}

#[cfg(test)]
pub(crate) fn install(found: Callbacks) {
    CALLBACKS.get_or_init(|| found);
}

/// Address of a symbol of the process; null if it has none.
fn symbol(name: &CStr) -> *mut c_void {
    // The address that `dlfcn.h` calls RTLD_DEFAULT.
    let everywhere = if cfg!(target_vendor = "apple") { usize::MAX - 1 } else { 0 };
    // SAFETY: `dlsym` reads a string that ends with a zero, and may be called by any thread.
    unsafe { dlsym(everywhere as *mut c_void, name.as_ptr()) }
}

// SAFETY: as POSIX declares it. The standard library links the library that has it.
unsafe extern "C" {
    fn dlsym(handle: *mut c_void, symbol: *const c_char) -> *mut c_void;
}
