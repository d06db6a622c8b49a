//! Addresses in logs and errors: without users, passwords and tokens.

/// The address of a URL, or of `user:password@host:port` without a scheme, with `…` instead of its user information and its query. An
/// address without both is returned unchanged. A password may contain an unescaped `/`, `?` or `@`: the user information ends at the last
/// `@`.
pub fn without_userinfo(address: &str) -> String {
    let (scheme, rest) = match address.find("://") {
        Some(at) => address.split_at(at + "://".len()),
        None => ("", address),
    };
    let (userinfo, rest) = rest.rsplit_once('@').map_or(("", rest), |(_, rest)| ("…@", rest));
    let (rest, query) = rest.split_once('?').map_or((rest, ""), |(rest, _)| (rest, "?…"));
    format!("{scheme}{userinfo}{rest}{query}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_part_of_a_user_a_password_or_a_query_is_shown() {
        for (address, shown) in [
            ("http://collector:4318/v1", "http://collector:4318/v1"),
            ("http://u:PW@collector:4318", "http://…@collector:4318"),
            ("u:PW@host:6379", "…@host:6379"),
            ("redis://:P/W@x?y@host:1/2", "redis://…@host:1/2"),
            ("redis+sentinel://a,b/main?sentinel_auth=PW", "redis+sentinel://a,b/main?…"),
            ("unix:/run/s?pass=PW", "unix:/run/s?…"),
            ("redis://a?b=P@W", "redis://…@W"),
            ("host:1", "host:1"),
            ("", ""),
        ] {
            assert_eq!(without_userinfo(address), shown);
        }
    }
}
