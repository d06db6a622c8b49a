//! The hooks behind the exported functions: pointers to references, panics to results.

use crate::{
    ConfigHost, Flow, LogLevel, Module,
    callbacks::{self, callbacks},
    envoy::{HookedStream, Response},
    log,
    types::EnvoyBuffer,
};
use std::{
    cell::RefCell,
    ffi::{c_char, c_void},
    panic::{AssertUnwindSafe, catch_unwind},
    ptr,
    sync::Arc,
};

/// The version of the ABI that the module was written for. Other versions log it, and load the module.
const ABI_VERSION: &std::ffi::CStr = c"v0.2.0";

/// Envoy's status for a request that goes on, and for hooks that have no effect on the flow.
pub const CONTINUE: u32 = 0;
/// Envoy's status for a request that the filter has responded to.
const STOP: u32 = 1;
/// Envoy's status for a request that waits: its body is read until the buffer is full.
const STOP_ALL_AND_WATERMARK: u32 = 4;

/// Bytes of a hook's arguments.
#[repr(transparent)]
pub struct Buffer(EnvoyBuffer);

#[cfg(test)]
impl Buffer {
    pub(crate) fn of_test(bytes: &'static [u8]) -> Self {
        Self(EnvoyBuffer { ptr: bytes.as_ptr(), len: bytes.len() })
    }
}

/// The module's object of a stream. The running hook borrows it, so that a hook called within has no effect.
struct Stream<M: Module> {
    config: Arc<M::Config>,
    state: RefCell<M::Stream>,
}

/// Runs a hook's body; returns none after a panic, which is logged.
fn guarded<T>(hook: &str, body: impl FnOnce() -> T) -> Option<T> {
    // A panic leaves only the state of one stream, which the next hook replaces or ignores.
    let result = catch_unwind(AssertUnwindSafe(body));
    if result.is_err() {
        let line = format!("a panic in {hook} was caught; it cost one request");
        let _ = catch_unwind(AssertUnwindSafe(|| log(LogLevel::Error, &line)));
    }
    result.ok()
}

/// Loads the module; null if this Envoy lacks something that the module needs.
pub fn program_init() -> *const c_char {
    match guarded("on_program_init", callbacks::load) {
        Some(Ok(_)) => ABI_VERSION.as_ptr(),
        Some(Err(missing)) => {
            let line = format!("this Envoy has no {missing}; the module needs Envoy 1.38 or later");
            log(LogLevel::Error, &line);
            ptr::null()
        }
        None => ptr::null(),
    }
}

/// Makes a configuration. Null rejects it.
///
/// # Safety
///
/// Called by Envoy with the arguments of `on_http_filter_config_new`.
pub unsafe fn config_new<M: Module>(host: *mut c_void, config: Buffer) -> *const c_void {
    // SAFETY: the bytes of the configuration live while the hook runs.
    let bytes = unsafe { config.0.bytes() };
    let made = guarded("on_http_filter_config_new", || M::configure(&ConfigHost(host), bytes));
    boxed(made.map(|made| made.map(Arc::new)))
}

/// Makes a configuration of a route. Null rejects it.
///
/// # Safety
///
/// Called by Envoy with the arguments of `on_http_filter_per_route_config_new`.
pub unsafe fn route_new<M: Module>(config: Buffer) -> *const c_void {
    // SAFETY: the bytes of the configuration live while the hook runs.
    let bytes = unsafe { config.0.bytes() };
    let made = guarded("on_http_filter_per_route_config_new", || M::configure_route(bytes));
    boxed(made.map(|made| made.map(Arc::new)))
}

/// The result of a hook that makes an object; an error is logged.
fn boxed<T>(made: Option<Result<T, String>>) -> *const c_void {
    match made {
        Some(Ok(made)) => Box::into_raw(Box::new(made)).cast_const().cast(),
        Some(Err(error)) => {
            log(LogLevel::Error, &error);
            ptr::null()
        }
        None => ptr::null(),
    }
}

/// Drops a configuration, or a route's, that is no longer used.
///
/// # Safety
///
/// `config` was returned by [`config_new`] or [`route_new`] for a `C`, and is not used again.
pub unsafe fn config_destroy<C>(config: *const c_void) {
    // SAFETY: by the caller's promise.
    guarded("on_http_filter_config_destroy", || unsafe { free::<Arc<C>>(config) });
}

