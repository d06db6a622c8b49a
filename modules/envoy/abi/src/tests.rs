//! The hooks as Envoy calls them, with callbacks of a stand-in.

use crate::{
    ConfigHost, Flow, Host, Module,
    callbacks::{Callbacks, install},
    hooks::{self, Buffer},
    types::{EnvoyBuffer, EnvoyScheduler, EnvoyStream, ModuleBuffer, ModuleHeader},
};
use std::{
    cell::{Cell, RefCell},
    ffi::{CStr, c_void},
    ptr,
    sync::{Arc, atomic::AtomicUsize, atomic::Ordering},
};
use tidegate_envoy_config::Headers;

/// The state of the stand-in for Envoy for one stream; hooks get a pointer to it.
#[derive(Default)]
struct Stream {
    header: Vec<u8>,
    route: Cell<*const c_void>,
    added: RefCell<Vec<String>>,
    responses: RefCell<Vec<String>>,
    /// Number of hooks that the module has scheduled.
    scheduled: Cell<u32>,
    /// The module's stream, to be called or destroyed while the module responds.
    own: Cell<*const c_void>,
    within: Cell<Within>,
}

/// Action of the stand-in while the module responds.
#[derive(Clone, Copy, Default, PartialEq)]
enum Within {
    #[default]
    Nothing,
    ResponseHook,
    Destroy,
}

/// The text of a buffer that the module lends.
fn text(buffer: ModuleBuffer) -> String {
    // SAFETY: the module lends it for the call that this runs in.
    let bytes = unsafe { std::slice::from_raw_parts(buffer.ptr, buffer.len) };
    String::from_utf8_lossy(bytes).into_owned()
}

/// The stream of a pointer that this test has made.
fn stream<'s>(pointer: EnvoyStream) -> &'s Stream {
    // SAFETY: every test passes a pointer to a stream that lives to its end.
    unsafe { &*pointer.cast::<Stream>() }
}

unsafe extern "C" fn get_header(
    envoy: EnvoyStream,
    _: u32,
    _: ModuleBuffer,
    out: *mut EnvoyBuffer,
    index: usize,
    count: *mut usize,
) -> bool {
    let header = &stream(envoy).header;
    // SAFETY: both are places of the caller.
    unsafe {
        *count = 1;
        *out = EnvoyBuffer { ptr: header.as_ptr(), len: header.len() };
    }
    index == 0
}

unsafe extern "C" fn add_header(envoy: EnvoyStream, _: u32, name: ModuleBuffer, value: ModuleBuffer) -> bool {
    stream(envoy).added.borrow_mut().push(format!("{}: {}", text(name), text(value)));
    true
}

unsafe extern "C" fn send_response_headers(
    envoy: EnvoyStream,
    _: *mut ModuleHeader,
    count: usize,
    end: bool,
) {
    assert!(end && count > 0);
    let empty = || ModuleBuffer::of(b"");
    // SAFETY: the pointer of this call, no headers and empty texts.
    unsafe { send_response(envoy, 0, ptr::null_mut(), 0, empty(), empty()) };
}

unsafe extern "C" fn send_response(
    envoy: EnvoyStream,
    status: u32,
    headers: *mut ModuleHeader,
    count: usize,
    body: ModuleBuffer,
    details: ModuleBuffer,
) {
    let stream = stream(envoy);
    assert_eq!(headers.is_null(), count == 0);
    stream.responses.borrow_mut().push(format!("{status} {count} {} {}", text(body), text(details)));
    match stream.within.get() {
        Within::Nothing => {}
        // SAFETY: the pointers of this stream's hooks.
        Within::ResponseHook => unsafe {
            hooks::response_headers::<TestModule>(envoy, stream.own.get());
        },
        // SAFETY: the module's stream, which is not destroyed again.
        Within::Destroy => unsafe { hooks::stream_destroy::<TestModule>(stream.own.get()) },
    }
}

unsafe extern "C" fn scheduler_new(envoy: EnvoyStream) -> EnvoyScheduler {
    envoy
}

unsafe extern "C" fn scheduler_commit(scheduler: EnvoyScheduler, _: u64) {
    let stream = stream(scheduler);
    stream.scheduled.set(stream.scheduled.get() + 1);
}

unsafe extern "C" fn scheduler_delete(_: EnvoyScheduler) {}

/// Goes on: the upstream responds at once.
unsafe extern "C" fn continue_decoding(envoy: EnvoyStream) {
    // SAFETY: the pointers of this stream's hooks.
    unsafe { hooks::response_headers::<TestModule>(envoy, stream(envoy).own.get()) };
}

unsafe extern "C" fn get_route(envoy: EnvoyStream) -> *const c_void {
    stream(envoy).route.get()
}

unsafe extern "C" fn no_text(_: EnvoyStream, _: u32, _: *mut EnvoyBuffer) -> bool {
    false
}

