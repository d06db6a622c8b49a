//! A stream as tests have it.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};
use tidegate_envoy_abi::{Counter, Host, Waker};
use tidegate_envoy_config::{Headers, MetadataSource, Stream};

/// A stand-in for a stream of Envoy.
#[derive(Default, Clone, Debug)]
pub(crate) struct Fake {
    pub(crate) request: Vec<(String, Vec<u8>)>,
    pub(crate) response: Vec<(String, Vec<u8>)>,
    pub(crate) address: Option<String>,
    pub(crate) cluster: Option<String>,
    pub(crate) texts: BTreeMap<String, Vec<u8>>,
    pub(crate) numbers: BTreeMap<String, f64>,
    pub(crate) filter_state: Option<String>,
    pub(crate) runtime: BTreeMap<String, u64>,
    /// Responses of the filter.
    pub(crate) responses: Vec<String>,
    /// Number of times that the stream was woken.
    pub(crate) wakes: Arc<AtomicUsize>,
}

impl Fake {
    /// A request from an address to a cluster.
    pub(crate) fn new(path: &str) -> Self {
        let fake = Self {
            address: Some("192.0.2.7:4711".to_owned()),
            cluster: Some("application".to_owned()),
            ..Self::default()
        };
        fake.with(":path", path)
    }

    pub(crate) fn with(mut self, name: &str, value: impl Into<Vec<u8>>) -> Self {
        self.request.push((name.to_owned(), value.into()));
        self
    }

    /// The first value of a header of the response.
    pub(crate) fn added(&self, name: &str) -> Option<String> {
        let value = self.response.iter().find(|(own, _)| own == name)?.1.clone();
        String::from_utf8(value).ok()
    }

    fn headers(&self, of: Headers) -> &[(String, Vec<u8>)] {
        match of {
            Headers::Request => &self.request,
            Headers::Response => &self.response,
        }
    }
}

impl Stream for Fake {
    fn header(&self, of: Headers, name: &str, index: usize) -> (Option<&[u8]>, usize) {
        let values =
            || self.headers(of).iter().filter(|(own, _)| own == name).map(|(_, value)| value.as_slice());
        (values().nth(index), values().count())
    }

    fn client(&self) -> Option<&[u8]> {
        self.address.as_deref().map(str::as_bytes)
    }

    fn metadata_text(&self, source: MetadataSource, namespace: &str, key: &str) -> Option<&[u8]> {
        self.texts.get(&format!("{source:?}/{namespace}/{key}")).map(Vec::as_slice)
    }

    fn metadata_number(&self, source: MetadataSource, namespace: &str, key: &str) -> Option<f64> {
        self.numbers.get(&format!("{source:?}/{namespace}/{key}")).copied()
    }

    fn cluster(&self) -> Option<&[u8]> {
        self.cluster.as_deref().map(str::as_bytes)
    }
}

impl Host for Fake {
    fn set_metadata_text(&mut self, namespace: &str, key: &str, value: &str) {
        self.texts.insert(format!("Dynamic/{namespace}/{key}"), value.into());
    }

    fn set_metadata_number(&mut self, namespace: &str, key: &str, value: f64) {
        self.numbers.insert(format!("Dynamic/{namespace}/{key}"), value);
    }

    fn filter_state(&self, _: &str) -> Option<&[u8]> {
        self.filter_state.as_deref().map(str::as_bytes)
    }

    fn runtime(&self, key: &str) -> Option<u64> {
        self.runtime.get(key).copied()
    }

    fn add_header(&mut self, to: Headers, name: &str, value: &[u8]) {
        let headers = if to == Headers::Request { &mut self.request } else { &mut self.response };
        headers.push((name.to_owned(), value.to_owned()));
    }

    fn respond(&mut self, status: u16, headers: &[(&str, &[u8])], body: &[u8], details: &str) {
        self.respond_with(headers);
        let line = format!("{status} {details} {}", String::from_utf8_lossy(body));
        *self.responses.last_mut().unwrap() = line;
    }

    fn respond_with(&mut self, headers: &[(&str, &[u8])]) {
        self.response.extend(headers.iter().map(|(name, value)| ((*name).to_owned(), value.to_vec())));
        self.responses.push("by headers".to_owned());
    }

    fn count(&mut self, _: Counter, _: &[&str], _: u64) {}
    fn waker(&self) -> Option<Waker> {
        let wakes = Arc::clone(&self.wakes);
        Some(Waker::of_test(move || {
            wakes.fetch_add(1, Ordering::Relaxed);
        }))
    }
}
