//! Bearer tokens and their file. A line `NAME:SHA-256` or `NAME:SHA-256:ROLE` declares a token, as `tidegate token` writes it. A line
//! `san=NAME:ROLE` gives a role, without a token, to a name in client certificates.
//!
//! The file has hashes alone: who reads it learns no token. A token is 32 random bytes, so that a plain hash cannot be reversed
//! by guessing.

use sha2::{Digest, Sha256};
use std::{fmt, str::FromStr};
use subtle::ConstantTimeEq;
use tidegate_operations::control::{Credential, Role};
use tidegate_transport::San;

/// Bytes of randomness in a token.
const TOKEN_BYTES: usize = 32;
/// Found by scanners of leaked secrets.
const PREFIX: &str = "tidegate_";
const NAME_BYTES_MAX: usize = 64;

type Hash = [u8; 32];

/// The tokens and the names of a file; at least one of either at the start.
#[derive(Debug, Default)]
pub struct Tokens {
    tokens: Vec<Token>,
    /// Subject alternative names of client certificates, with their roles in the control API.
    clients: Vec<(String, Role)>,
}

#[derive(Debug)]
struct Token {
    name: TokenName,
    hash: Hash,
    /// In the control API.
    role: Role,
}

/// The name of a token: 1 to 64 of `A-Z a-z 0-9 . _ -`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TokenName(String);

/// A token that was just made. Its text is not stored anywhere.
pub struct NewToken {
    name: TokenName,
    role: Role,
    text: String,
}

/// Reasons why a token file is refused, each with its line.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}", with_lines(.0))]
pub struct TokensError(Vec<(usize, String)>);

impl Tokens {
    /// Parses a file. Empty lines and lines that begin with `#` are skipped.
    pub fn parse(text: &str) -> Result<Self, TokensError> {
        let (Self { mut tokens, mut clients }, mut errors) = (Self::default(), Vec::new());
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if let Some(client) = line.strip_prefix("san=") {
                match parse_client(client) {
                    Ok((name, _)) if clients.iter().any(|(other, _)| *other == name) => {
                        errors.push((number, format!("the name {name} occurs twice; remove one line")));
                    }
                    Ok(client) => clients.push(client),
                    Err(error) => errors.push((number, error)),
                }
                continue;
            }
            match parse_line(line) {
                Ok(Token { name, .. }) if tokens.iter().any(|other| other.name == name) => {
                    errors.push((number, format!("the name {name} occurs twice; choose another")));
                }
                Ok(token) => tokens.push(token),
                Err(error) => errors.push((number, error)),
            }
        }
        if tokens.is_empty() && clients.is_empty() && errors.is_empty() {
            errors.push((0, "no token; add a line with `tidegate token NAME`".into()));
        }
        if errors.is_empty() { Ok(Self { tokens, clients }) } else { Err(TokensError(errors)) }
    }

    /// Parses a file that is read again: one without tokens revokes all.
    pub fn parse_again(text: &str) -> Result<Self, TokensError> {
        match Self::parse(text) {
            Err(TokensError(errors)) if errors.iter().all(|(line, _)| *line == 0) => Ok(Self::default()),
            parsed => parsed,
        }
    }

    /// Returns the name and the role of a token, in constant time: neither the match nor the length of a common prefix shows.
    pub(in crate::api) fn find(&self, token: &[u8]) -> Option<(&str, Role)> {
        // A line with the hash of the empty text is a mistake of the script that wrote it.
        if token.is_empty() {
            return None;
        }
        let hash = hash(token);
        let mut found = None;
        for Token { name, hash: expected, role } in &self.tokens {
            if bool::from(hash.ct_eq(expected)) {
                found = Some((&*name.0, *role));
            }
        }
        found
    }

    /// Finds the name with the greatest role among those in a verified certificate; a name that permits what is needed goes first.
    pub(in crate::api) fn find_client(&self, names: &[String], needs: Role) -> Option<(&str, Role)> {
        let found = self.clients.iter().filter(|(name, _)| names.contains(name));
        found.max_by_key(|(_, role)| (role.permits(needs), *role)).map(|(name, role)| (&**name, *role))
    }

    /// Returns the credential of a caller with this token and these names in its verified certificate. The names count only without a
    /// token.
    pub(in crate::api) fn credential(
        &self,
        token: Option<&[u8]>,
        names: &[String],
        needs: Role,
    ) -> Credential {
        let (kind, found) = match token {
            Some(token) => ("token", self.find(token)),
            None => ("san", self.find_client(names, needs)),
        };
        match found {
            Some((name, role)) => Credential::Known(format!("{kind}:{name}"), role),
            None if token.is_some() => Credential::Wrong,
            None => Credential::None,
        }
    }

    /// Whether there is a token of this name.
    pub fn has(&self, name: &TokenName) -> bool {
        self.tokens.iter().any(|token| token.name == *name)
    }

    /// Number of tokens and of names in certificates.
    pub fn count(&self) -> usize {
        self.tokens.len() + self.clients.len()
    }
}

