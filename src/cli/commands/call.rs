//! `tidegate call`: requests decisions from a running server.

use crate::{
    api::{
        DETAILED, PRECISION_HEADER, WINDOWS_HEADER,
        pb::{
            common::{RateLimitDescriptor, rate_limit_descriptor::Entry},
            service::{
                RateLimitRequest, RateLimitResponse,
                rate_limit_response::{Code, DescriptorStatus, RateLimit, rate_limit::Unit},
                rate_limit_service_client::RateLimitServiceClient,
            },
        },
        time::from_duration,
    },
    cli::{
        Failure,
        arguments::{client_tls::ClientTlsFlags, interval},
        commands::{target, ticket},
        output::{counted, details, table},
    },
    server::ListenAddress,
};
use clap::Args;
use serde_json::{Value, json};
use std::{process::ExitCode, time::Duration};
use tidegate_bench::ReceivedTicket;
use tidegate_core::limit::{DescriptorText, client_bytes};
use tokio::time::MissedTickBehavior;
use tonic::{
    Request,
    metadata::{MetadataMap, MetadataValue},
    transport::Channel,
};
use unicode_width::UnicodeWidthStr as _;

/// Sends rate limit requests to a running server and prints its decisions.
///
/// Admitted requests are counted. `--hits 0` checks without consuming. `--hold` keeps the slots of requests in flight, and
/// estimates of costs, for a while before their end, and renews them.
///
/// Exit code 0: the requests were decided, also if some were denied, unless --exit-code is given. 1: a call failed. 3: a request was
/// denied, with --exit-code.
#[derive(Args)]
pub(in crate::cli) struct Call {
    /// Domain of the request.
    domain: String,
    /// Descriptors, in the order of their entries; several are sent as one request.
    #[arg(required = true, value_name = "KEY=VALUE,…")]
    descriptors: Vec<DescriptorText>,
    /// Address of the server: host:port or unix:/path/of/socket.
    #[arg(long, env = "TIDEGATE_ADDR", default_value = "127.0.0.1:8081")]
    addr: ListenAddress,
    /// Hits of each descriptor; 0 checks whether a hit would be admitted and consumes none.
    #[arg(long, default_value_t = 1)]
    hits: u64,
    /// Return hits instead of consuming them.
    #[arg(long)]
    give_back: bool,
    /// Number of requests to send, in sequence.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    repeat: u32,
    /// Hold slots and estimates of admitted requests this long after the last response, or until Ctrl-C, then end them.
    #[arg(long, value_name = "TIME", conflicts_with = "give_back", value_parser = humantime::parse_duration)]
    hold: Option<Duration>,
    /// Renew held slots and estimates at this interval, so that they may be held for longer than `max_hold` of their rule: at
    /// most a third of that.
    #[arg(long, value_name = "TIME", requires = "hold", default_value = "1s", value_parser = interval)]
    renew_every: Duration,
    /// Actual cost of each request at its end, instead of its estimate, which stays by default; 0 gives it back.
    #[arg(long, value_name = "N", requires = "hold")]
    cost: Option<u64>,
    /// Timeout for connecting and for each response.
    #[arg(long, default_value = "5s", value_parser = humantime::parse_duration)]
    timeout: Duration,
    /// Print one JSON object per response.
    #[arg(long)]
    json: bool,
    /// Exit with 3 if a request was denied.
    #[arg(long)]
    exit_code: bool,
    #[command(flatten, next_help_heading = "TLS")]
    tls: ClientTlsFlags,
}

/// The requests that were sent so far.
#[derive(Default)]
struct Sent {
    ok: u32,
    over_limit: u32,
    /// Lines on responses, for below the table.
    details: Vec<String>,
    /// Tickets to be held.
    tickets: Vec<ReceivedTicket>,
    /// Whether Ctrl-C ended it.
    is_interrupted: bool,
}

impl Sent {
    /// Prints what follows the table.
    fn print_end(&self) {
        self.details.iter().for_each(table::print_line);
        if self.is_interrupted {
            let Self { ok, over_limit, .. } = self;
            table::print_line(format!(
                "interrupted after {}: {ok} OK, {over_limit} OVER_LIMIT",
                ok + over_limit
            ));
        }
    }
}

