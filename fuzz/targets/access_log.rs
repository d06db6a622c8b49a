//! Lines of access logs in JSON: each is a request with the entries that the mapping makes, or a located error.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_replay::{LineContent, Mapping};

fuzz_target!(|line: &[u8]| {
    let mut mapping = Mapping::new("d".into(), "start_time".into());
    mapping.hits = Some("hits".into());
    mapping.denied = Some(("response_code".into(), "429".into()));
    mapping.add_descriptor("user=headers.x-user").expect("a good descriptor");
    mapping.add_descriptor("client=client,generic_key=\"login\"").expect("a good descriptor");
    match mapping.json_line(line) {
        Ok(LineContent::Decision(event)) => {
            assert!((1..=2).contains(&event.descriptors.len()));
            for descriptor in &event.descriptors {
                assert!(descriptor.entries.iter().all(|(key, value)| !key.is_empty() && !value.is_empty()));
            }
        }
        Ok(_) => {}
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
