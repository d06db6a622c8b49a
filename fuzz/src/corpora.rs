//! Writes the inputs that the fuzzers start from, each a real value of its kind, to `fuzz/corpus`.

use prost::Message;
use std::{fs, num::NonZeroU32, path::Path};
use tidegate::api::pb::{
    common::{
        RateLimitDescriptor,
        rate_limit_descriptor::{Entry, RateLimitOverride},
    },
    service::RateLimitRequest,
};
use tidegate_core::{
    algorithm::{Algorithm, LeakyBucket, Rate, SlidingLog, SlidingWindow, State, SubWindows, TokenBucket},
    limit::{Timestamp, Window},
};

fn main() {
    write("http2_client", &http2_answers());
    write("http2_server", &http2_calls());
    write("request_message", &messages());
    write("state", &states());
    write("snapshot", &snapshots());
    let exported =
        fs::read("tests/fixtures/snapshot-v1/exported.jsonl").expect("run at the repository's root");
    write("import", &[exported]);
    let descriptors = ["a=b,c=", r"path=/x?q=1\,2\\3", "remote_address=2001:db8::1"];
    write("descriptor_text", &descriptors.map(|text| text.as_bytes().to_vec()));
    write("decide", &choices());
    texts();
}

/// Inputs that are texts.
fn texts() {
    let of = |target: &str, texts: &[&str]| {
        write(target, &texts.iter().map(|text| text.as_bytes().to_vec()).collect::<Vec<_>>());
    };
    of(
        "control_json",
        &[
            "{\"override\":{\"id\":\"o\",\"domain\":\"d\",\"entries\":[{\"key\":\"k\",\"value\":\"v*\"}],\"limit\":{\"requests\":5,\"unit\":\"30s\"}},\"expiresIn\":\"60s\"}\u{9}",
            "{\"domain\":\"d\",\"descriptors\":[{\"entries\":[{\"key\":\"k\",\"value\":\"v\"}]}]}\u{2}",
        ],
    );
    of(
        "rate_limit_json",
        &[
            r#"{"domain":"d","descriptors":[{"entries":[{"key":"k","value":"v"}],"hitsAddend":"3","limit":{"requestsPerUnit":1,"unit":"DAY"}}],"hits_addend":2}"#,
        ],
    );
    of(
        "access_log",
        &[
            r#"{"start_time":"2026-03-01T12:00:00.5Z","headers":{"x-user":"ann"},"client":"1.2.3.4","hits":2,"response_code":429}"#,
        ],
    );
    of("csv", &["time,first,second\n1772366400,\"a,\"\"b\"\"\",-\n", "a\"b\u{1f}c,d"]);
    of(
        "cel",
        &[
            "descriptors[0]['a'] == '1' && !(descriptors[1].path.startsWith('/api') || limit.name != null)",
            "descriptors.exists(d, has(d.a) && int(d.a) in [1, 2]) ? size(descriptors[0]) : -0x1F",
            "descriptors[0].path.matches('^/[a-z]+/v[0-9]$') && {'a': 1.5, 'b': [2u]}.b.map(x, x * 2u) == [4u]",
        ],
    );
    of(
        "limits_file",
        &[
            "- namespace: d\n  max_value: 3\n  seconds: 60\n  name: n\n  conditions: ['descriptors[0].method == \"PUT\"', 'limit.name == \"n\"']\n  variables: ['descriptors[1].user']\n",
            "- { namespace: d, max_value: 2, seconds: 1, id: i, conditions: ['descriptors[0].path.startsWith(\"/api\") && limit.id != null'] }\n- { namespace: d, max_value: 1, seconds: 9, variables: ['descriptors[0].user'], algorithm: token_bucket }\n",
        ],
    );
    of(
        "networks",
        &[
            "10.0.0.0/8\n10.1.0.0/16\n::ffff:10.1.2.0/120\n2001:db8::/32\n10.1.2.3",
            "::/0\n2001:db8::1\n192.0.2.1/32\n2001:DB8:0::1",
        ],
    );
    of("regex", &["^/v[0-9]+/export\n(?i)b$\n(a|bb)*\n/v1/B", "\\p{Greek}+\n^\\bé{2,3}.*$\nλ"]);
    of(
        "tokens",
        &[
            "# tokens\nann:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef:operate\nsan=spiffe://a/b:read\n",
        ],
    );
    of(
        "blocks",
        &["user=ann\nuser=bot-* # pattern\n[demo]\nip=192.0.2.0/24\nip=2001:db8::1\n[*]\nuser=a\\*\n"],
    );
    of(
        "trace_headers",
        &[
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-d-b7ad6b7169203331",
            "\n\nb7ad6b7169203331\nb7ad6b7169203331\ntrue\n1",
        ],
    );
    of(
        "overrides",
        &[
            r#"{"overrides":{"o":{"declared":{"id":"o","domain":"demo","entries":[["api_key","a*"]],"action":{"limit":[{"requests":5,"per":"30s","algorithm":"token_bucket","burst":9},{"requests":50,"per":"day"}]}},"expires_ns":null,"reason":"","actor":"a","created_ns":1}},"blocks":{"b":{"declared":{"id":"b","domain":null,"key":"user","values":{"cidr":"192.0.2.0/24"}},"expires_ns":5,"reason":"","actor":"a","created_ns":1}}}"#,
        ],
    );
    write("xds", &[resource()]);
}

