//! The bearer token of a request (RFC 6750).

use http::{HeaderMap, header::AUTHORIZATION};

/// Returns the token of a `Bearer` credential (the scheme is case-insensitive); none if none is sent. Several headers yield an empty token,
/// which no file lists: which of them counts is undefined.
pub(super) fn bearer_token(headers: &HeaderMap) -> Option<&[u8]> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (value, None) = (values.next()?.as_bytes(), values.next()) else { return Some(&[]) };
    let (scheme, token) = value.split_at_checked("Bearer".len())?;
    let is_of_scheme =
        scheme.eq_ignore_ascii_case(b"bearer") && token.first().is_none_or(|byte| *byte == b' ');
    is_of_scheme.then_some(token.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(values: &[&'static str]) -> Option<String> {
        let headers = values.iter().map(|value| (AUTHORIZATION, value.parse().expect("a header value")));
        bearer_token(&headers.collect()).map(|token| String::from_utf8_lossy(token).into_owned())
    }

    #[test]
    fn one_header_of_the_scheme_bearer_has_a_token() {
        assert_eq!(token(&["Bearer abc"]).as_deref(), Some("abc"));
        assert_eq!(token(&["bearer  abc"]).as_deref(), Some("abc"));
        for values in [&[][..], &["Basic abc"], &["abc"], &["Bearerabc def"]] {
            assert_eq!(token(values), None, "{values:?}");
        }
        assert_eq!(token(&["Bearer"]).as_deref(), Some(""));
        let mut two = HeaderMap::new();
        two.append(AUTHORIZATION, "Bearer a".parse().unwrap());
        two.append(AUTHORIZATION, "Bearer b".parse().unwrap());
        assert_eq!(bearer_token(&two), Some(&b""[..]));
    }
}
