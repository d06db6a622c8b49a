//! Requests that a web page of another origin makes a browser send.
//!
//! A page may send a POST of some media types to any address without asking that server (a "simple request"), with the client
//! certificate of its user. A page on a name that resolves to this address later (DNS rebinding) may read the responses too.

use super::{paths, refused::refused, state::HttpState, whole_body::closing};
use crate::api::client::Client;
use axum::{
    extract::{Request, State},
    http::{
        HeaderMap, Method, StatusCode, Uri,
        header::{CONTENT_TYPE, HOST, ORIGIN},
    },
    middleware::Next,
    response::Response,
};
use std::net::IpAddr;
use tidegate_service::HttpRefusal;

/// Media types that a form can send besides that of `curl -d`.
const FORM_TYPES: [&str; 2] = ["text/plain", "multipart/form-data"];

/// Ends of names that public name servers do not have.
const LOCAL_ENDS: [&str; 7] =
    [".localhost", ".local", ".internal", ".svc", ".cluster.local", ".lan", ".home.arpa"];

pub(super) async fn check(State(state): State<HttpState>, request: Request, next: Next) -> Response {
    let (peer, _) = Client::of(request.extensions());
    // No browser connects to Unix sockets.
    let is_unix = peer.starts_with('u');
    let are_checked = state.settings.are_hosts_checked && !is_unix;
    let hosts = Hosts { allowed: &state.settings.allowed_hosts, are_checked };
    match refusal(request.method(), request.uri(), request.headers(), hosts) {
        None => next.run(request).await,
        Some((status, reason)) => refused(HttpRefusal::Origin, closing(status, reason)),
    }
}

/// Names under which the port is reached.
#[derive(Clone, Copy, Default)]
struct Hosts<'h> {
    /// Besides local ones.
    allowed: &'h [String],
    are_checked: bool,
}

/// Why a request is refused, if it is.
fn refusal(
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
    hosts: Hosts<'_>,
) -> Option<(StatusCode, &'static str)> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let host = uri.authority().map(|authority| authority.as_str()).or_else(|| text(HOST));
    if headers.contains_key(ORIGIN) && !text(ORIGIN).is_some_and(|origin| is_same(origin, host, hosts)) {
        let reason = "a page of another origin sent the request; let the proxy before this port keep the header `host`, or name the \
            page's host with --http-allowed-hosts\n";
        return Some((StatusCode::FORBIDDEN, reason));
    }
    let media_type = text(CONTENT_TYPE).map(|value| value.split(';').next().unwrap_or_default().trim());
    let is_form = media_type.is_some_and(|of| FORM_TYPES.iter().any(|form| of.eq_ignore_ascii_case(form)));
    if method == Method::POST && is_form {
        return Some((StatusCode::UNSUPPORTED_MEDIA_TYPE, "send `content-type: application/json`\n"));
    }
    // Scrapers use any name.
    let is_open = uri.path() == paths::METRICS || !hosts.are_checked;
    if !is_open && host.is_some_and(|host| !is_local(name_of(host)) && !hosts.allows(name_of(host))) {
        let reason = "the name in the header `host` is not one of this server; add it with --http-allowed-hosts, use the address, or \
            set up tokens with --http-token-file\n";
        return Some((StatusCode::MISDIRECTED_REQUEST, reason));
    }
    None
}

/// Whether a page of this origin was loaded from the host of the request, or from an allowed host.
fn is_same(origin: &str, host: Option<&str>, hosts: Hosts<'_>) -> bool {
    let Some((scheme, of_page)) = origin.split_once("://") else { return false };
    let port = if scheme == "https" { ":443" } else { ":80" };
    let of = |host: &str| host.strip_suffix(port).unwrap_or(host).to_ascii_lowercase();
    host.is_some_and(|host| of(host) == of(of_page)) || hosts.allows(name_of(of_page))
}

impl Hosts<'_> {
    fn allows(self, name: &str) -> bool {
        self.allowed.iter().any(|allowed| allowed == "*" || allowed.eq_ignore_ascii_case(name))
    }
}

/// A host without its port, and without the brackets of an IPv6 address.
fn name_of(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    }
}

/// Whether no public name server can have resolved this name.
fn is_local(name: &str) -> bool {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    name.parse::<IpAddr>().is_ok() || !name.contains('.') || LOCAL_ENDS.iter().any(|end| name.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(method: Method, path: &str, headers: &[(&'static str, &str)], hosts: Hosts<'_>) -> Option<u16> {
        let header = |(name, value): &(&'static str, &str)| {
            (name.parse().expect("a name"), value.parse().expect("a value"))
        };
        let headers: HeaderMap = headers.iter().map(header).collect();
        refusal(&method, &path.parse().expect("a path"), &headers, hosts).map(|(status, _)| status.as_u16())
    }

    #[test]
    fn pages_of_other_origins_are_refused() {
        let hosts = Hosts { allowed: &["ops.example.com".to_owned()], are_checked: false };
        let of = |origin, host| status(Method::POST, "/json", &[("origin", origin), ("host", host)], hosts);
        for (origin, host) in [
            ("http://127.0.0.1:8082", "127.0.0.1:8082"),
            ("https://rl.example.com", "RL.example.com"),
            ("https://rl.example.com", "rl.example.com:443"),
            ("https://ops.example.com", "10.0.0.1:8082"),
        ] {
            assert_eq!(of(origin, host), None, "{origin} {host}");
        }
        for origin in
            ["https://evil.example", "null", "http://127.0.0.1:9", "http://127.0.0.1:8082.evil.example", ""]
        {
            assert_eq!(of(origin, "127.0.0.1:8082"), Some(403), "{origin}");
        }
    }

    #[test]
    fn bodies_that_a_form_can_send_are_refused_and_those_of_curl_are_not() {
        let of = |value| status(Method::POST, "/json", &[("content-type", value)], Hosts::default());
        for value in
            ["application/json", "application/x-www-form-urlencoded", "application/json; charset=utf-8"]
        {
            assert_eq!(of(value), None, "{value}");
        }
        for value in ["text/plain", "Text/Plain; charset=utf-8", "multipart/form-data; boundary=x"] {
            assert_eq!(of(value), Some(415), "{value}");
        }
    }

    #[test]
    fn names_that_may_have_been_bound_to_this_address_are_refused_where_no_credential_is_needed() {
        let hosts = Hosts { allowed: &["rl.example.com".to_owned()], are_checked: true };
        let of = |path, host| status(Method::GET, path, &[("host", host)], hosts);
        for host in [
            "127.0.0.1:8082",
            "[::1]:8082",
            "localhost",
            "tidegate",
            "tidegate.prod.svc:8082",
            "RL.example.com",
        ] {
            assert_eq!(of("/rules", host), None, "{host}");
        }
        assert_eq!(of("/rules", "evil.example:8082"), Some(421));
        assert_eq!(of("/metrics", "evil.example:8082"), None);
        let open = Hosts { are_checked: false, ..hosts };
        assert_eq!(status(Method::GET, "/rules", &[("host", "evil.example")], open), None);
    }
}
