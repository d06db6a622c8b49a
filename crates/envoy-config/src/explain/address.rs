//! The address of the client, as a connection manager determines it.

use super::{hosts, request::HttpRequest};
use crate::part::Part;
use std::net::IpAddr;

/// The address; the reason if it is not known.
pub(super) fn client(manager: Part<'_>, request: &HttpRequest) -> Result<IpAddr, String> {
    if manager.list("original_ip_detection_extensions").next().is_some() {
        return Err("original_ip_detection_extensions determine the address of the client".to_owned());
    }
    let hops = manager.number("xff_num_trusted_hops").unwrap_or(0);
    let hops = usize::try_from(hops).unwrap_or(usize::MAX);
    let forwarded = match (manager.flag("use_remote_address"), hops) {
        (true, 0) => None,
        (true, hops) => forwarded(request, hops - 1),
        (false, hops) => forwarded(request, hops),
    };
    Ok(forwarded.unwrap_or(request.from))
}

/// The address in `x-forwarded-for`, counted from its end.
fn forwarded(request: &HttpRequest, skipped: usize) -> Option<IpAddr> {
    let all: Vec<&str> = request.values("x-forwarded-for").collect();
    if all.is_empty() {
        return None;
    }
    all.join(",").rsplit(',').nth(skipped)?.trim().parse().ok()
}

/// The address that Envoy writes of itself.
const OF_ENVOY: &str = "<address of Envoy>";

/// The request as filters get it: the host without the parts that Envoy strips, and repeated values of `x-forwarded-for` as one. Envoy appends
/// to these the address that connects if it determines the client by it; for a loopback address, its own.
pub(super) fn forwarded_on(manager: Part<'_>, request: &HttpRequest) -> HttpRequest {
    const NAME: &str = "x-forwarded-for";
    let mut seen = request.clone();
    let mut all: Vec<String> = request.values(NAME).map(str::to_owned).collect();
    if manager.flag("use_remote_address") && !manager.flag("skip_xff_append") {
        all.push(if request.from.is_loopback() { OF_ENVOY.to_owned() } else { request.from.to_string() });
    }
    seen.authority = hosts::stripped(manager, &request.authority);
    seen.headers.retain(|(name, _)| name != NAME);
    if !all.is_empty() {
        seen.headers.push((NAME.to_owned(), all.join(",")));
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Files;
    use tidegate_core::rules::Source;

    #[test]
    fn the_address_is_that_of_trusted_proxies() {
        let mut request: HttpRequest = "GET http://a/".parse().unwrap();
        request.from = "192.0.2.1".parse().unwrap();
        request.headers.push(("x-forwarded-for".to_owned(), "10.0.0.1, 10.0.0.2,10.0.0.3".to_owned()));
        let of = |text: &str| {
            let files = Files::read(vec![Source::file("f", text)]).unwrap();
            let (source, root) = files.documents().next().unwrap();
            client(Part::new(&source.id, root), &request).unwrap().to_string()
        };
        assert_eq!(of("use_remote_address: true"), "192.0.2.1");
        assert_eq!(of("{use_remote_address: true, xff_num_trusted_hops: 1}"), "10.0.0.3");
        assert_eq!(of("{use_remote_address: true, xff_num_trusted_hops: 9}"), "192.0.2.1");
        assert_eq!(of("use_remote_address: false"), "10.0.0.3");
        assert_eq!(of("xff_num_trusted_hops: 2"), "10.0.0.1");
    }

    /// An action that reads the header of a request without one makes a descriptor then.
    #[test]
    fn the_address_that_connects_is_appended_before_filters_read_the_header() {
        let of = |text: &str, from: &str, values: &[&str]| {
            let mut request: HttpRequest = "GET http://a/".parse().unwrap();
            request.from = from.parse().unwrap();
            let headers = values.iter().map(|value| ("x-forwarded-for".to_owned(), (*value).to_owned()));
            request.headers.extend(headers);
            let files = Files::read(vec![Source::file("f", text)]).unwrap();
            let (source, root) = files.documents().next().unwrap();
            let seen = forwarded_on(Part::new(&source.id, root), &request);
            seen.values("x-forwarded-for").map(str::to_owned).collect::<Vec<_>>()
        };
        let edge = "use_remote_address: true";
        assert_eq!(of(edge, "192.0.2.1", &[]), ["192.0.2.1"]);
        assert_eq!(of(edge, "2001:db8::1", &["10.0.0.1, 10.0.0.2"]), ["10.0.0.1, 10.0.0.2,2001:db8::1"]);
        assert_eq!(of(edge, "127.0.0.1", &["10.0.0.1"]), ["10.0.0.1,<address of Envoy>"]);
        let skipped = "{use_remote_address: true, skip_xff_append: true}";
        for without in [skipped, "use_remote_address: false"] {
            assert_eq!(of(without, "192.0.2.1", &[]), [""; 0]);
            assert_eq!(of(without, "192.0.2.1", &["10.0.0.1", "10.0.0.2"]), ["10.0.0.1,10.0.0.2"]);
        }
    }
}
