//! The exported functions, by the names under which Envoy finds them.

/// Exports the hooks of a [`Module`] under the names by which Envoy finds them.
#[macro_export]
macro_rules! export_module {
    ($module:ty) => {
        const _: () = {
            use ::std::ffi::{c_char, c_void};
            use $crate::hooks::{self, Buffer, CONTINUE};

            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_program_init() -> *const c_char {
                hooks::program_init()
            }
            #[unsafe(no_mangle)]
            unsafe extern "C" fn envoy_dynamic_module_on_http_filter_config_new(
                host: *mut c_void,
                _name: Buffer,
                config: Buffer,
            ) -> *const c_void {
                // SAFETY: called by Envoy.
                unsafe { hooks::config_new::<$module>(host, config) }
            }
            #[unsafe(no_mangle)]
            unsafe extern "C" fn envoy_dynamic_module_on_http_filter_config_destroy(config: *const c_void) {
                // SAFETY: called by Envoy.
                unsafe { hooks::config_destroy::<$module>(config) }
            }
            #[unsafe(no_mangle)]
            unsafe extern "C" fn envoy_dynamic_module_on_http_filter_config_scheduled(
                host: *mut c_void,
                config: *const c_void,
                _event: u64,
            ) {
                // SAFETY: called by Envoy.
                unsafe { hooks::config_scheduled::<$module>(host, config) }
            }
            #[unsafe(no_mangle)]
            unsafe extern "C" fn envoy_dynamic_module_on_http_filter_per_route_config_new(
                _name: Buffer,
                config: Buffer,
            ) -> *const c_void {
                // SAFETY: called by Envoy.
                unsafe { hooks::route_new::<$module>(config) }
            }
            #[unsafe(no_mangle)]
            unsafe extern "C" fn envoy_dynamic_module_on_http_filter_per_route_config_destroy(
                route: *const c_void,
            ) {
                // SAFETY: called by Envoy.
                unsafe { hooks::route_destroy::<$module>(route) }
            }
            #[unsafe(no_mangle)]
            unsafe extern "C" fn envoy_dynamic_module_on_http_filter_new(
                config: *const c_void,
                _envoy: *mut c_void,
            ) -> *const c_void {
                // SAFETY: called by Envoy.
                unsafe { hooks::stream_new::<$module>(config) }
            }
            #[unsafe(no_mangle)]
            unsafe extern "C" fn envoy_dynamic_module_on_http_filter_destroy(stream: *const c_void) {
                // SAFETY: called by Envoy.
                unsafe { hooks::stream_destroy::<$module>(stream) }
            }
            #[unsafe(no_mangle)]
            unsafe extern "C" fn envoy_dynamic_module_on_http_filter_request_headers(
                envoy: *mut c_void,
                stream: *const c_void,
                _is_end: bool,
            ) -> u32 {
                // SAFETY: called by Envoy.
                unsafe { hooks::request_headers::<$module>(envoy, stream) }
            }
            #[unsafe(no_mangle)]
            unsafe extern "C" fn envoy_dynamic_module_on_http_filter_response_headers(
                envoy: *mut c_void,
                stream: *const c_void,
                _is_end: bool,
            ) -> u32 {
                // SAFETY: called by Envoy.
                unsafe { hooks::response_headers::<$module>(envoy, stream) }
            }
            #[unsafe(no_mangle)]
            unsafe extern "C" fn envoy_dynamic_module_on_http_filter_stream_complete(
                envoy: *mut c_void,
                stream: *const c_void,
            ) {
                // SAFETY: called by Envoy.
                unsafe { hooks::stream_complete::<$module>(envoy, stream) }
            }
            #[unsafe(no_mangle)]
            unsafe extern "C" fn envoy_dynamic_module_on_http_filter_scheduled(
                envoy: *mut c_void,
                stream: *const c_void,
                _event: u64,
            ) {
                // SAFETY: called by Envoy.
                unsafe { hooks::scheduled::<$module>(envoy, stream) }
            }

            // Mandatory, and of no use to this filter: bodies and trailers pass, and it makes no calls of its own.
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_http_filter_request_body(
                _: *mut c_void,
                _: *const c_void,
                _: bool,
            ) -> u32 {
                CONTINUE
            }
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_http_filter_request_trailers(
                _: *mut c_void,
                _: *const c_void,
            ) -> u32 {
                CONTINUE
            }
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_http_filter_response_body(
                _: *mut c_void,
                _: *const c_void,
                _: bool,
            ) -> u32 {
                CONTINUE
            }
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_http_filter_response_trailers(
                _: *mut c_void,
                _: *const c_void,
            ) -> u32 {
                CONTINUE
            }
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_http_filter_http_callout_done(
                _: *mut c_void,
                _: *const c_void,
                _: u64,
                _: u32,
                _: *mut c_void,
                _: usize,
                _: *mut c_void,
                _: usize,
            ) {
            }
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_http_filter_http_stream_headers(
                _: *mut c_void,
                _: *const c_void,
                _: u64,
                _: *mut c_void,
                _: usize,
                _: bool,
            ) {
            }
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_http_filter_http_stream_data(
                _: *mut c_void,
                _: *const c_void,
                _: u64,
                _: *const c_void,
                _: usize,
                _: bool,
            ) {
            }
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_http_filter_http_stream_trailers(
                _: *mut c_void,
                _: *const c_void,
                _: u64,
                _: *mut c_void,
                _: usize,
            ) {
            }
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_http_filter_http_stream_complete(
                _: *mut c_void,
                _: *const c_void,
                _: u64,
            ) {
            }
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_http_filter_http_stream_reset(
                _: *mut c_void,
                _: *const c_void,
                _: u64,
                _: u32,
            ) {
            }
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_http_filter_downstream_above_write_buffer_high_watermark(
                _: *mut c_void,
                _: *const c_void,
            ) {
            }
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_http_filter_downstream_below_write_buffer_low_watermark(
                _: *mut c_void,
                _: *const c_void,
            ) {
            }
        };
    };
}