impl NewToken {
    /// Makes a token.
    pub fn generate(name: TokenName, role: Role) -> Result<Self, getrandom::Error> {
        let mut bytes = [0; TOKEN_BYTES];
        getrandom::fill(&mut bytes)?;
        Ok(Self { name, role, text: format!("{PREFIX}{}", to_hex(&bytes)) })
    }

    /// The text that a client sends.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Its line in the token file.
    pub fn line(&self) -> String {
        let line = format!("{}:{}", self.name, to_hex(&hash(self.text.as_bytes())));
        if self.role == Role::None { line } else { format!("{line}:{}", self.role) }
    }
}

fn hash(token: &[u8]) -> Hash {
    Sha256::digest(token).into()
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Parses `NAME:ROLE`. A name may contain colons.
fn parse_client(text: &str) -> Result<(String, Role), String> {
    let form = "write san=NAME:ROLE, such as san=spiffe://cluster.local/ns/ops/sa/ann:operate";
    let (name, role) = text.rsplit_once(':').ok_or(form)?;
    let name: San = name.trim().parse().map_err(|error| format!("{error}"))?;
    Ok((name.to_string(), role.trim().parse()?))
}

fn parse_line(line: &str) -> Result<Token, String> {
    let form = "write NAME:SHA-256, as `tidegate token NAME` prints it";
    let (name, digits) = line.split_once(':').ok_or(form)?;
    let name = name.trim().parse::<TokenName>()?;
    let (digits, role) = match digits.split_once(':') {
        Some((digits, role)) => (digits, role.trim().parse()?),
        None => (digits, Role::None),
    };
    let hash = hash_of_hex(digits.trim()).ok_or_else(|| {
        // The line may hold a token by mistake, and errors are logged.
        format!("the text after the colon is not 64 hexadecimal digits; {form}")
    })?;
    Ok(Token { name, hash, role })
}

fn hash_of_hex(digits: &str) -> Option<Hash> {
    let mut hash = Hash::default();
    if digits.len() != 2 * hash.len() || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    for (byte, at) in hash.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&digits[at..at + 2], 16).ok()?;
    }
    Some(hash)
}

impl FromStr for TokenName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if (1..=NAME_BYTES_MAX).contains(&text.len()) && text.chars().all(is_of_name) {
            Ok(Self(text.to_owned()))
        } else {
            Err("the name is not 1 to 64 of A-Z a-z 0-9 . _ -".into())
        }
    }
}

impl fmt::Display for TokenName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn with_lines(errors: &[(usize, String)]) -> String {
    let errors = errors.iter().map(|(line, error)| match line {
        0 => error.clone(),
        line => format!("line {line}: {error}"),
    });
    errors.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(name: &str) -> NewToken {
        NewToken::generate(name.parse().unwrap(), Role::None).unwrap()
    }

