//! Lines of the decision log as the server writes them, and of access logs.

use crate::traffic::Event;
use std::{fmt::Write as _, io::Write as _};
use tidegate_core::limit::{Code, Decision, Hits, Request, Reset, Timestamp};

/// The process that decides, in the decision log.
const RUN: &str = "5d41402abc4b2a76";

/// The first line of the log in CSV.
pub(crate) const CSV_COLUMNS: &str = "start_time,method,path,response_code,duration,x_user,client\n";

/// Writes lines.
#[derive(Default)]
pub(crate) struct LineWriter {
    line: Vec<u8>,
    /// Of the last time: the whole seconds, and their text.
    second: (u64, String),
}

/// The fields of a line of an access log that differ.
struct Access<'e> {
    second: String,
    millis: u64,
    response: u32,
    client: u64,
    address: &'e str,
}

impl LineWriter {
    /// The last line.
    pub(crate) fn written(&self) -> &[u8] {
        &self.line
    }

    /// The rules in force.
    pub(crate) fn rules(&mut self, rules: &str, now: Timestamp) {
        let text: String = rules
            .chars()
            .flat_map(|char| match char {
                '\n' => vec!['\\', 'n'],
                char => vec![char],
            })
            .collect();
        // A replay compares hashes with those of other lines alone.
        let sha256 = "0".repeat(64);
        self.start(now, 1);
        self.append(format_args!(
            ",\"rules\":{{\"semantics\":\"exact\",\"merge_domains\":false,\"global_shadow\":false,\"quota_mode\":false,\
             \"stop_counting\":false,\"sources\":[{{\"kind\":\"file\",\"name\":\"rules.yaml\",\"sha256\":\"{sha256}\",\
             \"text\":\"{text}\"}}]}}}}\n"
        ));
    }

    /// A decision.
    pub(crate) fn decision(
        &mut self,
        number: u64,
        event: &Event,
        request: &Request<'_>,
        decision: &Decision<'_>,
    ) {
        self.start(event.time, number);
        let latency = 900 + number % 1_000;
        self.append(format_args!(
            ",\"domain\":\"{}\",\"code\":\"{}\",\"sample\":1.0,\"latency_ns\":{latency},\"peer\":\"127.0.0.1\",\"descriptors\":[",
            request.domain(),
            code(decision.code)
        ));
        for (index, (descriptor, status)) in request.descriptors().iter().zip(&decision.statuses).enumerate()
        {
            self.append(format_args!("{}{{\"entries\":[", if index > 0 { "," } else { "" }));
            for (index, entry) in descriptor.entries.iter().enumerate() {
                let comma = if index > 0 { "," } else { "" };
                self.append(format_args!(
                    "{comma}{{\"key\":\"{}\",\"value\":\"{}\"}}",
                    entry.key, entry.value
                ));
            }
            let hits = if let Hits::Take(hits) = descriptor.hits { hits.get() } else { 0 };
            self.append(format_args!("],\"hits\":{hits},\"code\":\"{}\",\"limit\":", code(status.code)));
            match &status.limit {
                None => self.append(format_args!("null")),
                Some(limit) => {
                    self.append(format_args!("{{"));
                    if !limit.name.is_empty() {
                        self.append(format_args!("\"name\":\"{}\",", limit.name));
                    }
                    let rule = status.rule.map_or("", |rule| &rule.path);
                    let window = limit.window.nanos();
                    self.append(format_args!(
                        "\"rule\":\"{rule}\",\"requests\":{},\"window_ns\":{window}}}",
                        limit.requests
                    ));
                }
            }
            self.append(format_args!(",\"remaining\":{},\"reset_ns\":", status.remaining));
            match status.reset {
                Some(Reset::After(wait)) => self.append(format_args!("{}}}", wait.as_nanos())),
                Some(Reset::Never) | None => self.append(format_args!("null}}")),
            }
        }
        self.append(format_args!("]}}\n"));
    }