impl Call {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let runtime = tidegate_threads::runtime()?;
        let is_denied = runtime.block_on(self.send_all())?;
        Ok(if is_denied && self.exit_code { ExitCode::from(3) } else { ExitCode::SUCCESS })
    }

    /// Sends the requests; returns whether one was denied.
    async fn send_all(&self) -> Result<bool, Failure> {
        let channel = target::connect(&self.addr, &self.tls, self.timeout).await?;
        let mut client = RateLimitServiceClient::new(channel);
        let mut all = Sent::default();
        let mut sender = client.clone();
        let sent = tokio::select! {
            sent = self.send_requests(&mut sender, &mut all) => sent,
            // If the signal cannot be handled, it ends the process as by default.
            Ok(()) = tokio::signal::ctrl_c() => {
                all.is_interrupted = true;
                Ok(())
            }
        };
        if !self.json {
            all.print_end();
        }
        let tickets = std::mem::take(&mut all.tickets);
        let held = self.hold_all(&mut client, tickets, sent).await;
        held.map(|()| all.over_limit > 0)
    }

    /// Holds the slots and estimates of admitted requests, then ends them; `sent` is the outcome of sending.
    async fn hold_all(
        &self,
        client: &mut RateLimitServiceClient<Channel>,
        tickets: Vec<ReceivedTicket>,
        sent: Result<(), Failure>,
    ) -> Result<(), Failure> {
        match self.hold {
            None => sent,
            Some(_) if tickets.is_empty() => {
                if sent.is_ok() {
                    eprintln!(
                        "nothing to hold: no response has a ticket; those of admitted requests have one, if a limit is of \
                         requests in flight or reserves"
                    );
                }
                sent
            }
            Some(hold) => {
                if sent.is_ok() {
                    tokio::select! {
                        () = tokio::time::sleep(hold) => {}
                        // If the signal cannot be handled, it ends the process as by default.
                        Ok(()) = tokio::signal::ctrl_c() => {}
                        () = self.renew_all(client.clone(), &tickets) => {}
                    }
                }
                let ended = self.end_all(client, tickets).await;
                sent.and(ended)
            }
        }
    }

    /// Sends the requests, and prints each response as it arrives.
    async fn send_requests(
        &self,
        client: &mut RateLimitServiceClient<Channel>,
        sent: &mut Sent,
    ) -> Result<(), Failure> {
        let descriptors = self.descriptors.iter().map(|text| text.to_string().width());
        // A single request has a table as narrow as its texts.
        let code = if self.repeat > 1 { Code::OverLimit.as_str_name().len() } else { 0 };
        let widths = [self.repeat.to_string().len(), code, descriptors.max().unwrap_or(0), code, 0, 0, 0];
        let header = ["call", "overall", "descriptor", "status", "limit", "remaining", "reset"];
        let mut rows = table::Stream::new(header, widths);
        for number in 1..=self.repeat {
            let response = self.send(client, self.message()).await?;
            let windows = windows(response.metadata());
            let response = response.into_inner();
            match response.overall_code() {
                Code::OverLimit => sent.over_limit += 1,
                _ => sent.ok += 1,
            }
            if self.hold.is_some() {
                sent.tickets.extend(response.dynamic_metadata.as_ref().and_then(ReceivedTicket::of));
            }
            if self.json {
                table::print_line(self.to_json(&response, &windows));
            } else {
                self.rows(number, &response, &windows).for_each(|row| rows.print_row(&row));
                let details = details::lines(&response);
                sent.details.extend(details.iter().map(|line| format!("call {number}: {line}")));
            }
        }
        Ok(())
    }

    async fn send(
        &self,
        client: &mut RateLimitServiceClient<Channel>,
        message: RateLimitRequest,
    ) -> Result<tonic::Response<RateLimitResponse>, Failure> {
        let mut request = Request::new(message);
        request.set_timeout(self.timeout);
        request.metadata_mut().insert(PRECISION_HEADER, MetadataValue::from_static("exact"));
        request.metadata_mut().insert(WINDOWS_HEADER, MetadataValue::from_static(DETAILED));
        let sent = client.should_rate_limit(request).await;
        sent.map_err(|status| target::call_failure(&self.addr, &self.tls, &status))
    }

    /// Renews what admitted requests hold, while polled. A ticket that holds nothing any more is not renewed again.
    async fn renew_all(&self, mut client: RateLimitServiceClient<Channel>, tickets: &[ReceivedTicket]) {
        let mut held: Vec<&ReceivedTicket> = tickets.iter().collect();
        let mut times = tokio::time::interval(self.renew_every);
        times.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first is due at once.
        times.tick().await;
        loop {
            times.tick().await;
            let mut renewed = Vec::with_capacity(held.len());
            for ticket in held {
                match self.send(&mut client, ticket::renewal(ticket, self.message())).await {
                    Ok(response) if response.get_ref().overall_code() == Code::OverLimit => {
                        eprintln!("not held any more: {}", ticket.slot);
                        continue;
                    }
                    Ok(_) => {}
                    // The next renewal may be in time.
                    Err(failure) => eprintln!("not renewed: {failure}"),
                }
                renewed.push(ticket);
            }
            held = renewed;
        }
    }

    /// Ends what admitted requests hold, and prints it.
    async fn end_all(
        &self,
        client: &mut RateLimitServiceClient<Channel>,
        tickets: Vec<ReceivedTicket>,
    ) -> Result<(), Failure> {
        let count = tickets.len();
        for ticket in tickets {
            let cost = self.cost.unwrap_or(ticket.cost);
            let line = json!({ "ended": ticket.slot, "cost": cost });
            self.send(client, ticket::end(ticket, &self.domain, self.cost)).await?;
            if self.json {
                table::print_line(line);
            }
        }
        if !self.json {
            let cost = self.cost.map(|cost| format!(", with a cost of {cost}")).unwrap_or_default();
            table::print_line(format!("ended {}{cost}", counted(count as u64, "request")));
        }
        Ok(())
    }

    fn message(&self) -> RateLimitRequest {
        // A client's bytes may be written in their escaped text, as tools and logs show them.
        let bytes = |text: &String| client_bytes(text).into_owned();
        let entry = |(key, value): &(String, String)| Entry { key: bytes(key), value: bytes(value) };
        let descriptor = |text: &DescriptorText| RateLimitDescriptor {
            entries: text.0.iter().map(entry).collect(),
            limit: None,
            hits_addend: Some(self.hits),
            is_negative_hits: self.give_back,
        };
        RateLimitRequest {
            domain: self.domain.clone(),
            descriptors: self.descriptors.iter().map(descriptor).collect(),
            hits_addend: 0,
        }
    }

    /// The rows of a response, one for each descriptor.
    fn rows<'r>(
        &'r self,
        number: u32,
        response: &'r RateLimitResponse,
        windows: &'r [String],
    ) -> impl Iterator<Item = [String; 7]> + 'r {
        self.descriptors.iter().zip(&response.statuses).enumerate().map(move |(at, (descriptor, status))| {
            let limit = |limit| limit_text(limit, windows.get(at));
            [
                number.to_string(),
                response.overall_code().as_str_name().to_owned(),
                descriptor.to_string(),
                status.code().as_str_name().to_owned(),
                status.current_limit.as_ref().map_or_else(|| "none".to_owned(), limit),
                remaining(status)
                    .filter(|_| cause(windows.get(at)).is_none())
                    .map_or_else(|| "–".to_owned(), |hits| hits.to_string()),
                reset_text(status, cause(windows.get(at))),
            ]
        })
    }

    fn to_json(&self, response: &RateLimitResponse, windows: &[String]) -> Value {
        let status = |(at, (descriptor, status)): (usize, (&DescriptorText, &DescriptorStatus))| {
            json!({
                "descriptor": descriptor.to_string(),
                "code": status.code().as_str_name(),
                "limit": status.current_limit.as_ref().map(|limit| json!({
                    "name": limit.name,
                    "requests_per_unit": limit.requests_per_unit,
                    "unit": (limit.unit() != Unit::Unknown).then(|| limit.unit().as_str_name()),
                    "window": windows.get(at).map(|window| window_alone(window)),
                })),
                "cause": cause(windows.get(at)),
                "remaining": remaining(status),
                "reset_seconds": status.duration_until_reset.and_then(from_duration).map(|reset| reset.as_secs_f64()),
            })
        };
        let mut shown = json!({
            "overall": response.overall_code().as_str_name(),
            "statuses": self.descriptors.iter().zip(&response.statuses).enumerate().map(status).collect::<Vec<_>>(),
        });
        for (key, value) in details::to_json(response) {
            shown[key] = value;
        }
        shown
    }
}

