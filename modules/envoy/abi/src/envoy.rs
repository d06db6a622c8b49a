//! A stream of Envoy as a [`Host`].

use crate::{
    callbacks::Callbacks,
    host::{Counter, Host, RoutePointer, Scheduler, Waker},
    types::{EnvoyBuffer, EnvoyStream, ModuleBuffer, ModuleHeader},
};
use std::{marker::PhantomData, ptr};
use tidegate_envoy_config::{Headers, MetadataSource, Stream};

/// The ABI's number of the attribute that is the client's address with its port.
const SOURCE_ADDRESS: u32 = 24;

/// A stream of Envoy during one hook.
pub(crate) struct HookedStream<'h> {
    stream: EnvoyStream,
    callbacks: &'static Callbacks,
    response: Option<Response>,
    hook: PhantomData<&'h ()>,
}

/// A response instead of the upstream's. While Envoy sends it, Envoy may run further hooks of the stream, and end the stream: so it is sent
/// only once the hook that made it is done.
pub(crate) struct Response {
    headers: Vec<(String, Vec<u8>)>,
    kind: Kind,
}

enum Kind {
    Local {
        status: u16,
        body: Vec<u8>,
        details: String,
    },
    /// `:status` is among the headers.
    Headers,
}

impl Response {
    fn new(headers: &[(&str, &[u8])], kind: Kind) -> Self {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), value.to_vec())).collect();
        Self { headers, kind }
    }

    /// Responds.
    ///
    /// # Safety
    ///
    /// `stream` is Envoy's pointer of a hook that runs on this thread, and which uses nothing of the stream afterwards.
    pub(crate) unsafe fn send(&self, stream: EnvoyStream, callbacks: &Callbacks) {
        let mut headers: Vec<ModuleHeader> =
            self.headers.iter().map(|(name, value)| ModuleHeader::of(name, value)).collect();
        let list = if headers.is_empty() { ptr::null_mut() } else { headers.as_mut_ptr() };
        match &self.kind {
            Kind::Local { status, body, details } => {
                let (body, details) = (ModuleBuffer::of(body), ModuleBuffer::of(details.as_bytes()));
                let (send, status) = (callbacks.http_send_response, (*status).into());
                // SAFETY: the stream lives when the call begins; Envoy copies headers, body and details before it returns.
                unsafe { send(stream, status, list, headers.len(), body, details) };
            }
            Kind::Headers => {
                // SAFETY: the stream lives when the call begins; Envoy copies the headers before it returns.
                unsafe { (callbacks.http_send_response_headers)(stream, list, headers.len(), true) };
            }
        }
    }
}

impl HookedStream<'_> {
    /// The stream.
    ///
    /// # Safety
    ///
    /// `stream` is Envoy's pointer of a hook that runs while this value exists, on this thread.
    pub(crate) unsafe fn new(stream: EnvoyStream, callbacks: &'static Callbacks) -> Self {
        Self { stream, callbacks, response: None, hook: PhantomData }
    }

    /// The response that the hook has made.
    pub(crate) fn take_response(&mut self) -> Option<Response> {
        self.response.take()
    }

    /// The module's configuration of the stream's route; null if it has none.
    pub(crate) fn route(&self) -> RoutePointer {
        // SAFETY: the stream lives while the hook runs.
        unsafe { (self.callbacks.get_most_specific_route_config)(self.stream) }
    }

    /// Bytes that a getter has written to a buffer.
    fn lent(&self, get: impl FnOnce(*mut EnvoyBuffer) -> bool) -> Option<&[u8]> {
        let mut buffer = EnvoyBuffer::NONE;
        let is_there = get(&raw mut buffer);
        // SAFETY: written by Envoy; borrowed from `self`, which setters borrow exclusively, and which ends with the hook.
        is_there.then(|| unsafe { buffer.bytes() })
    }
}

