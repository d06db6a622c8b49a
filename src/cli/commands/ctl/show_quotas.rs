//! Buckets of quotas as a table: a line for each bucket, and below it one for each client.

use super::{
    show::{entries, time_text, window},
    shown::Shown,
};
use crate::{
    api::pb::control::{self as pb, quota_bucket::Division, quota_subscriber::Assignment},
    cli::output::{counted, table},
};

pub(super) fn quotas(response: &pb::ListQuotasResponse) -> Shown {
    let header = ["bucket, client", "limit", "demand/s", "share/s", "tokens", "last report", "expires"];
    let mut rows = table::table(header);
    for bucket in &response.buckets {
        let limit = match bucket.window {
            None => String::new(),
            Some(_) => format!("{} in {}", bucket.requests, window(bucket.window.as_ref())),
        };
        rows.add_row([
            format!("{}: {}", bucket.domain, entries(&bucket.entries)),
            limit,
            format!("{:.1}", bucket.demand),
            share(bucket.division(), bucket.rate),
            bucket.tokens.to_string(),
            String::new(),
            String::new(),
        ]);
        for client in &bucket.subscribers {
            rows.add_row(subscriber(bucket.division(), client));
        }
        let unlisted = (bucket.subscriber_count as usize).saturating_sub(bucket.subscribers.len());
        if unlisted > 0 {
            rows.add_row([&format!("+ {unlisted} clients with less demand"), "", "", "", "", "", ""]);
        }
        if bucket.gone_rate > 0.0 || bucket.gone_tokens > 0 {
            rows.add_row(sum("- gone".to_owned(), bucket.division(), bucket.gone_rate, bucket.gone_tokens));
        }
        if let Some(part) = &bucket.part {
            let division = bucket.division();
            let mut own = sum("= part of this server".to_owned(), division, part.rate, part.tokens);
            own[6] = time_text(part.expires.as_ref());
            rows.add_row(own);
            let others = format!("= parts of {} other servers", part.other_servers);
            rows.add_row(sum(others, division, part.others_rate, part.others_tokens));
        }
    }
    let pb::ListQuotasResponse { total, streams, undivided, is_learning, .. } = response;
    let mut text =
        format!("{rows}\n{}, {}", counted(u64::from(*total), "bucket"), counted(*streams, "stream"));
    if *undivided > 0 {
        text += &format!("; {} of streams that no limit divides", counted(*undivided, "bucket"));
    }
    if *is_learning {
        text +=
            "; the server has just started: for 16 s, what a former process may have assigned counts as used";
    }
    Shown::new(response, text)
}

/// A line that sums up what several clients have, or may have.
fn sum(name: String, division: Division, rate: f64, tokens: u64) -> [String; 7] {
    let empty = String::new;
    [name, empty(), empty(), share(division, rate), tokens.to_string(), empty(), empty()]
}

fn subscriber(division: Division, client: &pb::QuotaSubscriber) -> [String; 7] {
    let names = if client.names.is_empty() { String::new() } else { format!(" {}", client.names.join(" ")) };
    [
        format!("- stream {} of {}{names}", client.stream, client.peer),
        String::new(),
        format!("{:.1}", client.demand),
        match client.assignment() {
            Assignment::None => "none".to_owned(),
            Assignment::DenyAll => "denied".to_owned(),
            Assignment::Tokens => share(division, client.rate),
        },
        client.tokens.to_string(),
        time_text(client.last_report.as_ref()),
        time_text(client.expires.as_ref()),
    ]
}

fn share(division: Division, rate: f64) -> String {
    match division {
        Division::Rates => format!("{rate:.1}"),
        Division::Slices => "slice".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_followed_by_its_clients_and_by_what_others_left() {
        let client = |stream, assignment: Assignment| pb::QuotaSubscriber {
            stream,
            peer: "192.0.2.1".into(),
            names: vec!["edge-1".into()],
            assignment: assignment.into(),
            demand: 12.5,
            rate: 10.0,
            tokens: 3,
            expires: Some(prost_types::Timestamp { seconds: 1_800_000_000, nanos: 0 }),
            ..pb::QuotaSubscriber::default()
        };
        let bucket = pb::QuotaBucket {
            domain: "shop".into(),
            entries: vec![pb::Entry { key: "plan".into(), value: "free".into() }],
            requests: 100,
            window: Some(prost_types::Duration { seconds: 60, nanos: 0 }),
            rate: 11.0,
            gone_rate: 1.0,
            subscriber_count: 4,
            subscribers: vec![client(3, Assignment::Tokens), client(5, Assignment::DenyAll)],
            part: Some(pb::QuotaPart {
                rate: 12.0,
                tokens: 7,
                expires: Some(prost_types::Timestamp { seconds: 1_800_000_015, nanos: 0 }),
                other_servers: 2,
                others_rate: 30.0,
                others_tokens: 9,
            }),
            ..pb::QuotaBucket::default()
        };
        let slices = pb::QuotaBucket { division: Division::Slices.into(), ..pb::QuotaBucket::default() };
        let buckets = vec![bucket, slices];
        let response =
            pb::ListQuotasResponse { buckets, total: 2, streams: 6, ..pb::ListQuotasResponse::default() };
        let expected = "\
bucket, client                  limit      demand/s  share/s  tokens  last report  expires
shop: plan=free                 100 in 1m  0.0       11.0     0
- stream 3 of 192.0.2.1 edge-1             12.5      10.0     3                    2027-01-15T08:00:00Z
- stream 5 of 192.0.2.1 edge-1             12.5      denied   3                    2027-01-15T08:00:00Z
+ 2 clients with less demand
- gone                                               1.0      0
= part of this server                                12.0     7                    2027-01-15T08:00:15Z
= parts of 2 other servers                           30.0     9
:                                          0.0       slice    0
2 buckets, 6 streams";
        assert_eq!(quotas(&response).text, expected);
    }
}