    /// A line of Envoy's access log in JSON.
    pub(crate) fn access_json(&mut self, event: &Event, code: Code) {
        let Access { second, millis, response, client, address } = self.access(event, code);
        let _ = writeln!(
            self.line,
            "{{\"start_time\":\"{second}.{millis:03}Z\",\"method\":\"GET\",\"path\":\"/v1/items/{client}\",\"protocol\":\"HTTP/2\",\
             \"response_code\":{response},\"duration\":4,\"user_agent\":\"client/1.4\",\"x_user\":\"u-{client:06}\",\"client\":\"{address}\"}}"
        );
    }

    /// A record of CSV.
    pub(crate) fn access_csv(&mut self, event: &Event, code: Code) {
        let Access { second, millis, response, client, address } = self.access(event, code);
        let _ = writeln!(
            self.line,
            "{second}.{millis:03}Z,GET,\"/v1/items/{client}\",{response},4,u-{client:06},{address}"
        );
    }

    /// A line of Envoy's default format. The user is its user agent.
    pub(crate) fn access_envoy(&mut self, event: &Event, code: Code) {
        let Access { second, millis, response, client, address } = self.access(event, code);
        let _ = writeln!(
            self.line,
            "[{second}.{millis:03}Z] \"GET /v1/items/{client} HTTP/2\" {response} - 0 312 4 3 \"{address}\" \"u-{client:06}\" \
             \"5b1c8f0e-4a57-4d0e-9c1b-{client:012x}\" \"shop.example\" \"10.1.0.3:8080\""
        );
    }

    /// A line of nginx's format `combined`. The user is its user agent.
    pub(crate) fn access_nginx(&mut self, event: &Event, code: Code) {
        let Access { second, response, client, address, .. } = self.access(event, code);
        let (date, time) = second.split_once('T').unwrap_or((&second, ""));
        let day = &date[date.len() - 2..];
        let _ = writeln!(
            self.line,
            "{address} - - [{day}/Mar/2026:{time} +0000] \"GET /v1/items/{client} HTTP/1.1\" {response} 312 \"https://shop.example/\" \
             \"u-{client:06}\""
        );
    }

    /// Starts a line of an access log, and returns its fields.
    fn access<'e>(&mut self, event: &'e Event, code: Code) -> Access<'e> {
        self.line.clear();
        let (second, millis) = self.time(event.time);
        Access {
            second,
            millis,
            response: response_code(code),
            client: event.client,
            address: &event.address,
        }
    }

    /// The fields that all lines of the decision log have.
    fn start(&mut self, time: Timestamp, number: u64) {
        self.line.clear();
        let nanos = time.as_nanos() % 1_000_000_000;
        let (second, _) = self.time(time);
        let _ = write!(
            self.line,
            "{{\"v\":2,\"time\":\"{second}.{nanos:09}Z\",\"run\":\"{RUN}\",\"seq\":{number},\"generation\":1"
        );
    }

    fn append(&mut self, text: std::fmt::Arguments<'_>) {
        self.line.write_fmt(text).expect("memory takes all bytes");
    }

    /// The seconds of a time as `2026-03-01T12:00:00`, and the milliseconds after them. All are in March 2026.
    fn time(&mut self, time: Timestamp) -> (String, u64) {
        let seconds = time.as_nanos() / 1_000_000_000;
        if self.second.0 != seconds {
            // 2026-03-01T00:00:00Z.
            let of_month = seconds - 1_772_323_200;
            let (day, second) = (1 + of_month / 86_400, of_month % 86_400);
            let mut text = String::new();
            let _ = write!(
                text,
                "2026-03-{day:02}T{:02}:{:02}:{:02}",
                second / 3_600,
                second / 60 % 60,
                second % 60
            );
            self.second = (seconds, text);
        }
        (self.second.1.clone(), time.as_nanos() / 1_000_000 % 1_000)
    }
}

fn code(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::OverLimit => "OVER_LIMIT",
    }
}

fn response_code(code: Code) -> u32 {
    match code {
        Code::Ok => 200,
        Code::OverLimit => 429,
    }
}