    #[test]
    fn a_token_is_found_by_its_text_and_by_nothing_else() {
        let (one, other) = (new("one"), new("other"));
        let file = format!(
            "# tokens\n\n{}\n  {}  \r\n",
            one.line(),
            other.line().to_uppercase().replace("OTHER", "other")
        );
        let tokens = Tokens::parse(&file).unwrap();
        assert_eq!(tokens.count(), 2);
        assert_eq!(tokens.find(one.text().as_bytes()).map(|(name, _)| name), Some("one"));
        assert_eq!(tokens.find(other.text().as_bytes()).map(|(name, _)| name), Some("other"));
        let hash_as_token = one.line().rsplit(':').next().unwrap().to_owned();
        for wrong in [hash_as_token, String::new(), one.text().to_uppercase(), one.text()[1..].to_owned()] {
            assert_eq!(tokens.find(wrong.as_bytes()), None, "{wrong}");
        }
        assert!(!file.contains(one.text()) && one.text() != other.text());
    }

    #[test]
    fn the_role_of_a_token_follows_its_hash() {
        let operator = NewToken::generate("op".parse().unwrap(), Role::Operate).unwrap();
        let file = format!("{}\n{}", operator.line(), new("plain").line());
        let tokens = Tokens::parse(&file).unwrap();
        assert_eq!(tokens.find(operator.text().as_bytes()), Some(("op", Role::Operate)));
        let error = Tokens::parse(&file.replace(":operate", ":admin")).unwrap_err();
        assert_eq!(error.to_string(), "line 1: the role is none of lease, read and operate");
    }

    /// A caller with a wrong token and a listed certificate once had the certificate's role.
    #[test]
    fn a_wrong_token_has_no_role_whatever_certificate_is_beside_it() {
        let (reader, gone) = (new("reader"), new("gone"));
        let tokens = Tokens::parse(&format!("{}:read\nsan=ann.test:operate\n", reader.line())).unwrap();
        let names = ["ann.test".to_owned()];
        let of = |token| tokens.credential(token, &names, Role::Operate);
        assert_eq!(of(None), Credential::Known("san:ann.test".into(), Role::Operate));
        assert_eq!(of(Some(reader.text().as_bytes())), Credential::Known("token:reader".into(), Role::Read));
        for wrong in [gone.text(), ""] {
            assert_eq!(of(Some(wrong.as_bytes())), Credential::Wrong, "{wrong:?}");
        }
    }

    #[test]
    fn names_in_certificates_have_roles() {
        let file = "san=spiffe://prod/ann:read\nsan=Ops.Example.com:operate\n";
        let tokens = Tokens::parse(file).unwrap();
        assert_eq!(tokens.count(), 2);
        let find = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(ToString::to_string).collect();
            tokens.find_client(&names, Role::Read).map(|(name, role)| (name.to_owned(), role))
        };
        assert_eq!(find(&["spiffe://prod/ann"]), Some(("spiffe://prod/ann".into(), Role::Read)));
        let both = find(&["spiffe://prod/ann", "ops.example.com"]);
        assert_eq!(both, Some(("ops.example.com".into(), Role::Operate)), "the greater role");
        assert_eq!(find(&["spiffe://prod/annex", "example.com"]), None);
        assert_eq!(find(&[]), None);
        let error =
            Tokens::parse("san=a.b\nsan=a b:read\nsan=a.b:admin\nsan=a.b:read\nsan=A.b:read").unwrap_err();
        let lines: Vec<_> = error.0.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [1, 2, 3, 5], "{error}");
    }

    #[test]
    fn every_line_with_an_error_is_reported_and_shows_no_secret() {
        let line = new("one").line();
        let file = format!("{line}\nsecret\nname:secret\n{line}\na b:{}\n", "0".repeat(64));
        let error = Tokens::parse(&file).unwrap_err().to_string();
        assert_eq!(
            error,
            "line 2: write NAME:SHA-256, as `tidegate token NAME` prints it; line 3: the text after the colon is not 64 \
             hexadecimal digits; write NAME:SHA-256, as `tidegate token NAME` prints it; line 4: the name one occurs twice; \
             choose another; line 5: the name is not 1 to 64 of A-Z a-z 0-9 . _ -"
        );
        let empty = Tokens::parse("# none yet\n").unwrap_err();
        assert_eq!(empty.to_string(), "no token; add a line with `tidegate token NAME`");
    }
}
