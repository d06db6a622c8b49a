//! Roles in the control API by the names in client certificates.

use crate::{
    support::{Server, certificates::Pair, eventually_blocking},
    tls::Pki,
};
use std::{fs, process::Command};

const OPERATOR: &str = "spiffe://cluster.local/ns/ops/sa/ann";

/// Runs `tidegate ctl` with the certificate `name` of the folder: whether it succeeded, and what it printed.
fn ctl(pki: &Pki, server: &Server, name: &str, args: &[&str]) -> (bool, String) {
    let file = |name: String| pki.path(&name).to_str().expect("UTF-8").to_owned();
    let (ca, cert, key) = (file("ca.crt".into()), file(format!("{name}.crt")), file(format!("{name}.key")));
    // The flags of the connection are accepted before and after the name of the operation.
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["ctl", "--addr", server.address(), "--tls-ca", &ca]).args(args);
    let output = command.args(["--tls-cert", &cert, "--tls-key", &key]).output();
    let output = output.expect("the command runs");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn a_name_in_a_client_certificate_has_the_role_that_the_token_file_gives_it() {
    let pki = Pki::new();
    let issue = |name: &str, san: &str| {
        let pair: Pair = pki.authority.issue(&[san]);
        pair.write(pki.folder.path(), name);
    };
    issue("ann", OPERATOR);
    issue("bob", "bob.test");
    issue("eve", "eve.test");
    let file = pki.path("roles");
    let roles = |of_ann: &str| format!("san={OPERATOR}:{of_ann}\nsan=Bob.test:read\n");
    fs::write(&file, roles("operate")).expect("written");
    let server =
        pki.start_mutual(&["--control", "loopback", "--http-token-file", file.to_str().expect("UTF-8")]);
    let block: &[&str] = &["block", "set", "user=mallory", "--id", "m", "--reason", "flood"];

    let (is_ok, shown) = ctl(&pki, &server, "ann", &["status"]);
    assert!(is_ok && shown.contains(&format!("san:{OPERATOR} (OPERATE)")), "{shown}");
    let (is_ok, shown) = ctl(&pki, &server, "bob", &["status"]);
    assert!(is_ok && shown.contains("san:bob.test (READ)"), "{shown}");
    let (is_ok, shown) = ctl(&pki, &server, "bob", block);
    assert!(!is_ok && shown.contains("san:bob.test has the role read"), "{shown}");
    let (is_ok, shown) = ctl(&pki, &server, "eve", &["status"]);
    assert!(!is_ok && shown.contains("bearer token"), "{shown}");
    let (is_ok, shown) = ctl(&pki, &server, "ann", block);
    assert!(is_ok, "{shown}");
    let (is_ok, shown) = ctl(&pki, &server, "bob", &["audit"]);
    assert!(
        is_ok && shown.lines().any(|line| line.contains(OPERATOR) && line.contains("SetBlock")),
        "{shown}"
    );

    // A wrong token is refused, whatever certificate comes with it.
    for wrong in ["tidegate_wrong", "x"] {
        let (is_ok, shown) = ctl(&pki, &server, "ann", &["--token", wrong, "block", "delete", "m"]);
        assert!(!is_ok && shown.contains("bearer token"), "{shown}");
    }

    // The file is watched.
    fs::write(&file, roles("read")).expect("written");
    let is_denied = || {
        let (is_ok, shown) = ctl(&pki, &server, "ann", &["block", "delete", "m"]);
        !is_ok && shown.contains("has the role read")
    };
    server.logged("HTTP tokens reloaded");
    eventually_blocking("the role of the file", is_denied);
}
