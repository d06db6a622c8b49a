//! `tidegate ctl`: operations on a running server, over its control API.

mod complete;
mod connection;
mod log_level;
mod of_request;
mod overlays;
mod show;
mod show_quotas;
mod show_unlimited;
mod shown;

use crate::api::{
    control::try_json,
    pb::control::{self as pb, tail_response::Event},
};
use crate::cli::{
    Failure,
    arguments::choice,
    output::{plain_lines, table},
};
use crate::server::ListenAddress;
use clap::{Args, Subcommand, builder::NonEmptyStringValueParser};
use clap_complete::ArgValueCompleter;
use connection::{Caller, Connection};
use of_request::{RequestArgs, wire};
use shown::{Reason, Shown, entry};
use std::{process::ExitCode, time::Duration};
use tidegate_core::limit::DescriptorText;
use tokio::time::timeout;

/// Time without a response after which a stream is given up: the server sends one every 15 s, if only a sign of life.
const SILENCE_MAX: Duration = Duration::from_secs(45);

/// Shows and changes what a running server limits, over its control API (serve --control).
#[derive(Args)]
pub(in crate::cli) struct Ctl {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Subcommand, Clone)]
enum Command {
    /// The server, its rules and its counters.
    Status,
    /// The rules in force with hits per second.
    Rules {
        /// Only this domain.
        #[arg(long, default_value = "", hide_default_value = true, add = ArgValueCompleter::new(complete::domains))]
        domain: String,
        /// Only rules whose path contains this text.
        #[arg(default_value = "", hide_default_value = true, add = ArgValueCompleter::new(complete::rules))]
        contains: String,
    },
    /// The path of a request through the rules, its counters, and the decision it would have now.
    Explain(RequestArgs),
    /// The decision on a request now; nothing is consumed.
    Peek(RequestArgs),
    /// The counters of a request.
    Counters(RequestArgs),
    /// The nodes that hold leases of the server's counters, and their credits.
    Leases {
        /// Number of nodes, those with most credits first.
        #[arg(long, short = 'n', default_value_t = 100)]
        limit: u32,
    },
    /// The buckets that clients of RLQS enforce by themselves, and the clients' shares.
    Quotas {
        /// Only this domain.
        #[arg(long, default_value = "", hide_default_value = true, add = ArgValueCompleter::new(complete::domains))]
        domain: String,
        /// Number of buckets, those with most demand first.
        #[arg(long, short = 'n', default_value_t = 20)]
        limit: u32,
        /// Only buckets of which key=value,key=value, sorted by key, contains this text.
        #[arg(default_value = "", hide_default_value = true)]
        contains: String,
    },
    /// Descriptors without a limit, unless a rule exempts them, by domain and keys, with rules that would limit them. Also descriptors that state no
    /// day for their calendar windows.
    Unlimited {
        /// Only this domain.
        #[arg(default_value = "", hide_default_value = true)]
        domain: String,
        /// Number of paths of keys, those seen last first.
        #[arg(long, short = 'n', default_value_t = 20)]
        limit: u32,
    },
    /// Drop counters, so that they start anew: those of a request, of a rule, or with --all of a domain.
    Reset {
        /// Domain of the counters.
        #[arg(add = ArgValueCompleter::new(complete::domains))]
        domain: String,
        /// Descriptors of the request.
        #[arg(value_name = "KEY=VALUE,…", required_unless_present_any = ["rule", "all"])]
        descriptors: Vec<DescriptorText>,
        /// All counters of this rule, by its path or the name of a limit.
        // Without a rule, the request resets the domain.
        #[arg(
            long, conflicts_with = "descriptors", value_parser = NonEmptyStringValueParser::new(),
            add = ArgValueCompleter::new(complete::rules)
        )]
        rule: Option<String>,
        /// All counters of the domain.
        #[arg(long, conflicts_with_all = ["descriptors", "rule"])]
        all: bool,
        #[command(flatten)]
        reason: Reason,
    },
    /// Give hits of a request back.
    GiveBack {
        #[command(flatten)]
        request: RequestArgs,
        /// Hits.
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
        hits: u32,
        #[command(flatten)]
        reason: Reason,
    },
    /// The keys with most denied or admitted hits.
    Top {
        /// Only this domain.
        #[arg(long, default_value = "", hide_default_value = true, add = ArgValueCompleter::new(complete::domains))]
        domain: String,
        /// Only this rule, by its path or the name of a limit.
        #[arg(long, default_value = "", hide_default_value = true, add = ArgValueCompleter::new(complete::rules))]
        rule: String,
        /// Admitted hits instead of denied ones.
        #[arg(long)]
        admitted: bool,
        /// The last hour instead of the last minute.
        #[arg(long)]
        hour: bool,
        /// Number of keys.
        #[arg(long, short = 'n', default_value_t = 20)]
        limit: u32,
    },
    /// Decisions as they are made, until interrupted.
    Tail {
        /// Only this domain.
        #[arg(long, default_value = "", hide_default_value = true, add = ArgValueCompleter::new(complete::domains))]
        domain: String,
        /// Only decisions to which this rule applied, by its path or the name of a limit.
        #[arg(long, default_value = "", hide_default_value = true, add = ArgValueCompleter::new(complete::rules))]
        rule: String,
        /// Only these.
        #[arg(long, value_parser = choice([("ok", "", pb::Code::Ok), ("over-limit", "", pb::Code::OverLimit)]))]
        code: Option<pb::Code>,
        /// Only requests with this entry; `*` in the value matches any text.
        #[arg(long, value_name = "KEY=VALUE", value_parser = entry)]
        entry: Option<(String, String)>,
        /// Share of decisions, from above 0 to 1.
        #[arg(long, default_value_t = 1.0, value_parser = share)]
        sample: f64,
    },
    /// Other limits for some descriptors, with an expiry: list, set, delete.
    #[command(subcommand)]
    Override(overlays::OverrideCommand),
    /// Denied entries, with an expiry: list, set, delete.
    #[command(subcommand)]
    Block(overlays::BlockCommand),
    /// Set the level of the server's log, until the next change or the next start.
    LogLevel(log_level::LogLevel),
    /// The newest entries of the audit log.
    Audit {
        /// Number of entries.
        #[arg(long, short = 'n', default_value_t = 100)]
        limit: u32,
    },
}

