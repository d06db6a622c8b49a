//! The loop that sends requests and receives responses: one thread, all connections.

use crate::{
    call_headers::call_headers,
    connect::Target,
    hold::{HoldFigures, HoldPlan, Holds},
    keys::{Keys, Random},
    link::Link,
    load_error::{LoadError, STALL},
    outcome::{CallResponse, Failure, Outcome},
    pace::{Length, Pace},
    server_cpu::{CpuError, ServerProcess},
    tally::Tally,
    template::Template,
};
use mio::{Events, Poll};
use std::{
    io::{self, Read as _},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};
use tidegate_core::clock::{Clock as _, SystemClock};
use tidegate_http2::client::{BODY_MAX, Finished, RequestEncoder, StreamEnd, WindowTooSmall};

const READ_BYTES: usize = 128 << 10;
const PROGRESS_INTERVAL: u64 = 200_000_000;
/// Time to wait for responses after the last request.
const GRACE: u64 = 5_000_000_000;
/// Time to wait for the responses to the last requests before held requests are ended: some may wait for a slot.
const LAST_ANSWERS: u64 = 1_000_000_000;
/// Time after which an end for which there was no room is sent again.
const RETRY: u64 = 1_000_000;
/// Token of the ends of held requests. It is before any measured time.
const END: u64 = 0;

/// Parameters of a run.
pub struct Plan {
    /// The server.
    pub target: Target,
    /// Number of connections.
    pub connections: usize,
    /// Maximum number of concurrent calls per connection.
    pub streams: usize,
    /// Requests per second of an open loop. None for a closed loop.
    pub rate: Option<f64>,
    /// Duration of the load before the measurement.
    pub warm_up: Duration,
    /// Length of the measurement.
    pub length: Length,
    /// `grpc-timeout` of each call.
    pub timeout: Option<Duration>,
    /// Whether each call has a `traceparent`. It differs from all others and is not sampled.
    pub traceparent: bool,
    /// The requests.
    pub template: Template,
    /// How requests that take slots or estimates are held and ended. None to leave their ends to the server.
    pub hold: Option<HoldPlan>,
    /// The keys of the requests.
    pub keys: Keys,
    /// Seed of the drawn keys.
    pub seed: u64,
    /// Whether to poll without sleeping.
    pub busy: bool,
    /// The server, if it is a process of this machine whose CPU time is measured.
    pub server: Option<ServerProcess>,
}

/// Measurements of a run.
pub struct Measured {
    /// Counts and latencies.
    pub tally: Tally,
    /// Time from the end of the warm-up to the last response.
    pub nanos: u64,
    /// Number of connections that ended and were replaced.
    pub reconnects: u64,
    /// Figures of requests that were held.
    pub held: Option<HoldFigures>,
    /// CPU time of the server during the measurement.
    pub server_cpu_nanos: Option<u64>,
    /// The reason why the run ended early, although requests had been decided. Example: the server has stopped.
    pub ended_by: Option<LoadError>,
}

/// A run in progress.
struct Load<'a> {
    plan: &'a mut Plan,
    clock: SystemClock,
    random: Random,
    pace: Pace,
    poll: Poll,
    headers: RequestEncoder,
    links: Vec<Link>,
    /// Connection at which an open loop looks for room next (round robin).
    next_link: usize,
    /// Length of the longest request, in bytes.
    longest_message: usize,
    /// Set at the end of the warm-up: the CPU time of the server at that time, if it is measured.
    measured: Option<Option<u64>>,
    tally: Tally,
    holds: Option<Holds>,
    /// Calls that just finished. Empty except while responses are read.
    finished: Vec<Finished<CallResponse>>,
    buffer: Vec<u8>,
    last_response: u64,
    /// Last time at which a response arrived or no response was outstanding.
    last_activity: u64,
    reconnects: u64,
}

/// Runs the plan to its end, or until `interrupted`. Calls `progress` a few times per second with the tally, the measured nanoseconds, and
/// the completed share of the run. Fails if no request was decided.
pub fn run(
    plan: &mut Plan,
    interrupted: &AtomicBool,
    progress: impl FnMut(&Tally, u64, f64),
) -> Result<Measured, LoadError> {
    let mut load = Load::new(plan)?;
    match drive(&mut load, interrupted, progress) {
        Ok(()) => load.conclude(None),
        Err(error) if load.tally.decided() > 0 => {
            let now = load.now();
            load.fail_in_flight(now);
            load.conclude(Some(error))
        }
        Err(error) => Err(error),
    }
}

