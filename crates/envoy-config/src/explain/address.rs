//! The address of the client, as a connection manager determines it.

use super::request::HttpRequest;
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
}
