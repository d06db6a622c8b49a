//! The loop that sends requests and takes answers: one thread, all connections.

use super::{
    call_headers::call_headers,
    connect::{ConnectError, Socket, authority, connect},
    keys::{Keys, Random},
    outcome::{CallResponse, Failure, Outcome},
    pace::{Length, Pace},
    server_cpu::{CpuError, ServerProcess},
    tally::Tally,
    template::Template,
};
use crate::{
    clock::{Clock as _, SystemClock},
    http2::{
        ConnectionError,
        client::{BODY_MAX, Connection, Finished, RequestEncoder, WindowTooSmall},
    },
    server::ListenAddress,
};
use mio::{Events, Interest, Poll, Token};
use std::{
    io::{self, Read as _, Write as _},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

const READ_BYTES: usize = 128 << 10;
const PROGRESS_INTERVAL: u64 = 200_000_000;
/// How long the run waits for answers after its last request.
const GRACE: u64 = 5_000_000_000;
/// A server that answers nothing at all for so long is not waited for.
const STALL: u64 = 10_000_000_000;

/// What to do, and to whom.
pub(super) struct Plan {
    pub(super) address: ListenAddress,
    pub(super) connections: usize,
    /// The most calls under way on a connection.
    pub(super) streams: usize,
    /// Requests a second, for an open loop.
    pub(super) rate: Option<f64>,
    pub(super) warm_up: Duration,
    pub(super) length: Length,
    /// What each call says it waits for.
    pub(super) timeout: Option<Duration>,
    pub(super) template: Template,
    pub(super) keys: Keys,
    pub(super) seed: u64,
    /// Never sleep while waiting for answers.
    pub(super) busy: bool,
    pub(super) server: Option<ServerProcess>,
}

/// What a run has found.
pub(super) struct Measured {
    pub(super) tally: Tally,
    /// From the end of the warm-up to the last answer.
    pub(super) nanos: u64,
    /// Connections that ended and were made anew.
    pub(super) reconnects: u64,
    /// Processor time of the server meanwhile.
    pub(super) server_cpu_nanos: Option<u64>,
}

/// A run that cannot go on.
#[derive(Debug, thiserror::Error)]
pub(super) enum LoadError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("the server violates HTTP/2: {0}; is it a gRPC server without TLS?")]
    Connection(#[from] ConnectionError),
    #[error("the server answers in HTTP/1; give the address of a gRPC server")]
    Http1,
    #[error(transparent)]
    WindowTooSmall(#[from] WindowTooSmall),
    #[error(transparent)]
    Cpu(#[from] CpuError),
    #[error("a request of {0} bytes is too large; the most is {BODY_MAX}")]
    RequestTooLarge(usize),
    #[error("the server closed a new connection without an answer{}: is it a gRPC server?", because(.0))]
    Closed(Option<&'static str>),
    #[error("the server answered nothing for {} s; {in_flight} requests are under way", STALL / 1_000_000_000)]
    Stalled { in_flight: usize },
    #[error("waiting for sockets failed: {0}")]
    Poll(#[from] io::Error),
}

fn because(farewell: &Option<&'static str>) -> String {
    farewell.map(|code| format!(" ({code})")).unwrap_or_default()
}

/// One connection with its socket.
struct Link {
    socket: Box<dyn Socket>,
    connection: Connection<CallResponse>,
    has_answered: bool,
}

impl Link {
    fn flush(&mut self) -> io::Result<()> {
        while !self.connection.unwritten().is_empty() {
            match self.socket.write(self.connection.unwritten()) {
                Ok(count) => self.connection.wrote(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// A run under way.
struct Load<'a> {
    plan: &'a mut Plan,
    clock: SystemClock,
    random: Random,
    pace: Pace,
    poll: Poll,
    headers: RequestEncoder,
    links: Vec<Link>,
    /// Where the search for room starts next, so that an open loop deals its requests round.
    turn: usize,
    /// No request is longer.
    longest_message: usize,
    measurement: Option<Measurement>,
    tally: Tally,
    /// Calls just finished; empty but while answers are taken.
    finished: Vec<Finished<CallResponse>>,
    buffer: Vec<u8>,
    last_answer: u64,
    /// When an answer came or none was to come: what makes a stall.
    last_content: u64,
    reconnects: u64,
}

/// The warm-up is over.
struct Measurement {
    /// What the server had used then.
    cpu_nanos: Option<u64>,
}

/// Runs the plan to its end, or until `interrupted`. `progress` is called a few times a second with the tally, the
/// nanoseconds measured and how much of the run is behind.
pub(super) fn run(
    plan: &mut Plan,
    interrupted: &AtomicBool,
    mut progress: impl FnMut(&Tally, u64, f64),
) -> Result<Measured, LoadError> {
    let mut load = Load::new(plan)?;
    let mut events = Events::with_capacity(256);
    let mut next_progress = load.now();
    while !interrupted.load(Ordering::Relaxed) {
        let now = load.now();
        if load.measurement.is_none() && now >= load.pace.measured_from() {
            load.measurement = Some(Measurement { cpu_nanos: load.server_cpu()? });
        }
        if now >= next_progress {
            next_progress = now + PROGRESS_INTERVAL;
            progress(&load.tally, now.saturating_sub(load.pace.measured_from()), load.pace.progress(now));
        }
        // A closed loop sends when an answer comes; only an open one has requests that become due by themselves.
        if load.plan.rate.is_some() {
            load.send_due(now)?;
        }
        if load.is_done(now)? {
            load.give_up_the_rest(now);
            break;
        }
        let wait = if load.plan.busy { Duration::ZERO } else { Duration::from_nanos(PROGRESS_INTERVAL) };
        match load.poll.poll(&mut events, Some(wait)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error.into()),
            _ => {}
        }
        for event in &events {
            load.on_event(event.token().0)?;
        }
    }
    load.conclude()
}

impl<'a> Load<'a> {
    fn new(plan: &'a mut Plan) -> Result<Self, LoadError> {
        let longest_message = plan.template.longest_message();
        if longest_message > BODY_MAX {
            return Err(LoadError::RequestTooLarge(longest_message));
        }
        let headers = call_headers(authority(&plan.address), plan.timeout);
        let poll = Poll::new()?;
        let links = (0..plan.connections)
            .map(|position| open_link(&plan.address, &headers, &poll, position))
            .collect::<Result<_, _>>()?;
        let clock = SystemClock::new();
        let start = clock.now().as_nanos();
        let warm_up = u64::try_from(plan.warm_up.as_nanos()).unwrap_or(u64::MAX);
        Ok(Self {
            random: Random::from_seed(plan.seed),
            pace: Pace::new(start, warm_up, plan.length, plan.rate),
            plan,
            clock,
            poll,
            headers,
            links,
            turn: 0,
            longest_message,
            measurement: None,
            tally: Tally::new(),
            finished: Vec::new(),
            buffer: vec![0; READ_BYTES],
            last_answer: start,
            last_content: start,
            reconnects: 0,
        })
    }

    fn now(&self) -> u64 {
        self.clock.now().as_nanos()
    }

    fn server_cpu(&self) -> Result<Option<u64>, CpuError> {
        self.plan.server.as_ref().map(ServerProcess::cpu_nanos).transpose()
    }

    fn in_flight(&self) -> usize {
        self.links.iter().map(|link| link.connection.in_flight()).sum()
    }

    fn has_room(&self, position: usize) -> Result<bool, WindowTooSmall> {
        let connection = &self.links[position].connection;
        Ok(connection.in_flight() < self.plan.streams && connection.has_room(self.longest_message)?)
    }

    fn start(&mut self, position: usize, intended: u64) {
        let key = self.plan.keys.draw(&mut self.random);
        self.links[position].connection.start(self.plan.template.message(key), intended);
    }

    /// Sends what is due over all connections, as far as there is room.
    fn send_due(&mut self, now: u64) -> Result<(), LoadError> {
        let mut full = 0;
        while full < self.links.len() {
            let position = self.turn % self.links.len();
            self.turn = self.turn.wrapping_add(1);
            if !self.has_room(position)? {
                full += 1;
                continue;
            }
            let Some(intended) = self.pace.next(now) else {
                break;
            };
            self.start(position, intended);
            full = 0;
        }
        (0..self.links.len()).try_for_each(|position| self.flush(position, now))
    }

    /// Takes what a connection has to say, and sends on it what is due.
    fn on_event(&mut self, position: usize) -> Result<(), LoadError> {
        let is_open = self.take_answers(position)?;
        let now = self.now();
        let link = &self.links[position];
        if !is_open || (link.connection.is_used_up() && link.connection.in_flight() == 0) {
            return self.replace(position, now);
        }
        while self.has_room(position)? {
            let Some(intended) = self.pace.next(now) else {
                break;
            };
            self.start(position, intended);
        }
        self.flush(position, now)
    }

    /// Reads until there is nothing more; false when the connection has ended.
    fn take_answers(&mut self, position: usize) -> Result<bool, LoadError> {
        loop {
            let link = &mut self.links[position];
            match link.socket.read(&mut self.buffer) {
                Ok(0) => return Ok(false),
                Ok(count) => {
                    if !link.has_answered && self.buffer.starts_with(b"HTTP/1.") {
                        return Err(LoadError::Http1);
                    }
                    link.connection.read(&self.buffer[..count], &mut self.finished)?;
                    link.has_answered |= !self.finished.is_empty();
                    self.record(self.now());
                    // Less than asked for: the socket is empty, and the poll will say when it no longer is.
                    if count < self.buffer.len() {
                        return Ok(true);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Ok(false),
            }
        }
    }

    fn flush(&mut self, position: usize, now: u64) -> Result<(), LoadError> {
        match self.links[position].flush() {
            Ok(()) => Ok(()),
            Err(_) => self.replace(position, now),
        }
    }

    fn record(&mut self, now: u64) {
        if !self.finished.is_empty() {
            (self.last_answer, self.last_content) = (now, now);
        }
        for Finished { token: started, end } in self.finished.drain(..) {
            if self.pace.counts(started) {
                self.tally.record(Outcome::from(end), now - started);
            }
        }
    }

    /// Makes a connection anew that has ended, if there is more to send.
    fn replace(&mut self, position: usize, now: u64) -> Result<(), LoadError> {
        let link = &mut self.links[position];
        let was_of_use = link.has_answered;
        let farewell = link.connection.goaway_error();
        if link.connection.in_flight() > 0 {
            (self.last_answer, self.last_content) = (now, now);
        }
        let lost = link.connection.close().filter(|&started| self.pace.counts(started)).count();
        self.tally.fail(Failure::ConnectionLost, lost as u64);
        if self.pace.is_over(now) {
            return Ok(());
        }
        if !was_of_use {
            return Err(LoadError::Closed(farewell));
        }
        self.reconnects += 1;
        self.links[position] = open_link(&self.plan.address, &self.headers, &self.poll, position)?;
        Ok(())
    }

    /// Whether there is nothing more to send and nothing more to wait for.
    fn is_done(&mut self, now: u64) -> Result<bool, LoadError> {
        let in_flight = self.in_flight();
        if in_flight == 0 && self.links.iter().all(|link| link.connection.is_ready()) {
            self.last_content = now;
        }
        let quiet = now - self.last_content;
        if self.pace.is_over(now) {
            return Ok(in_flight == 0 || quiet > GRACE);
        }
        if quiet > STALL {
            return Err(LoadError::Stalled { in_flight });
        }
        Ok(self.pace.deadline().is_some_and(|deadline| now > deadline.saturating_add(GRACE)))
    }

    /// What is still without an answer will get none.
    fn give_up_the_rest(&mut self, now: u64) {
        for link in &mut self.links {
            let unanswered = link.connection.close().filter(|&started| self.pace.counts(started)).count();
            self.tally.fail(Failure::NoAnswer, unanswered as u64);
        }
        self.tally.fail(Failure::NoAnswer, self.pace.overdue(now));
    }

    fn conclude(self) -> Result<Measured, LoadError> {
        let cpu_after = self.server_cpu()?;
        let cpu_before = self.measurement.and_then(|measurement| measurement.cpu_nanos);
        Ok(Measured {
            nanos: self.last_answer.saturating_sub(self.pace.measured_from()),
            tally: self.tally,
            reconnects: self.reconnects,
            server_cpu_nanos: cpu_before.zip(cpu_after).map(|(before, after)| after.saturating_sub(before)),
        })
    }
}

/// A new connection, known to the poll by its position.
fn open_link(
    address: &ListenAddress,
    headers: &RequestEncoder,
    poll: &Poll,
    position: usize,
) -> Result<Link, LoadError> {
    let mut socket = connect(address)?;
    let connection = Connection::new(headers.clone());
    poll.registry().register(&mut socket, Token(position), Interest::READABLE | Interest::WRITABLE)?;
    Ok(Link { socket, connection, has_answered: false })
}