/// Sends and receives until the end of the plan.
fn drive(
    load: &mut Load<'_>,
    interrupted: &AtomicBool,
    mut progress: impl FnMut(&Tally, u64, f64),
) -> Result<(), LoadError> {
    let mut events = Events::with_capacity(256);
    let mut next_progress = load.now();
    loop {
        let now = load.now();
        if interrupted.load(Ordering::Relaxed) {
            if load.holds.is_none() {
                return Ok(());
            }
            load.pace.stop(now);
        }
        if load.measured.is_none() && now >= load.pace.measured_from() {
            load.measured = Some(load.server_cpu()?);
        }
        if now >= next_progress {
            next_progress = now + PROGRESS_INTERVAL;
            progress(&load.tally, now.saturating_sub(load.pace.measured_from()), load.pace.progress(now));
        }
        // A closed loop sends when responses arrive. Only in an open loop do requests become due with time.
        if load.plan.rate.is_some() {
            load.send_due(now)?;
        }
        load.end_held(now)?;
        if load.is_done(now)? {
            load.fail_in_flight(now);
            return Ok(());
        }
        match load.poll.poll(&mut events, Some(load.wait(now))) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error.into()),
            _ => {}
        }
        for event in &events {
            load.on_event(event.token().0, event.is_read_closed())?;
        }
    }
}