/// Remaining hits; none if no limit applies.
fn remaining(status: &DescriptorStatus) -> Option<u32> {
    status.current_limit.as_ref().map(|_| status.limit_remaining)
}

/// The windows that the server lists; none from a server that does not.
fn windows(metadata: &MetadataMap) -> Vec<String> {
    let listed = metadata.get(WINDOWS_HEADER).and_then(|value| value.to_str().ok()).unwrap_or_default();
    listed.split(',').filter(|window| !window.is_empty()).map(str::to_owned).collect()
}

fn limit_text(limit: &RateLimit, window: Option<&String>) -> String {
    let name = if limit.name.is_empty() { String::new() } else { format!("{}: ", limit.name) };
    match (limit.unit(), window) {
        (Unit::Unknown, None) => format!("{name}{}", limit.requests_per_unit),
        (Unit::Unknown, Some(window)) if window.contains(";in-flight") => {
            format!("{name}{} in flight, held for at most {}", limit.requests_per_unit, window_alone(window))
        }
        (Unit::Unknown, Some(window)) => {
            format!("{name}{} per {}", limit.requests_per_unit, window_alone(window))
        }
        (unit, _) => format!("{name}{} per {}", limit.requests_per_unit, unit.as_str_name().to_lowercase()),
    }
}

/// The window without the parameters that a server adds to it.
fn window_alone(window: &str) -> &str {
    window.split(';').next().unwrap_or_default()
}

/// Why the descriptor is denied, if not by its limit.
fn cause(window: Option<&String>) -> Option<&str> {
    window?.split(';').find_map(|parameter| parameter.strip_prefix("cause="))
}

fn reset_text(status: &DescriptorStatus, cause: Option<&str>) -> String {
    match (&status.duration_until_reset, status.code()) {
        (None, Code::OverLimit) if cause == Some("counters_full") => {
            "unknown: the counters are full".to_owned()
        }
        (None, _) if cause == Some("store_away") => "unknown: the shared store is away".to_owned(),
        (Some(reset), _) => format!("{:.3} s", from_duration(*reset).unwrap_or_default().as_secs_f64()),
        (None, Code::OverLimit) => "never".to_owned(),
        (None, _) => "–".to_owned(),
    }
}
