//! The parts of a request that actions read.

/// Headers of a stream, by their number in the ABI of Envoy's modules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Headers {
    /// Headers of the request.
    Request = 0,
    /// Headers of the response.
    Response = 2,
}

/// The source of metadata, by its number in that ABI.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum MetadataSource {
    /// Metadata of the stream.
    Dynamic = 0,
    /// Metadata of the route.
    Route = 1,
    /// Metadata of the cluster.
    Cluster = 2,
}

/// A request with its route, and at its end its response. Bytes are as they arrived.
pub trait Stream {
    /// One of the values of a header, by its lower-case name, and the number of values.
    fn header(&self, of: Headers, name: &str, index: usize) -> (Option<&[u8]>, usize);
    /// The address of the client with its port, as Envoy writes it: `192.0.2.1:1234`, `[2001:db8::1]:1234`, or the path of a socket.
    fn client(&self) -> Option<&[u8]>;
    /// The cluster of the request; none without a route to a cluster that exists.
    fn cluster(&self) -> Option<&[u8]>;
    /// A text in metadata, below one key of a namespace.
    fn metadata_text(&self, source: MetadataSource, namespace: &str, key: &str) -> Option<&[u8]>;
    /// A number in metadata, below one key of a namespace.
    fn metadata_number(&self, source: MetadataSource, namespace: &str, key: &str) -> Option<f64>;
}

/// The Envoy whose configuration is read: facts that depend on its version and its start.
#[derive(Clone, Debug, Default)]
pub struct Envoy {
    /// The value of the action `source_cluster`: the `cluster` of Envoy's node; empty if Envoy's is not known.
    pub source_cluster: Option<String>,
    /// Whether each of several values of a header is matched separately, as since 1.39; else all of them as one text.
    pub matches_each_value: bool,
}
