//! Listening sockets that systemd bound and passed to the process, in the protocol of sd_listen_fds(3).

use super::Listener;
use listenfd::ListenFd;
use std::{env, io};

/// Name that systemd documents for sockets without one.
const UNNAMED: &str = "unknown";

/// The passed sockets that no listener has taken.
pub struct InheritedSockets {
    sockets: ListenFd,
    /// The name of each socket; empty once it is taken.
    names: Vec<String>,
}

impl InheritedSockets {
    /// The sockets in the environment (`LISTEN_PID`, `LISTEN_FDS`, `LISTEN_FDNAMES`). Removes the variables, so that a second call finds no
    /// sockets.
    pub fn from_env() -> Self {
        let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
        let sockets = ListenFd::from_env();
        let names = names_of(&names, sockets.len());
        Self { sockets, names }
    }

    /// Takes all sockets with this name. An error if there is none.
    pub(super) fn take(&mut self, name: &str) -> io::Result<Vec<Listener>> {
        let indices: Vec<usize> = (0..self.names.len()).filter(|&at| self.names[at] == name).collect();
        if indices.is_empty() {
            let error = format!("{}; set FileDescriptorName={name} in the socket unit", self.found());
            return Err(io::Error::new(io::ErrorKind::NotFound, error));
        }
        indices.into_iter().map(|at| self.take_one(at)).collect()
    }

    fn take_one(&mut self, at: usize) -> io::Result<Listener> {
        self.names[at].clear();
        if let Ok(Some(listener)) = self.sockets.take_tcp_listener(at) {
            return Listener::tcp(listener);
        }
        let listener = self.sockets.take_unix_listener(at).map_err(|_| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                "the socket is neither of TCP nor a Unix stream socket",
            )
        })?;
        Listener::inherited_unix(listener.expect("each name is taken once"))
    }

    /// The remaining sockets, for an error or a log line.
    fn found(&self) -> String {
        let names: Vec<&str> = self.left().collect();
        match names.as_slice() {
            [] => "systemd passed no socket".into(),
            names => format!("systemd passed the sockets {}", names.join(", ")),
        }
    }

    /// Names of sockets that no listener has taken.
    pub fn left(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str).filter(|name| !name.is_empty())
    }
}

/// Names of `count` sockets, from a colon-separated list that may be empty.
fn names_of(list: &str, count: usize) -> Vec<String> {
    let mut names = list.split(':').map(|name| if name.is_empty() { UNNAMED } else { name });
    (0..count).map(|_| names.next().unwrap_or(UNNAMED).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_without_a_name_are_called_unknown() {
        assert_eq!(names_of("", 2), ["unknown", "unknown"]);
        assert_eq!(names_of("grpc:http", 2), ["grpc", "http"]);
        assert_eq!(names_of("grpc", 2), ["grpc", "unknown"]);
        assert_eq!(names_of("grpc:http", 0), Vec::<String>::new());
    }
}