impl Ctl {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let runtime = tidegate_threads::runtime()?;
        runtime.block_on(self.run_on_runtime())?;
        Ok(ExitCode::SUCCESS)
    }

    async fn run_on_runtime(self) -> Result<(), Failure> {
        let Self { command, connection } = self;
        if connection.watch.is_some() && command.changes() {
            return Err(Failure(
                "--watch repeats commands that only read: leave it out of a command that changes something"
                    .into(),
            ));
        }
        if let (Some(_), Command::Tail { .. }) = (connection.watch, &command) {
            return Err(Failure("tail shows decisions until it is interrupted: leave --watch out".into()));
        }
        let mut caller = connection.caller().await?;
        if let Command::Tail { domain, rule, code, entry, sample } = command {
            let (key, value) = entry.unwrap_or_default();
            let code = code.unwrap_or(pb::Code::Unknown).into();
            return caller.tail(pb::TailRequest { domain, rule, code, key, value, sample }).await;
        }
        loop {
            let shown = match (caller.run(command.clone()).await, connection.watch) {
                (Ok(shown), _) => shown,
                // The server may be starting again: the next response replaces the error.
                (Err(failure), Some(interval)) if caller.has_answered => {
                    eprintln!("error: {failure}");
                    tokio::time::sleep(interval).await;
                    continue;
                }
                (Err(failure), _) => return Err(failure),
            };
            let clear_screen = if connection.watch.is_some() { "\x1b[H\x1b[2J" } else { "" };
            let text = match connection.json {
                true => String::from_utf8_lossy(&shown.json?).into_owned(),
                false => clear_screen.to_owned() + &plain_lines(&shown.text),
            };
            let is_read = table::print_while_read(&(text + "\n"));
            let Some(interval) = connection.watch.filter(|_| is_read) else { return Ok(()) };
            tokio::time::sleep(interval).await;
        }
    }
}

