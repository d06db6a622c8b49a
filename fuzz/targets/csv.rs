//! CSV: arbitrary lines give a request or an error, and fields that are quoted are read as they were.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_replay::{Columns, LineContent, Mapping};

fuzz_target!(|text: &str| {
    let mut mapping = Mapping::new("d".into(), "time".into());
    mapping.add_descriptor("first=first").expect("a good descriptor");
    mapping.add_descriptor("second=second").expect("a good descriptor");
    let (header, rest) = text.split_once('\n').unwrap_or((text, ""));
    if let Ok(columns) = Columns::parse(header.as_bytes()) {
        rest.split_inclusive('\n').for_each(|line| drop(mapping.csv_line(&columns, line.as_bytes())));
    }

    let fields = text.split_once('\u{1f}').unwrap_or((text, ""));
    let [first, second] = [fields.0, fields.1].map(|field| field.replace(['\n', '\r'], " "));
    let quoted = [&first, &second].map(|field| format!("\"{}\"", field.replace('"', "\"\"")));
    let columns = Columns::parse(b"time,first,second").expect("a good header");
    let line = format!("1772366400,{},{}\n", quoted[0], quoted[1]);
    let read = match mapping.csv_line(&columns, line.as_bytes()) {
        Ok(LineContent::Decision(event)) => event.descriptors,
        Ok(_) => Vec::new(),
        Err(error) => panic!("{line:?}: {error}"),
    };
    let read = read.iter().flat_map(|descriptor| &descriptor.entries).map(|(key, value)| (&**key, &**value));
    let expected = [("first", &*first), ("second", &*second)].into_iter();
    // These stand for an absent field.
    let expected = expected.filter(|(_, value)| !["", "-"].contains(value));
    assert_eq!(read.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
});
