//! Lines of access logs in JSON and in text: each line is a request with the entries that the mapping makes, or a located error. The same
//! holds for each line of text in an arbitrary format.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::Arc;
use tidegate_replay::{
    APACHE_COMBINED, AccessLog, FieldsSeen, ISTIO_DEFAULT, Layout, LineContent, Mapping, Notation, Step,
    TextFormat, without_container_prefix,
};

fn check(log: &AccessLog, line: &[u8]) {
    let mut seen = FieldsSeen::default();
    match log.parse(line, &mut seen) {
        Ok(LineContent::Step(Step::Decision(event))) => {
            assert!((1..=2).contains(&event.descriptors.len()));
            for descriptor in &event.descriptors {
                assert!(descriptor.entries.iter().all(|(key, value)| !key.is_empty() && !value.is_empty()));
            }
        }
        Ok(_) => {}
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    assert!(seen.warnings(log.mapping()).iter().all(|warning| !warning.is_empty()));
}

fn mapping(time: &str, user: &str, client: &str) -> Arc<Mapping> {
    let mut mapping = Mapping::new("d".into(), time);
    mapping.add_descriptor(&format!("user={user}")).expect("a good descriptor");
    mapping
        .add_descriptor(&format!("remote_address={client},generic_key=\"login\""))
        .expect("a good descriptor");
    Arc::new(mapping)
}

fuzz_target!(|text: &[u8]| {
    let mut buffer = Vec::new();
    let line = without_container_prefix(text, &mut buffer).unwrap_or(text);
    let json = AccessLog::new(mapping("start_time", "headers.x-user[0]", "client[-1]"), Layout::Json);
    check(&json.expect("no field is known"), line);

    let text_log = |format: &str, notation, user: &str, client: &str| {
        let format = TextFormat::parse(format, notation).ok()?;
        let mapping = mapping(format.time_field()?, user, client);
        AccessLog::new(mapping, Layout::Text(Arc::new(format))).ok()
    };
    let istio = text_log(ISTIO_DEFAULT, Notation::Envoy, "user-agent", "downstream_remote_address");
    check(&istio.expect("a good format"), line);
    let apache = text_log(APACHE_COMBINED, Notation::Apache, "{user-agent}i", "path[0]");
    check(&apache.expect("a good format"), line);

    // The first line is a format string.
    let Some((format, line)) = std::str::from_utf8(text).ok().and_then(|text| text.split_once('\n')) else {
        return;
    };
    if let Some(log) = Notation::of(format).and_then(|notation| text_log(format, notation, "user", "client"))
    {
        check(&log, line.as_bytes());
    }
});