/// A resource with extensions.
fn resource() -> Vec<u8> {
    use tidegate::api::pb::rules::{RateLimitConfig, RateLimitDescriptor as Rule, RateLimitPolicy};
    let limit = RateLimitPolicy { unit: 3, requests_per_unit: 5, ..RateLimitPolicy::default() };
    let below = Rule { key: "path".into(), value: "/x*".into(), rate_limit: Some(limit), ..Rule::default() };
    let rule = Rule { key: "user".into(), descriptors: vec![below], shadow_mode: true, ..Rule::default() };
    RateLimitConfig { name: "r".into(), domain: "d".into(), descriptors: vec![rule] }.encode_to_vec()
}

fn write(target: &str, inputs: &[Vec<u8>]) {
    let folder = Path::new("fuzz/corpus").join(target);
    fs::create_dir_all(&folder).expect("a folder can be made");
    for (number, input) in inputs.iter().enumerate() {
        fs::write(folder.join(format!("{number:02}")), input).expect("a file can be written");
    }
}

const ENDS: u8 = 0x1;
const WHOLE: u8 = 0x4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Frames of a server: SETTINGS, then responses, refusals, RST_STREAM and GOAWAY.
fn http2_answers() -> Vec<Vec<u8>> {
    let settings = frame(4, 0, 0, &[0, 3, 0, 0, 0, 100]);
    // :status 200 by its index; content-type by its index, to be remembered, with a value in Huffman code.
    let head = frame(1, WHOLE, 1, b"\x88\x5f\x8b\x1d\x75\xd0\x62\x0d\x26\x3d\x4c\x4d\x65\x64");
    let trailers = frame(1, WHOLE | ENDS, 1, b"\x40\x0bgrpc-status\x010");
    let answered = [&settings[..], &head, &frame(0, 0, 1, b"\0\0\0\0\x02\x08\x01"), &trailers].concat();
    // The second answer refers to the header that was remembered from the first.
    let again = [&frame(1, WHOLE, 3, b"\x88\xbf"), &frame(1, WHOLE | ENDS, 3, b"\xbe")[..]].concat();
    let in_parts = [&frame(1, 0, 1, b"\x88")[..], &frame(9, WHOLE, 1, b"\x10\x01a\x01b")].concat();
    vec![
        [&answered[..], &again].concat(),
        [&settings[..], &in_parts, &frame(3, 0, 1, &[0, 0, 0, 7])].concat(),
        [&settings[..], &frame(6, 0, 0, b"12345678"), &frame(8, 0, 0, &[0, 1, 0, 0])].concat(),
        [&settings[..], &frame(7, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 11])].concat(),
        [&frame(4, 0, 0, &[0, 1, 0, 0, 0, 0]), &frame(1, WHOLE | ENDS, 1, b"\x20\x88")[..]].concat(),
    ]
}

/// Frames of a client after the preface: SETTINGS, then calls of the fast path, routed, cancelled or invalid ones.
fn http2_calls() -> Vec<Vec<u8>> {
    let settings = frame(4, 0, 0, &[0, 4, 0, 1, 0, 0]);
    // :method POST and :scheme http by their indices, :path as a literal to be remembered, content-type and te likewise.
    let head = |path: &str| {
        let path = [b"\x83\x86\x44", &[path.len() as u8][..], path.as_bytes()].concat();
        [&path[..], b"\x41\x01a\x5f\x10application/grpc\x40\x02te\x08trailers"].concat()
    };
    let call = |stream, path| frame(1, WHOLE, stream, &head(path));
    let quick = [&call(1, "/quick")[..], &frame(0, ENDS, 1, b"\0\0\0\0\x03abc")].concat();
    let by_index =
        [&frame(1, WHOLE, 3, b"\x83\x86\xc1\xc0\xbf\xbe")[..], &frame(0, ENDS, 3, b"route")].concat();
    let [first, rest] = [&head("/other")[..9], &head("/other")[9..]];
    let in_parts = [&frame(1, 0, 1, first)[..], &frame(9, WHOLE, 1, rest), &frame(0, 0, 1, b"more")].concat();
    vec![
        [&settings[..], &quick, &by_index].concat(),
        [&settings[..], &in_parts, &frame(3, 0, 1, &[0, 0, 0, 8])].concat(),
        [&settings[..], &frame(6, 0, 0, b"12345678"), &call(1, "/quick"), &frame(8, 0, 1, &[0, 0, 1, 0])]
            .concat(),
        [&settings[..], &call(1, "/quick"), &frame(0, 8 | ENDS, 1, b"\x02ab\0\0")].concat(),
        [&settings[..], &frame(7, 0, 0, &[0, 0, 0, 0, 0, 0, 0, 0]), &frame(4, ENDS, 0, &[])].concat(),
    ]
}

