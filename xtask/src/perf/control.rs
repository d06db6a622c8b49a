//! Calls of the control API beside a load.

use super::{
    machine::Machine,
    server::{Binaries, Running},
};
use crate::Failure;
use std::{
    io::{Read, Write},
    net::TcpStream,
    process::{Child, Stdio},
};

/// A program that reads the stream of decisions, on the core of the load, with these arguments of `tidegate ctl tail`.
pub(super) fn tail(
    running: &Running,
    args: &[&str],
    machine: &Machine,
    binaries: &Binaries,
) -> Result<Child, Failure> {
    let mut command = machine.on_core(1, &binaries.tidegate);
    command.args(["ctl", "tail", "--json", "--addr"]).arg(running.address().to_string());
    command.arg("--token-file").arg(binaries.token()).args(args);
    let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
    command.spawn().map_err(|error| format!("no reader of decisions: {error}"))
}

/// Ends that program, which must not have ended before.
pub(super) fn end_tail(mut child: Child) -> Result<(), Failure> {
    let ended = child.try_wait().map_err(|error| error.to_string())?;
    // It may have ended.
    let _ = child.kill();
    let _ = child.wait();
    ended.map_or(Ok(()), |status| Err(format!("the reader of decisions ended: {status}")))
}

/// Has decisions recorded from now on.
pub(super) fn record(running: &Running) -> Result<(), Failure> {
    let (Some(http), Some(token)) = (running.http, &running.token) else {
        return Err("the server has no port for the control API".to_owned());
    };
    let request = format!(
        "POST /control/v1/RecordDecisions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\
         content-type: application/json\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{{}}"
    );
    let mut response = String::new();
    let sent = TcpStream::connect(http).and_then(|mut stream| {
        stream.write_all(request.as_bytes())?;
        stream.read_to_string(&mut response)
    });
    sent.map_err(|error| format!("decisions cannot be recorded: {error}"))?;
    match response.starts_with("HTTP/1.1 200") {
        true => Ok(()),
        false => Err(format!("decisions cannot be recorded: {response}")),
    }
}
