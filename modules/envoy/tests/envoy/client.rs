//! HTTP/1.1 by hand, so that requests can have bytes that a client library refuses.

use std::{
    io::{self, BufRead, BufReader, Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

/// A request.
#[derive(Clone, Debug, Default)]
pub struct Request {
    pub method: String,
    pub path: Vec<u8>,
    /// `test` if none is set.
    pub host: Option<String>,
    pub headers: Vec<(String, Vec<u8>)>,
}

impl Request {
    pub fn get(path: &str) -> Self {
        Self { method: "GET".to_owned(), path: path.into(), ..Self::default() }
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }
}

/// A response.
#[derive(Clone, Debug, PartialEq)]
pub struct Response {
    pub status: u16,
    /// In the order received, with lower-case names.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Response {
    /// The first value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }
}

/// A connection that is kept open.
pub struct Connection(BufReader<TcpStream>);

impl Connection {
    pub fn open(address: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Sends a request and reads its response, which has a content-length.
    pub fn send(&mut self, request: &Request) -> io::Result<Response> {
        let mut bytes = format!("{} ", request.method).into_bytes();
        bytes.extend_from_slice(&request.path);
        let host = request.host.as_deref().unwrap_or("test");
        bytes.extend_from_slice(format!(" HTTP/1.1\r\nhost: {host}\r\n").as_bytes());
        for (name, value) in &request.headers {
            bytes.extend_from_slice(name.as_bytes());
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(value);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"\r\n");
        self.0.get_mut().write_all(&bytes)?;
        let status = self.line()?;
        let status = status.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or(io::ErrorKind::InvalidData)?;
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').ok_or(io::ErrorKind::InvalidData)?;
            headers.push((name.to_ascii_lowercase(), value.trim_start().to_owned()));
        }
        let mut response = Response { status, headers, body: Vec::new() };
        if request.method == "HEAD" {
            return Ok(response);
        }
        if response.header("transfer-encoding") == Some("chunked") {
            loop {
                let length =
                    usize::from_str_radix(&self.line()?, 16).map_err(|_| io::ErrorKind::InvalidData)?;
                let mut chunk = vec![0; length];
                self.0.read_exact(&mut chunk)?;
                self.line()?;
                if length == 0 {
                    break;
                }
                response.body.append(&mut chunk);
            }
        } else {
            let length =
                response.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
            response.body = vec![0; length];
            self.0.read_exact(&mut response.body)?;
        }
        Ok(response)
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        self.0.read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line: String = line.into_iter().map(char::from).collect();
        Ok(line.trim_end().to_owned())
    }
}