unsafe extern "C" fn write_log(_: u32, _: ModuleBuffer) {}

/// The callbacks of the stand-in. Callbacks that no test reaches have any address but null.
fn find(name: &CStr) -> *mut c_void {
    match name.to_str().unwrap().trim_start_matches("envoy_dynamic_module_callback_") {
        "http_get_header" => get_header as *mut c_void,
        "http_add_header" => add_header as *mut c_void,
        "http_send_response" => send_response as *mut c_void,
        "http_send_response_headers" => send_response_headers as *mut c_void,
        "get_most_specific_route_config" => get_route as *mut c_void,
        "http_filter_get_attribute_string" => no_text as *mut c_void,
        "http_filter_scheduler_new" => scheduler_new as *mut c_void,
        "http_filter_scheduler_commit" => scheduler_commit as *mut c_void,
        "http_filter_scheduler_delete" => scheduler_delete as *mut c_void,
        "http_filter_continue_decoding" => continue_decoding as *mut c_void,
        "log" => write_log as *mut c_void,
        "get_runtime_int" => ptr::null_mut(),
        _ => no_text as *mut c_void,
    }
}

fn use_stand_in() {
    // SAFETY: the callbacks that tests reach have the type of their name, and the others are never called.
    let Ok(found) = (unsafe { Callbacks::find(find) }) else { panic!("a callback is missing") };
    assert!(found.get_runtime_int.is_none(), "an optional callback may be missing");
    install(found);
}

/// A module that follows the request's header.
struct TestModule;

#[derive(Default)]
struct TestStream(Vec<String>);

/// Number of streams that were freed.
static FREED: AtomicUsize = AtomicUsize::new(0);

impl Drop for TestStream {
    fn drop(&mut self) {
        FREED.fetch_add(1, Ordering::Relaxed);
    }
}

impl Module for TestModule {
    type Config = Arc<AtomicUsize>;
    type Route = String;
    type Stream = TestStream;

    fn configure(_: &ConfigHost, bytes: &[u8]) -> Result<Self::Config, String> {
        match bytes {
            b"panic" => panic!("as configured"),
            b"bad" => Err("bad".to_owned()),
            _ => Ok(Arc::default()),
        }
    }

    fn configure_route(bytes: &[u8]) -> Result<String, String> {
        String::from_utf8(bytes.to_owned()).map_err(|error| error.to_string())
    }

    fn publish(_: &Self::Config, _: &ConfigHost) {}

    fn request_headers(
        config: &Self::Config,
        route: Option<&Arc<String>>,
        state: &mut TestStream,
        host: &mut dyn Host,
    ) -> Flow {
        config.fetch_add(1, Ordering::Relaxed);
        assert_eq!(host.client(), None);
        state.0.extend(route.map(|route| route.to_string()));
        let (header, _) = host.header(Headers::Request, "x", 0);
        match header.unwrap_or_default() {
            b"panic" => panic!("as requested"),
            b"wait" | b"wait and panic" | b"wait and deny" => {
                state.0.push("waited".to_owned());
                host.waker().expect("a stream of a stand-in has one").wake();
                Flow::Wait
            }
            b"deny" => {
                host.respond(429, &[("a", b"b")], b"body", "details");
                state.0.push("denied".to_owned());
                Flow::Responded
            }
            b"deny by headers" => {
                host.respond_with(&[(":status", b"200")]);
                state.0.push("denied".to_owned());
                Flow::Responded
            }
            other => {
                state.0.push(String::from_utf8_lossy(other).into_owned());
                Flow::Continue
            }
        }
    }

    fn resumed(_: &Self::Config, state: &mut TestStream, host: &mut dyn Host) -> Flow {
        let header = host.header(Headers::Request, "x", 0).0;
        assert_ne!(header, Some(&b"wait and panic"[..]), "as requested");
        if header == Some(b"wait and deny") {
            host.respond(429, &[], b"", "");
            state.0 = vec!["route".to_owned(), "denied".to_owned()];
            return Flow::Responded;
        }
        state.0.push("resumed".to_owned());
        Flow::Continue
    }

    fn response_headers(_: &Self::Config, state: &mut TestStream, host: &mut dyn Host) {
        for value in std::mem::take(&mut state.0) {
            host.add_header(Headers::Response, "seen", value.as_bytes());
        }
    }

    fn complete(_: &Self::Config, _: &mut TestStream, _: &mut dyn Host) {}

    fn after_panic(_: &Self::Config, host: &mut dyn Host) -> Flow {
        host.respond(500, &[], b"", "panicked");
        Flow::Responded
    }
}

fn buffer(bytes: &'static [u8]) -> Buffer {
    Buffer::of_test(bytes)
}

