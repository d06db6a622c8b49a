//! CSV: arbitrary lines give a request or an error, and quoted fields are read as they were before quoting.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::Arc;
use tidegate_replay::{AccessLog, Columns, FieldsSeen, Layout, LineContent, Mapping, Step};

fuzz_target!(|text: &str| {
    let mut mapping = Mapping::new("d".into(), "time");
    mapping.add_descriptor("first=first").expect("a good descriptor");
    mapping.add_descriptor("second=second").expect("a good descriptor");
    let mapping = Arc::new(mapping);
    let log = |columns| AccessLog::new(Arc::clone(&mapping), Layout::Csv(columns));
    let (header, rest) = text.split_once('\n').unwrap_or((text, ""));
    if let Ok(Ok(log)) = Columns::parse(header.as_bytes()).map(log) {
        let mut seen = FieldsSeen::default();
        rest.split_inclusive('\n').for_each(|line| drop(log.parse(line.as_bytes(), &mut seen)));
    }

    let fields = text.split_once('\u{1f}').unwrap_or((text, ""));
    let [first, second] = [fields.0, fields.1].map(|field| field.replace(['\n', '\r'], " "));
    let quoted = [&first, &second].map(|field| format!("\"{}\"", field.replace('"', "\"\"")));
    let log = log(Columns::parse(b"time,first,second").expect("a good header")).expect("all columns");
    let line = format!("1772366400,{},{}\n", quoted[0], quoted[1]);
    let read = match log.parse(line.as_bytes(), &mut FieldsSeen::default()) {
        Ok(LineContent::Step(Step::Decision(event))) => event.descriptors,
        Ok(_) => Vec::new(),
        Err(error) => panic!("{line:?}: {error}"),
    };
    let read = read.iter().flat_map(|descriptor| &descriptor.entries).map(|(key, value)| (&**key, &**value));
    let expected = [("first", &*first), ("second", &*second)].into_iter();
    // These stand for an absent field.
    let expected = expected.filter(|(_, value)| !["", "-"].contains(value));
    assert_eq!(read.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
});
