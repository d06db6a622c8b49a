//! A plain HTTP/1.1 client: one connection per request, from any address of loopback.

use super::waiting::PATIENCE;
use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpSocket,
};

/// Sends a request without a body to a port of loopback, from an address of loopback.
pub async fn fetch(
    from: Ipv4Addr,
    port: u16,
    request: http::request::Builder,
) -> io::Result<http::Response<Vec<u8>>> {
    send(from, port, request.body("").expect("tests write well-formed requests")).await
}

/// Sends a request to a port of loopback, from an address of loopback.
pub async fn send(
    from: Ipv4Addr,
    port: u16,
    request: http::Request<impl AsRef<[u8]>>,
) -> io::Result<http::Response<Vec<u8>>> {
    let response = tokio::time::timeout(PATIENCE, exchange(from, port, request));
    response.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

async fn exchange(
    from: Ipv4Addr,
    port: u16,
    request: http::Request<impl AsRef<[u8]>>,
) -> io::Result<http::Response<Vec<u8>>> {
    let body = request.body().as_ref();
    let mut head =
        format!("{} {} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n", request.method(), request.uri());
    if !body.is_empty() {
        head += &format!("content-length: {}\r\n", body.len());
    }
    for (name, value) in request.headers() {
        head += &format!("{name}: {}\r\n", value.to_str().expect("tests write ASCII headers"));
    }
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((from, 0)))?;
    let mut stream = socket.connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await?;
    stream.write_all(&[(head + "\r\n").as_bytes(), body].concat()).await?;
    let mut stream = BufReader::new(stream);
    let head = read_head(&mut stream).await?;
    // Does not wait for the end of the stream: after a response of its own, Envoy holds a connection open for a second.
    let length = head.headers().get("content-length").and_then(|length| length.to_str().ok()?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).await?;
    Ok(head.map(|()| body))
}

/// The status and the headers, up to the empty line.
async fn read_head(stream: &mut (impl AsyncBufReadExt + Unpin)) -> io::Result<http::Response<()>> {
    let malformed = |line: &str| io::Error::new(io::ErrorKind::InvalidData, format!("no HTTP/1.1: {line:?}"));
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    let status = line.split(' ').nth(1).ok_or_else(|| malformed(&line))?;
    let mut response = http::Response::builder().status(status);
    loop {
        line.clear();
        stream.read_line(&mut line).await?;
        if line == "\r\n" {
            return response.body(()).map_err(io::Error::other);
        }
        let (name, value) = line.split_once(':').ok_or_else(|| malformed(&line))?;
        response = response.header(name, value.trim());
    }
}