/// Runs hooks of a stream with a header; returns what the stand-in recorded.
fn run(header: &str, within: Within) -> (u32, Vec<String>, Vec<String>) {
    use_stand_in();
    let mut envoy = Stream { header: header.into(), within: Cell::new(within), ..Stream::default() };
    let pointer: *mut c_void = (&raw mut envoy).cast();
    // SAFETY: as Envoy calls the hooks, with pointers that they returned, in its order.
    let status = unsafe {
        let config = hooks::config_new::<TestModule>(ptr::null_mut(), buffer(b""));
        let route = hooks::route_new::<TestModule>(buffer(b"route"));
        assert!(!config.is_null() && !route.is_null());
        let own = hooks::stream_new::<TestModule>(config);
        let envoy = &*pointer.cast::<Stream>();
        envoy.own.set(own);
        envoy.route.set(route);
        let status = hooks::request_headers::<TestModule>(pointer, own);
        if within != Within::Destroy {
            (0..envoy.scheduled.get()).for_each(|_| hooks::scheduled::<TestModule>(pointer, own));
            hooks::response_headers::<TestModule>(pointer, own);
            hooks::stream_complete::<TestModule>(pointer, own);
            hooks::stream_destroy::<TestModule>(own);
        }
        hooks::config_destroy::<<TestModule as Module>::Route>(route);
        hooks::config_destroy::<<TestModule as Module>::Config>(config);
        status
    };
    (status, envoy.responses.take(), envoy.added.take())
}

#[test]
fn a_stream_keeps_its_state_from_hook_to_hook() {
    let (status, responses, added) = run("hello", Within::Nothing);
    assert_eq!((status, responses), (0, vec![]));
    assert_eq!(added, ["seen: route", "seen: hello"]);
}

#[test]
fn a_response_stops_the_request() {
    let (status, responses, _) = run("deny", Within::Nothing);
    assert_eq!((status, responses), (1, vec!["429 1 body details".to_owned()]));
}

#[test]
fn a_panic_costs_one_request() {
    let (status, responses, added) = run("panic", Within::Nothing);
    assert_eq!((status, responses), (1, vec!["500 0  panicked".to_owned()]));
    assert_eq!(added, ["seen: route"], "later hooks of the stream run");
    assert_eq!(run("hello", Within::Nothing).0, 0);
}

#[test]
fn a_request_that_waits_goes_on_when_it_is_woken() {
    let (status, responses, added) = run("wait", Within::Nothing);
    assert_eq!((status, responses), (4, vec![]));
    let expected = ["seen: route", "seen: waited", "seen: resumed"];
    assert_eq!(added, expected, "by hooks that run while the request goes on");
}

#[test]
fn a_panic_after_a_wait_costs_one_request() {
    let (status, responses, _) = run("wait and panic", Within::Nothing);
    assert_eq!((status, responses), (4, vec!["500 0  panicked".to_owned()]));
}

#[test]
fn hooks_that_envoy_calls_while_it_takes_a_response_run() {
    for header in ["deny", "deny by headers", "wait and deny"] {
        let (_, _, added) = run(header, Within::ResponseHook);
        assert_eq!(added[..2], ["seen: route", "seen: denied"], "{header}");
        assert_eq!(added.len(), 2, "by that hook only: {header}");
    }
}

#[test]
fn a_stream_that_ends_while_envoy_takes_a_response_is_freed() {
    for header in ["deny", "deny by headers"] {
        let freed = FREED.load(Ordering::Relaxed);
        let (status, responses, _) = run(header, Within::Destroy);
        assert_eq!((status, responses.len()), (1, 1));
        assert!(FREED.load(Ordering::Relaxed) > freed);
    }
}

#[test]
fn a_configuration_that_fails_is_null() {
    use_stand_in();
    for bytes in [&b"bad"[..], b"panic"] {
        // SAFETY: as Envoy calls the hook.
        assert!(unsafe { hooks::config_new::<TestModule>(ptr::null_mut(), buffer(bytes)) }.is_null());
    }
}

#[test]
fn a_stream_that_could_not_be_made_lets_requests_pass() {
    use_stand_in();
    let mut envoy = Stream { header: b"deny".to_vec(), ..Stream::default() };
    let pointer: *mut c_void = (&raw mut envoy).cast();
    // SAFETY: as Envoy calls the hooks; without a configuration no stream is made.
    unsafe {
        let own = hooks::stream_new::<TestModule>(ptr::null());
        assert!(!own.is_null());
        assert_eq!(hooks::request_headers::<TestModule>(pointer, own), 0);
        hooks::stream_destroy::<TestModule>(own);
    }
}

#[test]
fn a_missing_callback_is_named() {
    // SAFETY: no callback of the result is called.
    let found = unsafe {
        Callbacks::find(|name| {
            if name == c"envoy_dynamic_module_callback_log" { ptr::null_mut() } else { find(name) }
        })
    };
    assert_eq!(found.err(), Some("envoy_dynamic_module_callback_log"));
}
