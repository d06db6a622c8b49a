//! Errors of commands name the place and the remedy.

use crate::{
    support::{Server, certificates::replace},
    tls::Pki,
};
use std::{fs, net::TcpListener, path::Path, process::Command};

/// The standard error of a command that fails.
fn error_of(args: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    let done = command.args(args).env_remove("TIDEGATE_ADDR").output().expect("the command runs");
    assert!(!done.status.success(), "{args:?} succeeded");
    String::from_utf8(done.stderr).expect("UTF-8")
}

fn check(args: &[&str], parts: &[&str]) {
    let error = error_of(args);
    let absent: Vec<_> = parts.iter().filter(|part| !error.contains(**part)).collect();
    assert!(absent.is_empty(), "{args:?} lacks {absent:?}:\n{error}");
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary paths are UTF-8")
}

#[test]
fn an_address_in_use_has_the_flag_that_names_it() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("an address").to_string();
    let error = error_of(&["serve", "--listen", "127.0.0.1:0", "--http-listen", &address]);
    assert!(error.contains(&format!("cannot listen on {address}")), "{error}");
    assert!(error.contains("choose another with --http-listen"), "{error}");
    check(&["serve", "--listen", &address], &["choose another with --listen"]);
}

#[test]
fn a_plain_client_at_a_port_with_tls_is_referred_to_its_flags() {
    let pki = Pki::new();
    let server = pki.start(&[]);
    let address = server.address();
    let remedy = &["if the port has TLS", "--tls-ca"];
    check(&["call", "demo", "api_key=a", "--addr", address], remedy);
    check(&["health", "--addr", address], remedy);
    check(&["ctl", "--addr", address, "status"], remedy);
    check(&["bench", address, "-d", "30s"], remedy);
}

#[test]
fn an_error_of_a_client_with_tls_does_not_say_that_it_has_none() {
    // Another service with TLS, which does not speak HTTP/2; here it is the HTTP port.
    let pki = Pki::new();
    let (cert, key, ca) = (pki.path("server.crt"), pki.path("server.key"), pki.path("ca.crt"));
    let server = Server::start(&[
        "--http-listen",
        "127.0.0.1:0",
        "--http-tls-cert",
        text(&cert),
        "--http-tls-key",
        text(&key),
    ]);
    let address = format!("127.0.0.1:{}", server.admin_port());
    for args in [
        &["call", "demo", "api_key=a", "--addr", &address, "--tls-ca", text(&ca)][..],
        &["health", "--addr", &address, "--tls-ca", text(&ca)],
        &["bench", &address, "-d", "100ms", "--tls-ca", text(&ca)],
    ] {
        let error = error_of(args);
        assert!(error.contains(&address) && !error.contains("without TLS"), "{args:?}: {error}");
        assert!(!error.contains("if the port has TLS"), "{args:?}: {error}");
    }
}

#[test]
fn a_pem_file_that_is_cut_short_is_reported_in_words() {
    let pki = Pki::new();
    let (cert, key) = (pki.path("server.crt"), pki.path("server.key"));
    let cut = |path: &Path| {
        let text = fs::read_to_string(path).expect("a file of the test");
        let cut = pki.path("cut.pem");
        replace(&cut, &text[..text.len() / 2]);
        cut
    };
    let serve = |cert: &Path, key: &Path| {
        error_of(&["serve", "--listen", "127.0.0.1:0", "--tls-cert", text(cert), "--tls-key", text(key)])
    };
    let error = serve(&cut(&cert), &key);
    assert!(error.contains("cut.pem: the line -----END CERTIFICATE----- is missing"), "{error}");
    assert!(error.contains("cut short"), "{error}");
    let error = serve(&cert, &cut(&key));
    assert!(error.contains("cut.pem: the line -----END PRIVATE KEY----- is missing"), "{error}");
}

#[test]
fn a_number_with_a_unit_is_shown_in_digits() {
    let serve = |flag: &str, value: &str| error_of(&["serve", flag, value]);
    for (value, remedy) in [
        ("10M", "write the number in digits: 10000000"),
        ("64Ki", "write the number in digits: 65536"),
        ("1_000", "write the number in digits: 1000"),
        ("0", "write at least 1"),
        ("many", "write a whole number"),
        ("99999999999999999999", "too large"),
    ] {
        let error = serve("--max-counters", value);
        assert!(error.contains(&format!("'{value}'")) && error.contains(remedy), "{value}: {error}");
    }
    assert!(serve("--threads", "0").contains("write at least 1"));
    assert!(serve("--max-connections", "10k").contains("in digits: 10000"));
}

#[test]
fn an_address_of_a_store_without_its_scheme_is_shown_with_it() {
    let serve = ["serve", "--listen", "127.0.0.1:0", "--counters"];
    check(&[&serve[..], &["localhost:6379"]].concat(), &["--counters: write redis://localhost:6379"]);
    check(&[&serve[..], &["http://localhost"]].concat(), &["--counters: write redis://host:port"]);
}
