//! A request as people write it, and as actions and matchers read it.

use crate::stream::{Headers, MetadataSource, Stream};
use std::{net::IpAddr, str::FromStr};

/// A request before Envoy has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HttpRequest {
    /// The method.
    pub method: String,
    /// `http` or `https`.
    pub scheme: String,
    /// Host, with a port if there is one.
    pub authority: String,
    /// Path with query.
    pub path: String,
    /// Further headers, with names in small letters.
    pub headers: Vec<(String, String)>,
    /// The address that connects to Envoy.
    pub from: IpAddr,
}

/// A text is no request.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0:?} is not a request; write a method and a URL, such as 'GET https://shop.example/api?q=1'")]
pub struct RequestError(String);

/// `GET https://shop.example/api?q=1`; without headers, from 127.0.0.1.
impl FromStr for HttpRequest {
    type Err = RequestError;

    fn from_str(text: &str) -> Result<Self, RequestError> {
        let error = || RequestError(text.to_owned());
        let (method, url) = text.trim().split_once(' ').ok_or_else(error)?;
        let (scheme, rest) = url.trim().split_once("://").ok_or_else(error)?;
        // No client sends a fragment.
        let rest = rest.split('#').next().unwrap_or_default();
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if method.is_empty() || authority.is_empty() || !["http", "https"].contains(&scheme) {
            return Err(error());
        }
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        Ok(Self {
            method: method.to_owned(),
            scheme: scheme.to_owned(),
            authority: authority.to_owned(),
            path,
            headers: Vec::new(),
            from: IpAddr::from([127, 0, 0, 1]),
        })
    }
}

impl HttpRequest {
    /// The values of a header.
    pub(crate) fn values(&self, name: &str) -> impl Iterator<Item = &str> {
        self.headers.iter().filter(move |(own, _)| own == name).map(|(_, value)| &**value)
    }

    /// The path without query.
    pub(crate) fn plain_path(&self) -> &str {
        &self.path[..self.path.find(['?', '#']).unwrap_or(self.path.len())]
    }
}

/// A request with its route.
pub(crate) struct Routed<'q> {
    pub(crate) request: &'q HttpRequest,
    /// The address of the client with a port, as Envoy determines it.
    pub(crate) client: String,
    /// The cluster, if it is known.
    pub(crate) cluster: Option<&'q str>,
    /// The metadata of the route.
    pub(crate) metadata: serde_json::Value,
}

impl Routed<'_> {
    fn pseudo(&self, name: &str) -> Option<&str> {
        Some(match name {
            ":method" => &self.request.method,
            ":scheme" | "x-forwarded-proto" => &self.request.scheme,
            ":authority" | "host" => &self.request.authority,
            ":path" => &self.request.path,
            _ => return None,
        })
    }
}

impl Stream for Routed<'_> {
    fn header(&self, of: Headers, name: &str, index: usize) -> (Option<&[u8]>, usize) {
        if of == Headers::Response {
            return (None, 0);
        }
        if let Some(value) = self.pseudo(name) {
            return (Some(value.as_bytes()).filter(|_| index == 0), 1);
        }
        (self.request.values(name).nth(index).map(str::as_bytes), self.request.values(name).count())
    }

    fn client(&self) -> Option<&[u8]> {
        Some(self.client.as_bytes())
    }

    fn cluster(&self) -> Option<&[u8]> {
        self.cluster.map(str::as_bytes)
    }

    fn metadata_text(&self, source: MetadataSource, namespace: &str, key: &str) -> Option<&[u8]> {
        let texts = Some(&self.metadata).filter(|_| source == MetadataSource::Route);
        Some(texts?.get(namespace)?.get(key)?.as_str()?.as_bytes())
    }

    fn metadata_number(&self, _: MetadataSource, _: &str, _: &str) -> Option<f64> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_a_method_and_a_url() {
        let request: HttpRequest = "GET https://shop.example:8443/api?q=1".parse().unwrap();
        assert_eq!((&*request.scheme, &*request.authority), ("https", "shop.example:8443"));
        assert_eq!((&*request.path, request.plain_path()), ("/api?q=1", "/api"));
        assert_eq!("HEAD http://a?x#y".parse::<HttpRequest>().unwrap().path, "/?x");
        for wrong in ["", "GET", "GET /path", "GET ftp://a/", "GET https:///a"] {
            assert!(wrong.parse::<HttpRequest>().is_err(), "{wrong}");
        }
    }
}
