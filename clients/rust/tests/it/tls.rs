//! TLS and mTLS against a server that requires client certificates.

use crate::servers::{serve, serve_on};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use std::fs;
use tidegate_client::{BuildError, Decision, Reason, Tidegate};
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

const RULES: &str =
    "{domain: d, descriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 100}}]}";

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::new(vec![]).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("a certificate")
}

/// A certificate for loopback, for servers and clients, and its key.
fn issue(authority: &Authority) -> (String, String) {
    issue_for(authority, &["localhost", "127.0.0.1"])
}

fn issue_for(authority: &Authority, names: &[&str]) -> (String, String) {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let mut params = CertificateParams::new(names).expect("names");
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().expect("a key");
    (params.signed_by(&key, authority).expect("a certificate").pem(), key.serialize_pem())
}

fn config(trusted: &Authority, issuer: Option<&Authority>) -> ClientTlsConfig {
    let config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(trusted.pem()));
    match issuer.map(issue) {
        Some((certificate, key)) => config.identity(Identity::from_pem(certificate, key)),
        None => config,
    }
}

async fn decide(address: &str, tls: Option<ClientTlsConfig>) -> Decision {
    let builder = Tidegate::builder(address).domain("d").timeout(std::time::Duration::from_secs(5));
    let builder = match tls {
        Some(tls) => builder.tls(tls),
        None => builder,
    };
    builder.build().expect("a client").limit([("user", "a")]).await.expect("a decision")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_of_both_sides_are_verified() {
    let (trusted, other) = (authority(), authority());
    let folder = tempfile::tempdir().expect("a directory");
    let write = |name: &str, text: String| {
        let path = folder.path().join(name);
        fs::write(&path, text).expect("a file");
        path.to_str().expect("UTF-8").to_owned()
    };
    let (certificate, key) = issue(&trusted);
    let (certificate, key) = (write("server.crt", certificate), write("server.key", key));
    let clients = write("clients.crt", trusted.pem());
    let files = ["--tls-cert", &certificate, "--tls-key", &key, "--tls-client-ca", &clients];
    let server = serve(RULES, &files);

    let verified = decide(&server.address, Some(config(&trusted, Some(&trusted)))).await;
    assert_eq!((verified.reason, verified.remaining), (Reason::Decided, Some(99)), "{verified:?}");
    let untrusted = decide(&server.address, Some(config(&other, Some(&trusted)))).await;
    assert_eq!(untrusted.reason, Reason::FailedOpen, "{untrusted:?}");
    assert!(untrusted.error_message.unwrap_or_default().contains("invalid peer certificate"));
    for refused in [Some(config(&trusted, Some(&other))), Some(config(&trusted, None)), None] {
        let decision = decide(&server.address, refused).await;
        assert_eq!(decision.reason, Reason::FailedOpen, "{decision:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_of_several_servers_is_verified_by_its_own_name() {
    let (trusted, folder) = (authority(), tempfile::tempdir().expect("a directory"));
    let server = |host: &str, certified: &str| {
        let (certificate, key) = issue_for(&trusted, &[certified]);
        let write = |name: &str, text: String| {
            let path = folder.path().join(format!("{host}-{name}"));
            fs::write(&path, text).expect("a file");
            path.to_str().expect("UTF-8").to_owned()
        };
        let (certificate, key) = (write("server.crt", certificate), write("server.key", key));
        serve_on(&format!("{host}:0"), RULES, &["--tls-cert", &certificate, "--tls-key", &key])
    };
    let servers = [server("127.0.0.1", "127.0.0.1"), server("127.0.0.2", "127.0.0.2")];
    let addresses = servers.each_ref().map(|server| server.address.clone());
    let [first, second] = addresses;
    let builder =
        Tidegate::builder(first).address(second).domain("d").timeout(std::time::Duration::from_secs(5));
    let client = builder.tls(config(&trusted, None)).build().expect("a client");
    let mut firsts = 0;
    for _ in 0..10 {
        let decision = client.limit([("user", "a")]).await.expect("a decision");
        assert_eq!(decision.reason, Reason::Decided, "{decision:?}");
        firsts += u32::from(decision.remaining == Some(99));
    }
    assert_eq!(firsts, 2, "the first of each server");

    let stranger = server("127.0.0.3", "127.0.0.1");
    let decision = decide(&stranger.address, Some(config(&trusted, None))).await;
    assert_eq!(decision.reason, Reason::FailedOpen, "{decision:?}");
}

#[tokio::test]
async fn tls_for_an_address_of_plain_http_is_an_error() {
    for address in ["http://127.0.0.1:1", "HTTP://127.0.0.1:1"] {
        let built = Tidegate::builder(address).domain("d").tls(ClientTlsConfig::new()).build();
        assert!(matches!(built, Err(BuildError::Plaintext { .. })), "{built:?}");
    }
    for address in ["https://127.0.0.1:1", "127.0.0.1:1", "unix:/nowhere"] {
        Tidegate::builder(address).domain("d").tls(ClientTlsConfig::new()).build().expect("a client");
    }
}