/// Drops an object that [`boxed`] made.
///
/// # Safety
///
/// `object` is null, or was made by [`boxed`] for a `T`, and is not used again.
unsafe fn free<T>(object: *const c_void) {
    if !object.is_null() {
        // SAFETY: by the caller's promise.
        drop(unsafe { Box::from_raw(object.cast_mut().cast::<T>()) });
    }
}

/// Publishes figures, as a thread has scheduled.
///
/// # Safety
///
/// Called by Envoy with the arguments of `on_http_filter_config_scheduled`.
pub unsafe fn config_scheduled<M: Module>(host: *mut c_void, config: *const c_void) {
    // SAFETY: Envoy calls this only while the configuration exists, whose pointer is that of `config_new`.
    let Some(config) = (unsafe { config.cast::<Arc<M::Config>>().as_ref() }) else { return };
    guarded("on_http_filter_config_scheduled", || M::publish(config, &ConfigHost(host)));
}

/// Begins a stream. Never null: versions up to 1.39 use the pointer unchecked.
///
/// # Safety
///
/// Called by Envoy with the arguments of `on_http_filter_new`.
pub unsafe fn stream_new<M: Module>(config: *const c_void) -> *const c_void {
    // SAFETY: Envoy has the configuration's pointer from `config_new`, and it lives while the hook runs.
    let config = unsafe { config.cast::<Arc<M::Config>>().as_ref() };
    let made = guarded("on_http_filter_new", || {
        let stream = Stream::<M> { config: Arc::clone(config?), state: RefCell::default() };
        Some(Box::into_raw(Box::new(stream)).cast_const().cast())
    });
    // A dangling pointer, which `stream_of` distinguishes by its value.
    made.flatten().unwrap_or(ptr::dangling::<u8>().cast())
}

/// The stream of a pointer that [`stream_new`] made; none if it failed.
///
/// # Safety
///
/// `stream` was returned by [`stream_new`] and is not destroyed while the reference is used.
unsafe fn stream_of<'s, M: Module>(stream: *const c_void) -> Option<&'s Stream<M>> {
    if stream == ptr::dangling::<u8>().cast() {
        return None;
    }
    // SAFETY: by the caller's promise; hooks of one stream run on one thread, and share the reference.
    unsafe { stream.cast::<Stream<M>>().as_ref() }
}

/// Ends the use of a stream.
///
/// # Safety
///
/// `stream` was returned by [`stream_new`], and is not used again.
pub unsafe fn stream_destroy<M: Module>(stream: *const c_void) {
    // SAFETY: by the caller's promise.
    let Some(object) = (unsafe { stream_of::<M>(stream) }) else { return };
    if object.state.try_borrow_mut().is_err() {
        // Destroyed within a hook that still uses it: leaked, since freeing it would leave that hook with a dangling reference.
        log(LogLevel::Warn, "a stream was destroyed within one of its hooks; its memory is not freed");
        return;
    }
    // SAFETY: no hook of the stream runs, and by the caller's promise none will.
    guarded("on_http_filter_destroy", || unsafe { free::<Stream<M>>(stream) });
}

/// Handles the headers of a request.
///
/// # Safety
///
/// Called by Envoy with the arguments of `on_http_filter_request_headers`.
pub unsafe fn request_headers<M: Module>(envoy: *mut c_void, stream: *const c_void) -> u32 {
    let body: HookBody<M, Flow> = |config, state, host| {
        // SAFETY: Envoy's pointer to an object of `route_new`, which lives as long as the route, and at least as long as the hook.
        let route = unsafe { host.route().cast::<Arc<M::Route>>().as_ref() };
        M::request_headers(config, route, state, host)
    };
    // SAFETY: by the caller's promise.
    match unsafe { flow::<M>("on_http_filter_request_headers", envoy, stream, body) } {
        Some(Flow::Continue) | None => CONTINUE,
        Some(Flow::Responded) => STOP,
        Some(Flow::Wait) => STOP_ALL_AND_WATERMARK,
    }
}

