//! What Envoy offers to a filter during a hook.

use crate::{
    callbacks::callbacks,
    types::{EnvoyConfig, EnvoyScheduler, METRICS_OK, ModuleBuffer},
};
use std::{ffi::c_void, ptr};
use tidegate_envoy_config::{Headers, Stream};

/// A counter that a configuration has defined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counter(pub(crate) usize);

impl Counter {
    /// A counter of a stand-in for Envoy.
    pub fn of_test(number: usize) -> Self {
        Self(number)
    }
}

/// A stream of Envoy during a hook, which the actions of `rate_limits` read. Bytes are as they arrived: Latin-1 at best, never checked.
pub trait Host: Stream {
    /// Sets a text in dynamic metadata, below one key of a namespace.
    fn set_metadata_text(&mut self, namespace: &str, key: &str, value: &str);
    /// Sets a number in dynamic metadata, below one key of a namespace.
    fn set_metadata_number(&mut self, namespace: &str, key: &str, value: f64);
    /// An object of the filter state as text.
    fn filter_state(&self, key: &str) -> Option<&[u8]>;
    /// A whole number in runtime; none if it is not set, or Envoy offers no runtime to modules (before 1.40).
    fn runtime(&self, key: &str) -> Option<u64>;
    /// Adds a header.
    fn add_header(&mut self, to: Headers, name: &str, value: &[u8]);
    /// Responds instead of the upstream.
    fn respond(&mut self, status: u16, headers: &[(&str, &[u8])], body: &[u8], details: &str);
    /// Responds instead of the upstream with these headers, `:status` among them, and no body.
    fn respond_with(&mut self, headers: &[(&str, &[u8])]);
    /// Adds to a counter, with a value for each of its labels.
    fn count(&mut self, counter: Counter, labels: &[&str], by: u64);
    /// A handle by which any thread can have [`Module::resumed`](crate::Module::resumed) called for this stream.
    fn waker(&self) -> Option<Waker>;
}

/// Schedules a hook of one stream on its worker. Must be dropped before the worker ends, at the latest with the stream.
pub struct Waker(Wakes);

enum Wakes {
    Stream(Scheduler),
    Test(Box<dyn Fn() + Send + Sync>),
}

impl Waker {
    /// A handle of a stand-in for Envoy.
    pub fn of_test(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Wakes::Test(Box::new(wake)))
    }

    pub(crate) fn of_stream(scheduler: Scheduler) -> Self {
        Self(Wakes::Stream(scheduler))
    }

    /// Schedules the hook.
    pub fn wake(&self) {
        match &self.0 {
            Wakes::Stream(scheduler) => scheduler.schedule(),
            Wakes::Test(wake) => wake(),
        }
    }
}

/// A configuration of Envoy during a hook on the main thread.
pub struct ConfigHost(pub(crate) EnvoyConfig);

impl ConfigHost {
    /// A configuration without an Envoy: counters are not defined, and nothing is scheduled.
    pub fn of_test() -> Self {
        Self(ptr::null_mut())
    }

    /// Defines a counter, only while the configuration is being made. None if Envoy refuses.
    pub fn define_counter(&self, name: &str, labels: &[&str]) -> Option<Counter> {
        let call = callbacks().filter(|_| !self.0.is_null())?.http_filter_config_define_counter;
        let mut labels: Vec<ModuleBuffer> =
            labels.iter().map(|label| ModuleBuffer::of(label.as_bytes())).collect();
        let mut number = 0;
        let name = ModuleBuffer::of(name.as_bytes());
        // SAFETY: Envoy's configuration lives while the hook runs, and the buffers while the call does, which copies them.
        let result = unsafe { call(self.0, name, labels.as_mut_ptr(), labels.len(), &raw mut number) };
        (result == METRICS_OK).then_some(Counter(number))
    }

    /// Whether counters can be increased without a stream, since Envoy 1.39.
    pub fn can_count(&self) -> bool {
        !self.0.is_null() && callbacks().is_some_and(|all| all.http_filter_config_increment_counter.is_some())
    }

    /// Adds to a counter, with a value for each of its labels.
    pub fn count(&self, counter: Counter, labels: &[&str], by: u64) {
        let call = callbacks().filter(|_| !self.0.is_null());
        let Some(call) = call.and_then(|all| all.http_filter_config_increment_counter) else { return };
        let mut labels: Vec<ModuleBuffer> =
            labels.iter().map(|label| ModuleBuffer::of(label.as_bytes())).collect();
        // SAFETY: Envoy's configuration lives while the hook runs, and the buffers while the call does.
        unsafe { call(self.0, counter.0, labels.as_mut_ptr(), labels.len(), by) };
    }

    /// A handle by which any thread can schedule [`Module::publish`](crate::Module::publish) of this configuration.
    pub fn scheduler(&self) -> Option<Scheduler> {
        let all = callbacks().filter(|_| !self.0.is_null())?;
        // SAFETY: Envoy's configuration lives while the hook runs.
        let scheduler = unsafe { (all.http_filter_config_scheduler_new)(self.0) };
        let (commit, delete) =
            (all.http_filter_config_scheduler_commit, all.http_filter_config_scheduler_delete);
        (!scheduler.is_null()).then(|| Scheduler { scheduler, commit, delete })
    }
}

/// Schedules a hook on the thread that it belongs to. Has no effect once the configuration or the stream is gone.
pub struct Scheduler {
    pub(crate) scheduler: EnvoyScheduler,
    pub(crate) commit: unsafe extern "C" fn(EnvoyScheduler, u64),
    pub(crate) delete: unsafe extern "C" fn(EnvoyScheduler),
}

// SAFETY: the ABI allows a scheduler to be used by any thread.
unsafe impl Send for Scheduler {}
// SAFETY: committing takes no exclusive access: Envoy posts to a queue that has a lock.
unsafe impl Sync for Scheduler {}

impl Scheduler {
    /// Schedules the hook.
    pub fn schedule(&self) {
        // SAFETY: the scheduler lives until it is dropped.
        unsafe { (self.commit)(self.scheduler, 0) };
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        // SAFETY: made by Envoy, and deleted once.
        unsafe { (self.delete)(self.scheduler) };
    }
}

/// Whether this is Envoy 1.39 or later, by the callbacks that it offers; works without an Envoy too.
pub fn is_from_1_39() -> bool {
    callbacks().is_none_or(|all| all.http_filter_config_increment_counter.is_some())
}

/// Levels of Envoy's log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum LogLevel {
    /// Normal operation.
    Info = 2,
    /// Operators should check it.
    Warn = 3,
    /// A failure.
    Error = 4,
}

/// Writes a line to Envoy's log, or to standard error before Envoy was found. Any thread may call it.
pub fn log(level: LogLevel, line: &str) {
    match callbacks() {
        // SAFETY: the line lives while the call does.
        Some(all) => unsafe { (all.log)(level as u32, ModuleBuffer::of(line.as_bytes())) },
        None => eprintln!("tidegate: {line}"),
    }
}

/// Envoy's pointer to the module's configuration of a route.
pub(crate) type RoutePointer = *const c_void;
