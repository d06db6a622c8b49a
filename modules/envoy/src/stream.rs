//! A stream of Envoy, as the actions of `rate_limits` read it.

use tidegate_envoy_abi::{Attribute, Headers, Host, MetadataSource};
use tidegate_envoy_config::{self as config, Stream};

/// A stream during a hook.
pub(crate) struct HostStream<'h>(pub(crate) &'h dyn Host);

impl Stream for HostStream<'_> {
    fn header(&self, of: config::Headers, name: &str, index: usize) -> (Option<&[u8]>, usize) {
        let of = match of {
            config::Headers::Request => Headers::Request,
            config::Headers::Response => Headers::Response,
        };
        self.0.header(of, name, index)
    }

    fn client(&self) -> Option<&[u8]> {
        self.0.text(Attribute::SourceAddress)
    }

    fn cluster(&self) -> Option<&[u8]> {
        self.0.cluster()
    }

    fn metadata_text(&self, source: config::MetadataSource, namespace: &str, key: &str) -> Option<&[u8]> {
        self.0.metadata_text(of_abi(source), namespace, key)
    }

    fn metadata_number(&self, source: config::MetadataSource, namespace: &str, key: &str) -> Option<f64> {
        self.0.metadata_number(of_abi(source), namespace, key)
    }
}

fn of_abi(source: config::MetadataSource) -> MetadataSource {
    match source {
        config::MetadataSource::Dynamic => MetadataSource::Dynamic,
        config::MetadataSource::Route => MetadataSource::Route,
        config::MetadataSource::Cluster => MetadataSource::Cluster,
    }
}