impl Stream for HookedStream<'_> {
    fn header(&self, of: Headers, name: &str, index: usize) -> (Option<&[u8]>, usize) {
        let (mut count, name) = (0, ModuleBuffer::of(name.as_bytes()));
        let get = self.callbacks.http_get_header;
        // SAFETY: the stream lives while the hook runs; the name and both results while the call does.
        let value = self.lent(|out| unsafe { get(self.stream, of as u32, name, out, index, &raw mut count) });
        (value, count)
    }

    fn client(&self) -> Option<&[u8]> {
        let get = self.callbacks.http_filter_get_attribute_string;
        // SAFETY: the stream lives while the hook runs, the result while the call does.
        self.lent(|out| unsafe { get(self.stream, SOURCE_ADDRESS, out) })
    }

    fn metadata_text(&self, source: MetadataSource, namespace: &str, key: &str) -> Option<&[u8]> {
        let (namespace, key) = (ModuleBuffer::of(namespace.as_bytes()), ModuleBuffer::of(key.as_bytes()));
        let get = self.callbacks.http_get_metadata_string;
        // SAFETY: the stream lives while the hook runs; the texts and the result while the call does.
        self.lent(|out| unsafe { get(self.stream, source as u32, namespace, key, out) })
    }

    fn metadata_number(&self, source: MetadataSource, namespace: &str, key: &str) -> Option<f64> {
        let (namespace, key) = (ModuleBuffer::of(namespace.as_bytes()), ModuleBuffer::of(key.as_bytes()));
        let mut number = 0.0;
        let get = self.callbacks.http_get_metadata_number;
        // SAFETY: the stream lives while the hook runs; the texts and the result while the call does.
        unsafe { get(self.stream, source as u32, namespace, key, &raw mut number) }.then_some(number)
    }

    fn cluster(&self) -> Option<&[u8]> {
        // SAFETY: the stream lives while the hook runs, the result while the call does.
        self.lent(|out| unsafe { (self.callbacks.http_get_cluster_name)(self.stream, out) })
    }
}

impl Host for HookedStream<'_> {
    fn set_metadata_text(&mut self, namespace: &str, key: &str, value: &str) {
        let [namespace, key, value] = [namespace, key, value].map(|text| ModuleBuffer::of(text.as_bytes()));
        // SAFETY: the stream lives while the hook runs; Envoy copies the texts.
        unsafe { (self.callbacks.http_set_dynamic_metadata_string)(self.stream, namespace, key, value) };
    }

    fn set_metadata_number(&mut self, namespace: &str, key: &str, value: f64) {
        let [namespace, key] = [namespace, key].map(|text| ModuleBuffer::of(text.as_bytes()));
        // SAFETY: the stream lives while the hook runs; Envoy copies the texts.
        unsafe { (self.callbacks.http_set_dynamic_metadata_number)(self.stream, namespace, key, value) };
    }

    fn filter_state(&self, key: &str) -> Option<&[u8]> {
        let (key, get) = (ModuleBuffer::of(key.as_bytes()), self.callbacks.http_get_filter_state_typed);
        // SAFETY: the stream lives while the hook runs; the key and the result while the call does.
        self.lent(|out| unsafe { get(self.stream, key, out) })
    }

    fn runtime(&self, key: &str) -> Option<u64> {
        /// No percentage that anyone would configure.
        const UNSET: u64 = u64::MAX;
        let get = self.callbacks.get_runtime_int?;
        // SAFETY: the key lives while the call does.
        let number = unsafe { get(ModuleBuffer::of(key.as_bytes()), UNSET) };
        (number != UNSET).then_some(number)
    }

    fn add_header(&mut self, to: Headers, name: &str, value: &[u8]) {
        let (name, value) = (ModuleBuffer::of(name.as_bytes()), ModuleBuffer::of(value));
        // SAFETY: the stream lives while the hook runs; Envoy copies the texts.
        unsafe { (self.callbacks.http_add_header)(self.stream, to as u32, name, value) };
    }

    fn respond(&mut self, status: u16, headers: &[(&str, &[u8])], body: &[u8], details: &str) {
        let kind = Kind::Local { status, body: body.to_vec(), details: details.to_owned() };
        self.response = Some(Response::new(headers, kind));
    }

    fn respond_with(&mut self, headers: &[(&str, &[u8])]) {
        self.response = Some(Response::new(headers, Kind::Headers));
    }

    fn count(&mut self, counter: Counter, labels: &[&str], by: u64) {
        let mut labels: Vec<ModuleBuffer> =
            labels.iter().map(|label| ModuleBuffer::of(label.as_bytes())).collect();
        let (list, count) = (labels.as_mut_ptr(), labels.len());
        // SAFETY: the stream lives while the hook runs, the labels while the call does.
        unsafe { (self.callbacks.http_filter_increment_counter)(self.stream, counter.0, list, count, by) };
    }

    fn waker(&self) -> Option<Waker> {
        let all = self.callbacks;
        // SAFETY: the stream lives while the hook runs.
        let scheduler = unsafe { (all.http_filter_scheduler_new)(self.stream) };
        let (commit, delete) = (all.http_filter_scheduler_commit, all.http_filter_scheduler_delete);
        (!scheduler.is_null()).then(|| Waker::of_stream(Scheduler { scheduler, commit, delete }))
    }
}