impl<'a> Load<'a> {
    fn new(plan: &'a mut Plan) -> Result<Self, LoadError> {
        let longest_message = plan.template.longest_message();
        if longest_message > BODY_MAX {
            return Err(LoadError::RequestTooLarge(longest_message));
        }
        let headers = call_headers(plan.target.address.authority(), plan.timeout);
        let headers = if plan.traceparent { headers.traced() } else { headers };
        let poll = Poll::new()?;
        let links = (0..plan.connections)
            .map(|position| Link::open(&plan.target, &headers, &poll, position))
            .collect::<Result<_, _>>()?;
        let clock = SystemClock::new();
        let start = clock.now().as_nanos();
        let holds = plan.hold.clone().map(|hold| Holds::new(hold, plan.connections));
        let warm_up = u64::try_from(plan.warm_up.as_nanos()).unwrap_or(u64::MAX);
        Ok(Self {
            random: Random::from_seed(plan.seed),
            pace: Pace::new(start, warm_up, plan.length, plan.rate),
            plan,
            clock,
            poll,
            headers,
            links,
            next_link: 0,
            longest_message,
            measured: None,
            tally: Tally::new(),
            holds,
            finished: Vec::new(),
            buffer: vec![0; READ_BYTES],
            last_response: start,
            last_activity: start,
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

    /// The longest time to wait for sockets.
    fn wait(&self, now: u64) -> Duration {
        if self.plan.busy {
            return Duration::ZERO;
        }
        let next_end = self.holds.as_ref().and_then(Holds::next_end);
        Duration::from_nanos(
            next_end.map_or(PROGRESS_INTERVAL, |end| end.saturating_sub(now).min(PROGRESS_INTERVAL)),
        )
    }

    /// Whether a request may be sent on a connection. In a closed loop, a held request counts as one in flight.
    fn has_room(&self, position: usize) -> Result<bool, WindowTooSmall> {
        let connection = &self.links[position].connection;
        let held = match &self.holds {
            Some(holds) if self.plan.rate.is_none() => holds.of(position),
            _ => 0,
        };
        Ok(connection.in_flight() + held < self.plan.streams && connection.has_room(self.longest_message)?)
    }

    /// Sends the ends of held requests that are due.
    fn end_held(&mut self, now: u64) -> Result<(), LoadError> {
        let in_flight = self.in_flight() as u64;
        let Some(holds) = &mut self.holds else { return Ok(()) };
        // A run with a number of requests holds the last requests as long as the others. A run with a length of time cuts holds short once
        // the requests sent before its end have their responses: otherwise these would take the slots that the ends free.
        if let Some(deadline) = self.pace.deadline()
            && self.pace.is_over(now)
            && (in_flight == holds.ending || now > deadline.saturating_add(LAST_ANSWERS))
        {
            holds.end_all();
        }
        let links = &mut self.links;
        if links.iter().all(|link| link.connection.is_used_up()) && self.pace.is_over(now) {
            holds.lose_all();
        }
        while let Some((position, end)) = holds.pop(now) {
            let mut others = (0..links.len()).map(|number| (position + number) % links.len());
            let free = others.find(|&other| links[other].connection.has_room(end.len()) == Ok(true));
            let Some(free) = free else {
                holds.put_back(position, end, now + RETRY);
                break;
            };
            links[free].connection.start(&end, END);
            holds.ending += 1;
        }
        (0..self.links.len()).try_for_each(|position| self.flush(position, now))
    }

    fn start(&mut self, position: usize, intended: u64) {
        let key = self.plan.keys.draw(&mut self.random);
        self.links[position].connection.start(self.plan.template.message(key), intended);
    }

    /// Sends due requests on all connections that have room.
    fn send_due(&mut self, now: u64) -> Result<(), LoadError> {
        let mut full = 0;
        while full < self.links.len() {
            let position = self.next_link % self.links.len();
            self.next_link = self.next_link.wrapping_add(1);
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

    /// Reads the responses on a connection, and sends due requests on it.
    fn on_event(&mut self, position: usize, is_closed: bool) -> Result<(), LoadError> {
        let is_open = self.read_responses(position, is_closed)?;
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

    /// Reads until the socket is empty. False if the connection has ended. `is_closed`: the server sends no more.
    fn read_responses(&mut self, position: usize, is_closed: bool) -> Result<bool, LoadError> {
        loop {
            let link = &mut self.links[position];
            match link.socket.read(&mut self.buffer) {
                Ok(0) => return Ok(false),
                Ok(count) => {
                    if !link.has_responded && self.buffer.starts_with(b"HTTP/1.") {
                        return Err(LoadError::Http1);
                    }
                    let read = link.connection.read(&self.buffer[..count], &mut self.finished);
                    read.map_err(LoadError::Connection)?;
                    link.has_responded |= !self.finished.is_empty();
                    self.record(position, self.now());
                    // After a short read the socket is empty, and poll reports when it is readable again. It does not report the end of the
                    // stream twice.
                    if count < self.buffer.len() && !is_closed {
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

    fn record(&mut self, position: usize, now: u64) {
        if !self.finished.is_empty() {
            (self.last_response, self.last_activity) = (now, now);
        }
        for Finished { token: started, end } in self.finished.drain(..) {
            if let Some(holds) = &mut self.holds {
                if started == END {
                    holds.record_end(Outcome::from(end));
                    continue;
                }
                if let StreamEnd::Complete(response) = &end
                    && let Some(ticket) = response.ticket()
                {
                    holds.add(ticket, position, now, &mut self.random);
                }
            }
            if self.pace.counts(started) {
                self.tally.record(Outcome::from(end), now - started);
            }
        }
    }

    /// Replaces a connection that has ended, if more requests are due.
    fn replace(&mut self, position: usize, now: u64) -> Result<(), LoadError> {
        let link = &mut self.links[position];
        let has_responded = link.has_responded;
        let error = link.connection.goaway_error();
        if link.connection.in_flight() > 0 {
            (self.last_response, self.last_activity) = (now, now);
        }
        let unanswered = link.connection.close().collect();
        self.fail(Failure::ConnectionLost, unanswered);
        if self.pace.is_over(now) {
            return Ok(());
        }
        if !has_responded {
            return Err(LoadError::Closed(error));
        }
        self.reconnects += 1;
        self.links[position] = Link::open(&self.plan.target, &self.headers, &self.poll, position)?;
        Ok(())
    }

    /// Whether there is nothing left to send or to wait for.
    fn is_done(&mut self, now: u64) -> Result<bool, LoadError> {
        let in_flight = self.in_flight();
        if in_flight == 0 && self.links.iter().all(|link| link.connection.is_ready()) {
            self.last_activity = now;
        }
        let quiet = now - self.last_activity;
        if self.pace.is_over(now) {
            let is_held = self.holds.as_ref().is_some_and(|holds| !holds.is_empty());
            return Ok(in_flight == 0 && !is_held || quiet > GRACE && in_flight > 0);
        }
        if quiet > STALL {
            return Err(LoadError::Stalled { in_flight });
        }
        Ok(self.pace.deadline().is_some_and(|deadline| now > deadline.saturating_add(GRACE)))
    }

    /// Records failed calls by their tokens.
    fn fail(&mut self, failure: Failure, calls: Vec<u64>) {
        let measured = calls.iter().filter(|&&started| self.pace.counts(started)).count();
        self.tally.fail(failure, measured as u64);
        if let Some(holds) = &mut self.holds {
            holds.lose_ends(calls.iter().filter(|&&started| started == END).count() as u64);
        }
    }

    /// Records the calls in flight as unanswered.
    fn fail_in_flight(&mut self, now: u64) {
        let unanswered = self.links.iter_mut().flat_map(|link| link.connection.close()).collect();
        self.fail(Failure::NoAnswer, unanswered);
        self.tally.fail(Failure::NoAnswer, self.pace.overdue(now));
    }

    /// The measurements. If the server has stopped, its CPU time is unknown.
    fn conclude(self, ended_by: Option<LoadError>) -> Result<Measured, LoadError> {
        let cpu_after = match self.server_cpu() {
            Err(_) if ended_by.is_some() => None,
            read => read?,
        };
        let cpu_before = self.measured.flatten();
        Ok(Measured {
            nanos: self.last_response.saturating_sub(self.pace.measured_from()),
            tally: self.tally,
            reconnects: self.reconnects,
            held: self.holds.map(|holds| holds.figures),
            server_cpu_nanos: cpu_before.zip(cpu_after).map(|(before, after)| after.saturating_sub(before)),
            ended_by,
        })
    }
}
