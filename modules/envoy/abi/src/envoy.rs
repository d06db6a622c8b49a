//! A stream of Envoy as a [`Host`].

use crate::{
    callbacks::Callbacks,
    host::{Attribute, Counter, Headers, Host, MetadataSource, RoutePointer, Scheduler, Waker},
    types::{EnvoyBuffer, EnvoyStream, ModuleBuffer, ModuleHeader},
};
use std::{marker::PhantomData, ptr};

/// A stream of Envoy during one hook.
pub(crate) struct HookedStream<'h> {
    stream: EnvoyStream,
    callbacks: &'static Callbacks,
    hook: PhantomData<&'h ()>,
}

impl HookedStream<'_> {
    /// The stream.
    ///
    /// # Safety
    ///
    /// `stream` is Envoy's pointer of a hook that runs for as long as this value exists, on this thread.
    pub(crate) unsafe fn new(stream: EnvoyStream, callbacks: &'static Callbacks) -> Self {
        Self { stream, callbacks, hook: PhantomData }
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

impl Host for HookedStream<'_> {
    fn header(&self, of: Headers, name: &str, index: usize) -> (Option<&[u8]>, usize) {
        let (mut count, name) = (0, ModuleBuffer::of(name.as_bytes()));
        let get = self.callbacks.http_get_header;
        // SAFETY: the stream lives while the hook runs; the name and both results while the call does.
        let value = self.lent(|out| unsafe { get(self.stream, of as u32, name, out, index, &raw mut count) });
        (value, count)
    }

    fn text(&self, attribute: Attribute) -> Option<&[u8]> {
        let get = self.callbacks.http_filter_get_attribute_string;
        // SAFETY: the stream lives while the hook runs, the result while the call does.
        self.lent(|out| unsafe { get(self.stream, attribute as u32, out) })
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
        let mut headers: Vec<ModuleHeader> =
            headers.iter().map(|(name, value)| ModuleHeader::of(name, value)).collect();
        let list = if headers.is_empty() { ptr::null_mut() } else { headers.as_mut_ptr() };
        let (body, details) = (ModuleBuffer::of(body), ModuleBuffer::of(details.as_bytes()));
        // SAFETY: the stream lives while the hook runs; Envoy copies headers, body and details before it returns.
        unsafe {
            (self.callbacks.http_send_response)(
                self.stream,
                status.into(),
                list,
                headers.len(),
                body,
                details,
            );
        }
    }

    fn respond_with(&mut self, headers: &[(&str, &[u8])]) {
        let mut headers: Vec<ModuleHeader> =
            headers.iter().map(|(name, value)| ModuleHeader::of(name, value)).collect();
        let (list, count) = (headers.as_mut_ptr(), headers.len());
        // SAFETY: the stream lives while the hook runs; Envoy copies the headers before it returns.
        unsafe { (self.callbacks.http_send_response_headers)(self.stream, list, count, true) };
    }

    fn count(&mut self, counter: Counter, labels: &[&str], by: u64) {
        let mut labels: Vec<ModuleBuffer> =
            labels.iter().map(|label| ModuleBuffer::of(label.as_bytes())).collect();
        let (list, count) = (labels.as_mut_ptr(), labels.len());
        // SAFETY: the stream lives while the hook runs, the labels while the call does.
        unsafe { (self.callbacks.http_filter_increment_counter)(self.stream, counter.0, list, count, by) };
    }
    fn waker(&self) -> Option<Waker> {
        // SAFETY: the stream lives while the hook runs.
        let made = unsafe { (self.callbacks.http_filter_scheduler_new)(self.stream) };
        Scheduler::of(made, true).map(Waker::of_stream)
    }
}