fn messages() -> Vec<Vec<u8>> {
    let entry = |key: &str, value: &str| Entry { key: key.into(), value: value.into() };
    let plain =
        RateLimitDescriptor { entries: vec![entry("api_key", "alice")], ..RateLimitDescriptor::default() };
    let full = RateLimitDescriptor {
        entries: vec![entry("remote_address", "10.0.0.1"), entry("path", "/käse")],
        limit: Some(RateLimitOverride { requests_per_unit: 42, unit: 3 }),
        hits_addend: Some(0),
        is_negative_hits: true,
    };
    let request = |descriptors| RateLimitRequest { domain: "edge".into(), descriptors, hits_addend: 3 };
    [
        request(vec![plain.clone()]),
        request(vec![full.clone(), plain]),
        request(vec![]),
        request(vec![full; 5]),
    ]
    .map(|request| request.encode_to_vec())
    .to_vec()
}

fn states() -> Vec<Vec<u8>> {
    let (limit, window) = (100, Window::from_secs(60).expect("a minute is a good window"));
    let rate = Rate::new(NonZeroU32::new(7).expect("not zero"), window);
    let algorithms = [
        Algorithm::SlidingWindow(SlidingWindow { limit, window }),
        Algorithm::SubWindows(SubWindows::new(limit, window, 8)),
        Algorithm::SlidingLog(SlidingLog { limit, window }),
        Algorithm::TokenBucket(TokenBucket::greedy(limit, NonZeroU32::MIN, window)),
        Algorithm::LeakyBucket(LeakyBucket { burst: limit, rate, queue: None }),
    ];
    let encoded = |algorithm: Algorithm| {
        let hits = [(0, 3), (1_500, 1), (1_500, 1), (40_000, 20), (61_000, 2)];
        let state = hits.into_iter().fold(State::EMPTY, |state, (millis, hits)| {
            algorithm.add(state, hits, Timestamp::from_millis(1_700_000_000_000 + millis))
        });
        let mut bytes = Vec::new();
        state.encode(&mut bytes);
        bytes
    };
    algorithms.map(encoded).to_vec()
}

/// A snapshot of one shard with one counter, a snapshot that claims too many shards, and a page alone.
fn snapshots() -> Vec<Vec<u8>> {
    const HEAD: &[u8] = br#"{"seed":"000102030405060708090a0b0c0d0e0f","shards":1}"#;
    const LIMITS: &[u8] = br#"[{"domain":"d","path":"user","tag":0,"algorithm":{"sliding_window":{"limit":9,"window":60000000000}}}]"#;
    const COMMIT: &[u8] = br#"{"at_nanos":1700000000000000000,"counters":1,"limit_records":[1]}"#;
    // Shard 0, all of its keys, one counter: its key, limit 0, and two words in four bytes and one.
    let page = [
        &[0; 7][..],
        &[1, 0],
        &10_u64.to_le_bytes(),
        &7_u64.to_le_bytes(),
        &[0; 4],
        b"\x41\x3f\x7f\xb0\x01\x07",
    ]
    .concat();
    let record = |kind: u8, body: &[u8]| [&[kind][..], &(body.len() as u16).to_le_bytes(), body].concat();
    let with_head = |head| [record(0, head), record(1, LIMITS), record(2, &page), record(3, COMMIT)].concat();
    // More shards than there is memory for.
    let boundless = br#"{"seed":"000102030405060708090a0b0c0d0e0f","shards":18446744073709551615}"#;
    vec![with_head(HEAD), with_head(boundless), page]
}

/// Worlds: the bytes are only choices, so any bytes will do.
fn choices() -> Vec<Vec<u8>> {
    let mut state = 1_u64;
    let mut byte = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (1..=8).map(|number| (0..number * 60).map(|_| byte()).collect()).collect()
}
