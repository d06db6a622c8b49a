//! `tidegate call`: real decisions from a running server.

use super::{Failure, descriptor::DescriptorText, said, table, target};
use crate::{
    api::{
        PRECISION_HEADER,
        pb::{
            common::{RateLimitDescriptor, rate_limit_descriptor::Entry},
            service::{
                RateLimitRequest, RateLimitResponse,
                rate_limit_response::{Code, DescriptorStatus, RateLimit, rate_limit::Unit},
                rate_limit_service_client::RateLimitServiceClient,
            },
        },
    },
    server::ListenAddress,
};
use clap::Args;
use serde_json::{Value, json};
use std::{error::Error as _, process::ExitCode, time::Duration};
use tonic::{Request, Status, metadata::MetadataValue};

/// Asks a running server for decisions, and prints them.
///
/// Each answer is a real one: an admitted request is counted. `--hits 0` asks without taking.
#[derive(Args)]
pub(super) struct Call {
    /// The domain.
    domain: String,
    /// Descriptors, from the most general entry to the most particular; several are decided as one request.
    #[arg(required = true, value_name = "KEY=VALUE,…")]
    descriptors: Vec<DescriptorText>,
    /// The server: host:port or unix:/path/of/socket.
    #[arg(long, env = "TIDEGATE_ADDR", default_value = "127.0.0.1:8081")]
    addr: ListenAddress,
    /// Hits that each descriptor asks for; 0 asks whether one would be admitted, and takes nothing.
    #[arg(long, default_value_t = 1)]
    hits: u64,
    /// Give the hits back instead of taking them.
    #[arg(long)]
    give_back: bool,
    /// How often to ask.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    repeat: u32,
    /// How long to wait for an answer.
    #[arg(long, default_value = "5s", value_parser = humantime::parse_duration)]
    timeout: Duration,
    /// Print one JSON object for each answer.
    #[arg(long)]
    json: bool,
}

impl Call {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(self.ask_all())?;
        Ok(ExitCode::SUCCESS)
    }

    async fn ask_all(&self) -> Result<(), Failure> {
        let mut client = RateLimitServiceClient::new(target::connect(&self.addr, self.timeout).await?);
        let mut answers =
            table::table(["call", "overall", "descriptor", "status", "limit", "remaining", "reset"]);
        let mut said_more = Vec::new();
        for number in 1..=self.repeat {
            let mut request = Request::new(self.message());
            request.set_timeout(self.timeout);
            request.metadata_mut().insert(PRECISION_HEADER, MetadataValue::from_static("exact"));
            let answer = client.should_rate_limit(request).await.map_err(|status| self.failure(&status))?;
            let answer = answer.into_inner();
            if self.json {
                table::print_line(self.to_json(&answer));
            } else {
                self.add_rows(&mut answers, number, &answer);
                said_more.extend(said::lines(&answer).iter().map(|line| format!("call {number}: {line}")));
            }
        }
        if !self.json {
            table::print_line(answers);
            said_more.iter().for_each(table::print_line);
        }
        Ok(())
    }

    /// The error for a call that ended without a response.
    fn failure(&self, status: &Status) -> Failure {
        match status.source() {
            Some(cause) if cause.is::<tonic::transport::Error>() => Failure(format!(
                "{} does not answer in HTTP/2 without TLS: {}; give the address of a gRPC server",
                self.addr,
                target::root_cause(cause)
            )),
            _ => Failure(format!("{} answered {:?}: {}", self.addr, status.code(), status.message())),
        }
    }

    fn message(&self) -> RateLimitRequest {
        let descriptor = |text: &DescriptorText| RateLimitDescriptor {
            entries: text.0.iter().cloned().map(|(key, value)| Entry { key, value }).collect(),
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

    fn add_rows(&self, table: &mut table::Table, number: u32, answer: &RateLimitResponse) {
        for (descriptor, status) in self.descriptors.iter().zip(&answer.statuses) {
            table.add_row([
                number.to_string(),
                answer.overall_code().as_str_name().to_owned(),
                descriptor.to_string(),
                status.code().as_str_name().to_owned(),
                status.current_limit.as_ref().map_or_else(|| "none".to_owned(), limit_text),
                remaining(status).map_or_else(|| "–".to_owned(), |hits| hits.to_string()),
                reset_text(status),
            ]);
        }
    }

    fn to_json(&self, answer: &RateLimitResponse) -> Value {
        let status = |(descriptor, status): (&DescriptorText, &DescriptorStatus)| {
            json!({
                "descriptor": descriptor.to_string(),
                "code": status.code().as_str_name(),
                "limit": status.current_limit.as_ref().map(|limit| json!({
                    "name": limit.name,
                    "requests_per_unit": limit.requests_per_unit,
                    "unit": limit.unit().as_str_name(),
                })),
                "remaining": remaining(status),
                "reset_seconds": status.duration_until_reset.as_ref().map(seconds),
            })
        };
        let mut shown = json!({
            "overall": answer.overall_code().as_str_name(),
            "statuses": self.descriptors.iter().zip(&answer.statuses).map(status).collect::<Vec<_>>(),
        });
        for (key, value) in said::to_json(answer) {
            shown[key] = value;
        }
        shown
    }
}

/// How many hits are left; none where nothing limits them.
fn remaining(status: &DescriptorStatus) -> Option<u32> {
    status.current_limit.as_ref().map(|_| status.limit_remaining)
}

fn limit_text(limit: &RateLimit) -> String {
    let name = if limit.name.is_empty() { String::new() } else { format!("{}: ", limit.name) };
    match limit.unit() {
        Unit::Unknown => format!("{name}{}", limit.requests_per_unit),
        unit => format!("{name}{} per {}", limit.requests_per_unit, unit.as_str_name().to_lowercase()),
    }
}

fn reset_text(status: &DescriptorStatus) -> String {
    match (&status.duration_until_reset, status.code()) {
        (Some(reset), _) => format!("{:.3} s", seconds(reset)),
        (None, Code::OverLimit) => "never".to_owned(),
        (None, _) => "–".to_owned(),
    }
}

fn seconds(duration: &prost_types::Duration) -> f64 {
    duration.seconds as f64 + f64::from(duration.nanos) / 1e9
}
