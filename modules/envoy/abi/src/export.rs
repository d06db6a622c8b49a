//! The exported functions, by the names under which Envoy finds them.

/// Exports the hooks of a [`Module`](crate::Module) under the names by which Envoy finds them.
#[macro_export]
macro_rules! export_module {
    ($module:ty) => {
        const _: () = {
            use ::std::ffi::{c_char, c_void};
            use $crate::hooks::{self, Buffer, CONTINUE};

            $crate::export_hooks! {
                fn envoy_dynamic_module_on_program_init() -> *const c_char {
                    hooks::program_init()
                }
                fn envoy_dynamic_module_on_http_filter_config_new(host: *mut c_void, _name: Buffer, config: Buffer) -> *const c_void {
                    hooks::config_new::<$module>(host, config)
                }
                fn envoy_dynamic_module_on_http_filter_config_destroy(config: *const c_void) {
                    hooks::config_destroy::<<$module as $crate::Module>::Config>(config);
                }
                fn envoy_dynamic_module_on_http_filter_config_scheduled(host: *mut c_void, config: *const c_void, _event: u64) {
                    hooks::config_scheduled::<$module>(host, config);
                }
                fn envoy_dynamic_module_on_http_filter_per_route_config_new(_name: Buffer, config: Buffer) -> *const c_void {
                    hooks::route_new::<$module>(config)
                }
                fn envoy_dynamic_module_on_http_filter_per_route_config_destroy(route: *const c_void) {
                    hooks::config_destroy::<<$module as $crate::Module>::Route>(route);
                }
                fn envoy_dynamic_module_on_http_filter_new(config: *const c_void, _envoy: *mut c_void) -> *const c_void {
                    hooks::stream_new::<$module>(config)
                }
                fn envoy_dynamic_module_on_http_filter_destroy(stream: *const c_void) {
                    hooks::stream_destroy::<$module>(stream);
                }
                fn envoy_dynamic_module_on_http_filter_request_headers(envoy: *mut c_void, stream: *const c_void, _is_end: bool) -> u32 {
                    hooks::request_headers::<$module>(envoy, stream)
                }
                fn envoy_dynamic_module_on_http_filter_response_headers(envoy: *mut c_void, stream: *const c_void, _is_end: bool) -> u32 {
                    hooks::response_headers::<$module>(envoy, stream)
                }
                fn envoy_dynamic_module_on_http_filter_stream_complete(envoy: *mut c_void, stream: *const c_void) {
                    hooks::stream_complete::<$module>(envoy, stream);
                }
                fn envoy_dynamic_module_on_http_filter_scheduled(envoy: *mut c_void, stream: *const c_void, _event: u64) {
                    hooks::scheduled::<$module>(envoy, stream);
                }

                // Mandatory, and of no use to this filter: bodies and trailers pass, and it makes no calls of its own.
                fn envoy_dynamic_module_on_http_filter_request_body(_: *mut c_void, _: *const c_void, _: bool) -> u32 { CONTINUE }
                fn envoy_dynamic_module_on_http_filter_request_trailers(_: *mut c_void, _: *const c_void) -> u32 { CONTINUE }
                fn envoy_dynamic_module_on_http_filter_response_body(_: *mut c_void, _: *const c_void, _: bool) -> u32 { CONTINUE }
                fn envoy_dynamic_module_on_http_filter_response_trailers(_: *mut c_void, _: *const c_void) -> u32 { CONTINUE }
                fn envoy_dynamic_module_on_http_filter_http_callout_done(
                    _: *mut c_void, _: *const c_void, _: u64, _: u32, _: *mut c_void, _: usize, _: *mut c_void, _: usize,
                ) {}
                fn envoy_dynamic_module_on_http_filter_http_stream_headers(
                    _: *mut c_void, _: *const c_void, _: u64, _: *mut c_void, _: usize, _: bool,
                ) {}
                fn envoy_dynamic_module_on_http_filter_http_stream_data(
                    _: *mut c_void, _: *const c_void, _: u64, _: *const c_void, _: usize, _: bool,
                ) {}
                fn envoy_dynamic_module_on_http_filter_http_stream_trailers(
                    _: *mut c_void, _: *const c_void, _: u64, _: *mut c_void, _: usize,
                ) {}
                fn envoy_dynamic_module_on_http_filter_http_stream_complete(_: *mut c_void, _: *const c_void, _: u64) {}
                fn envoy_dynamic_module_on_http_filter_http_stream_reset(_: *mut c_void, _: *const c_void, _: u64, _: u32) {}
                fn envoy_dynamic_module_on_http_filter_downstream_above_write_buffer_high_watermark(_: *mut c_void, _: *const c_void) {}
                fn envoy_dynamic_module_on_http_filter_downstream_below_write_buffer_low_watermark(_: *mut c_void, _: *const c_void) {}
            }
        };
    };
}

/// Exports functions that only Envoy calls.
#[doc(hidden)]
#[macro_export]
macro_rules! export_hooks {
    ($(fn $name:ident($($argument:tt: $type:ty),* $(,)?) $(-> $result:ty)? $body:block)*) => {
        $(
            #[unsafe(no_mangle)]
            #[allow(unused_unsafe, reason = "some do nothing that is unsafe")]
            unsafe extern "C" fn $name($($argument: $type),*) $(-> $result)? {
                // SAFETY: called by Envoy, with the arguments of the hook of this name.
                unsafe { $body }
            }
        )*
    };
}