/// Resumes a waiting request.
///
/// # Safety
///
/// Called by Envoy with the arguments of `on_http_filter_scheduled`.
pub unsafe fn scheduled<M: Module>(envoy: *mut c_void, stream: *const c_void) {
    let resumed: HookBody<M, Flow> = |config, state, host| M::resumed(config, state, host);
    // SAFETY: by the caller's promise.
    let flow = unsafe { flow::<M>("on_http_filter_scheduled", envoy, stream, resumed) };
    if let (Some(Flow::Continue), Some(callbacks)) = (flow, callbacks()) {
        // The last step: it runs further hooks of the stream, and may end it.
        // SAFETY: the stream lives while the hook runs, and nothing of it is borrowed any more.
        unsafe { (callbacks.http_filter_continue_decoding)(envoy) };
    }
}

/// Runs a hook that decides whether the request goes on; after a panic, the failure mode decides. None if it was skipped. A response is
/// sent last: Envoy then runs further hooks of the stream, and may end it.
///
/// # Safety
///
/// `envoy` and `stream` are the pointers of a running hook of this stream. The hook does not use them afterwards if the request does not go
/// on.
unsafe fn flow<M: Module>(
    name: &str,
    envoy: *mut c_void,
    stream: *const c_void,
    body: HookBody<M, Flow>,
) -> Option<Flow> {
    let after_panic: HookBody<M, Flow> = |config, _, host| M::after_panic(config, host);
    // SAFETY: by the caller's promise.
    let mut hooked = unsafe { hook::<M, _>(name, envoy, stream, body) };
    if let Hooked::Panicked = hooked {
        // SAFETY: by the caller's promise.
        hooked = unsafe { hook::<M, _>("the failure mode", envoy, stream, after_panic) };
    }
    let (flow, response) = match hooked {
        Hooked::Done(flow, response) => (flow, response),
        Hooked::Skipped => return None,
        Hooked::Panicked => return Some(Flow::Continue),
    };
    if let (Some(response), Some(callbacks)) = (response, callbacks()) {
        // SAFETY: the stream lives, nothing of it is borrowed any more, and by the caller's promise it is not used afterwards.
        unsafe { response.send(envoy, callbacks) };
    }
    Some(flow)
}

/// Handles the headers of a response, before they are sent.
///
/// # Safety
///
/// Called by Envoy with the arguments of `on_http_filter_response_headers`.
pub unsafe fn response_headers<M: Module>(envoy: *mut c_void, stream: *const c_void) -> u32 {
    let body: HookBody<M, ()> = |config, state, host| M::response_headers(config, state, host);
    // SAFETY: by the caller's promise.
    unsafe { hook::<M, _>("on_http_filter_response_headers", envoy, stream, body) };
    CONTINUE
}

/// Handles the end of a stream.
///
/// # Safety
///
/// Called by Envoy with the arguments of `on_http_filter_stream_complete`.
pub unsafe fn stream_complete<M: Module>(envoy: *mut c_void, stream: *const c_void) {
    let body: HookBody<M, ()> = |config, state, host| M::complete(config, state, host);
    // SAFETY: by the caller's promise.
    unsafe { hook::<M, _>("on_http_filter_stream_complete", envoy, stream, body) };
}

/// The body of a stream's hook.
type HookBody<M, T> = fn(&<M as Module>::Config, &mut <M as Module>::Stream, &mut HookedStream<'_>) -> T;

/// The end of a hook of a stream.
enum Hooked<T> {
    /// Done, with the response that it made.
    Done(T, Option<Response>),
    /// Called within another hook of the stream, or on a stream that could not be made.
    Skipped,
    Panicked,
}

/// Runs a hook of a stream.
///
/// # Safety
///
/// `envoy` and `stream` are the pointers of a hook of this stream that is running.
unsafe fn hook<M: Module, T>(
    name: &str,
    envoy: *mut c_void,
    stream: *const c_void,
    body: HookBody<M, T>,
) -> Hooked<T> {
    // SAFETY: by the caller's promise; a stream destroyed within the hook is not freed while its state is borrowed.
    let Some(stream) = (unsafe { stream_of::<M>(stream) }) else { return Hooked::Skipped };
    let (Some(callbacks), Ok(mut state)) = (callbacks(), stream.state.try_borrow_mut()) else {
        return Hooked::Skipped;
    };
    let done = guarded(name, || {
        // SAFETY: the hook runs until `body` has returned.
        let mut host = unsafe { HookedStream::new(envoy, callbacks) };
        let result = body(&stream.config, &mut state, &mut host);
        (result, host.take_response())
    });
    done.map_or(Hooked::Panicked, |(result, response)| Hooked::Done(result, response))
}