impl Caller<'_> {
    async fn run(&mut self, command: Command) -> Result<Shown, Failure> {
        Ok(match command {
            Command::Status => show::status(&self.call(pb::StatusRequest {}).await?),
            Command::Rules { domain, contains } => {
                self.rules(pb::ListRulesRequest { domain, contains, ..pb::ListRulesRequest::default() })
                    .await?
            }
            Command::Explain(of) => {
                let (domain, descriptors) = of.wire();
                let response = self.call(pb::ExplainRequest { domain, descriptors }).await?;
                show::explained(&of.descriptors, &response)
            }
            Command::Peek(of) => {
                let (domain, descriptors) = of.wire();
                let response = self.call(pb::PeekRequest { domain, descriptors }).await?;
                Shown::new(&response, show::statuses(&of.descriptors, &response.statuses))
            }
            Command::Counters(of) => {
                let (domain, descriptors) = of.wire();
                show::counters(&self.call(pb::ListCountersRequest { domain, descriptors }).await?)
            }
            Command::Leases { limit } => show::leases(&self.call(pb::ListLeasesRequest { limit }).await?),
            Command::Quotas { domain, limit, contains } => {
                show_quotas::quotas(&self.call(pb::ListQuotasRequest { domain, contains, limit }).await?)
            }
            Command::Unlimited { domain, limit } => {
                show_unlimited::unlimited(&self.call(pb::ListUnlimitedRequest { domain, limit }).await?)
            }
            Command::Reset { domain, descriptors, rule, all: _, reason: Reason { reason } } => {
                let (descriptors, rule) = (wire(&descriptors), rule.unwrap_or_default());
                let response = self.call(pb::ResetRequest { domain, descriptors, rule, reason }).await?;
                let text = match response.in_new_keys {
                    true => "counters reset: here now, on other servers within a second".to_owned(),
                    false => format!("{} counters reset", response.counters),
                };
                Shown::new(&response, text)
            }
            Command::GiveBack { request: of, hits, reason: Reason { reason } } => {
                let (domain, descriptors) = of.wire();
                let request = pb::GiveBackRequest { domain, descriptors, hits, reason };
                let response = self.call(request).await?;
                Shown::new(&response, show::statuses(&of.descriptors, &response.statuses))
            }
            Command::Top { domain, rule, admitted, hour, limit } => {
                let (window, outcome) = (i32::from(hour), i32::from(admitted));
                let request = pb::TopKeysRequest { window, outcome, domain, rule, limit };
                show::top_keys(&self.call(request).await?)
            }
            Command::Override(command) => self.overrides(command).await?,
            Command::Block(command) => self.blocks(command).await?,
            Command::LogLevel(set) => self.log_level(set).await?,
            Command::Audit { limit } => {
                show::audit(&self.call(pb::ListAuditRequest { limit, before: 0 }).await?)
            }
            Command::Tail { .. } => return Err(Failure("a stream has no single response".into())),
        })
    }

    /// All pages of rules.
    async fn rules(&mut self, mut message: pb::ListRulesRequest) -> Result<Shown, Failure> {
        let mut all = pb::ListRulesResponse::default();
        loop {
            let page = self.call(message.clone()).await?;
            all.rules.extend(page.rules);
            all.total = page.total;
            if page.next_page_token.is_empty() {
                return Ok(show::rules(&all));
            }
            message.page_token = page.next_page_token;
        }
    }

    async fn tail(&mut self, message: pb::TailRequest) -> Result<(), Failure> {
        let request = self.request(message);
        let addr = &self.connection.addr;
        let stream = unless_silent(addr, self.client.tail(request)).await?;
        let mut stream = stream.map_err(|status| self.failure(&status))?.into_inner();
        self.has_answered = true;
        while let Some(response) =
            unless_silent(addr, stream.message()).await?.map_err(|status| self.failure(&status))?
        {
            let line = match (&response.event, self.connection.json) {
                (None, _) => continue,
                (Some(_), true) => String::from_utf8_lossy(&try_json(&response)?).into_owned(),
                (Some(Event::Decision(decision)), false) => plain_lines(&show::decision(decision)),
                (Some(Event::Dropped(dropped)), false) => format!("… {dropped} dropped"),
            };
            if !table::print_while_read(&(line + "\n")) {
                return Ok(());
            }
        }
        Err(Failure(format!("{addr}: the server ended the stream")))
    }
}

/// The next response of a stream; a failure if the server or the path to it hangs.
async fn unless_silent<T>(addr: &ListenAddress, next: impl Future<Output = T>) -> Result<T, Failure> {
    let silent =
        |_| Failure(format!("{addr}: the server has sent no sign of life for {} s", SILENCE_MAX.as_secs()));
    timeout(SILENCE_MAX, next).await.map_err(silent)
}

/// Parses a share of decisions.
fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| *share > 0.0 && *share <= 1.0);
    share.ok_or_else(|| "write a number from above 0 to 1, such as 0.1".to_owned())
}

impl Command {
    /// Whether the command changes something in the server.
    fn changes(&self) -> bool {
        match self {
            Self::Reset { .. } | Self::GiveBack { .. } | Self::LogLevel(_) => true,
            Self::Override(command) => !matches!(command, overlays::OverrideCommand::List),
            Self::Block(command) => !matches!(command, overlays::BlockCommand::List),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::CommandFactory as _;
    use std::future::pending;

    #[test]
    fn a_value_that_is_empty_by_mistake_does_not_widen_a_change() {
        for wrong in [
            &["reset", "shop", "--rule", ""][..],
            &["reset", "shop", ""],
            &["block", "set", ""],
            &["block", "set", "user=x", "--domain", ""],
            &["block", "set", "user=x", "--id", ""],
            &["override", "set", "shop", "user=x", "--denied", "--id", ""],
            &["give-back", "shop", "user=x", "--hits", "0"],
        ] {
            let parsed = Cli::command().try_get_matches_from([&["tidegate", "ctl"], wrong].concat());
            assert!(parsed.is_err(), "{wrong:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_without_a_sign_of_life_ends_with_a_failure() {
        let addr = "127.0.0.1:8081".parse().expect("an address");
        let failure = unless_silent(&addr, pending::<()>()).await.expect_err("silence");
        assert_eq!(failure.to_string(), "127.0.0.1:8081: the server has sent no sign of life for 45 s");
    }
}
