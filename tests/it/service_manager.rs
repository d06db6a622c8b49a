//! Notifications to the service manager, which the tests play: systemd's datagram socket in `NOTIFY_SOCKET`.

use crate::support::{Server, rules_file};
use std::{os::unix::net::UnixDatagram, time::Duration};

const RULES: &str = "{ domain: demo, descriptors: [] }";

/// A socket as systemd opens it, and its path.
fn notify_socket(folder: &tempfile::TempDir) -> (UnixDatagram, String) {
    let path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    (socket, path.to_str().expect("temporary paths are UTF-8").to_owned())
}

fn received(socket: &UnixDatagram) -> String {
    let mut message = [0; 256];
    let length = socket.recv(&mut message).expect("a notification");
    String::from_utf8(message[..length].to_vec()).expect("text")
}

#[test]
fn systemd_is_notified_of_readiness_the_watchdog_and_the_stop() {
    let folder = tempfile::tempdir().expect("a directory");
    let (socket, path) = notify_socket(&folder);
    let rules = rules_file(RULES);
    let variables = [("NOTIFY_SOCKET", &*path), ("WATCHDOG_USEC", "600000")];
    let mut server = Server::with_variables(rules.path(), &[], &variables);
    assert_eq!(received(&socket), "STATUS=Restoring counters");
    assert_eq!(received(&socket), "READY=1\nSTATUS=Serving");
    for _ in 0..3 {
        assert_eq!(received(&socket), "WATCHDOG=1");
    }
    server.signal(rustix::process::Signal::TERM);
    let mut last = received(&socket);
    while last == "WATCHDOG=1" {
        last = received(&socket);
    }
    assert_eq!(last, "STOPPING=1\nSTATUS=Draining");
    assert!(server.wait().success());
}

#[test]
fn without_a_watchdog_there_are_no_pings() {
    let folder = tempfile::tempdir().expect("a directory");
    let (socket, path) = notify_socket(&folder);
    let rules = rules_file(RULES);
    let another = [("NOTIFY_SOCKET", &*path), ("WATCHDOG_USEC", "1000"), ("WATCHDOG_PID", "1")];
    let server = Server::with_variables(rules.path(), &[], &another);
    assert!(server.terminate().success());
    let messages = [received(&socket), received(&socket), received(&socket)];
    assert_eq!(messages[1..], ["READY=1\nSTATUS=Serving", "STOPPING=1\nSTATUS=Draining"]);
}

#[test]
fn a_service_manager_that_is_gone_keeps_no_server_from_serving() {
    let rules = rules_file(RULES);
    let server = Server::with_variables(rules.path(), &[], &[("NOTIFY_SOCKET", "/nowhere/notify")]);
    assert!(server.log().iter().any(|line| line.contains("cannot reach the service manager")));
    assert!(server.terminate().success());
}
