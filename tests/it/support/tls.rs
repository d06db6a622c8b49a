//! TLS clients of tests.

use super::{
    certificates::{Authority, Pair},
    http2::{Answer, Connection, SHOULD_RATE_LIMIT, grpc, plain},
};
use prost::Message as _;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
};
use std::{io, sync::Arc};
use tidegate::api::pb::service::RateLimitRequest;
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

/// A client that trusts an authority and offers HTTP/2.
pub fn client(trusted: &Authority, own: Option<&Pair>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(trusted.pem.as_bytes()).expect("PEM")).expect("an authority");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().expect("ring has them");
    let builder = builder.with_root_certificates(roots);
    let mut config = match own {
        None => builder.with_no_client_auth(),
        Some(Pair { cert, key }) => {
            let chain = vec![CertificateDer::from_pem_slice(cert.as_bytes()).expect("PEM")];
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("PEM");
            builder.with_client_auth_cert(chain, key).expect("they belong together")
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(config)
}

/// Connects and completes the handshake, as far as the client can know.
pub async fn connect(address: &str, config: &Arc<ClientConfig>) -> io::Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from("localhost").expect("a DNS name");
    let socket = TcpStream::connect(address).await?;
    // HEADERS and DATA are written apart: the second would wait for a delayed acknowledgement of the first.
    socket.set_nodelay(true)?;
    TlsConnector::from(Arc::clone(config)).connect(name, socket).await
}

/// Connects and requests a decision; an error if the server refuses the client.
pub async fn decide(address: &str, config: &Arc<ClientConfig>) -> io::Result<Answer> {
    let stream = connect(address, config).await?;
    let connection = Connection::over(stream).await.map_err(io::Error::other)?;
    request(&connection).await.map_err(io::Error::other)
}

/// Requests a decision of the demo rules.
pub async fn request(connection: &Connection) -> Result<Answer, h2::Error> {
    let descriptors = vec![super::descriptor(&[("api_key", "a")])];
    let message = RateLimitRequest { domain: "demo".into(), descriptors, hits_addend: 0 };
    connection.send(grpc(SHOULD_RATE_LIMIT), plain(&message.encode_to_vec())).await
}
