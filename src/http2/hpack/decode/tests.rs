use super::{
    super::{NEWEST, write_indexed, write_literal, write_literal_of, write_no_table},
    *,
};

const LIST_MAX: usize = 16 * 1024;

fn fields(decoder: &mut Decoder, block: &[u8]) -> Result<Vec<(String, String)>, HpackError> {
    let mut fields = Fields::default();
    decoder.decode(block, LIST_MAX, &mut fields)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(fields.iter().map(|(name, value)| (text(name), text(value))).collect())
}

fn field(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

/// RFC 7541, appendix C.6, first two responses: Huffman coding and a table that is full.
#[test]
fn the_responses_of_the_rfc_are_read_as_there() {
    let mut decoder = Decoder::new();
    decoder.table.resize(256);
    let first = b"\x48\x82\x64\x02\x58\x85\xae\xc3\x77\x1a\x4b\x61\x96\xd0\x7a\xbe\x94\x10\x54\xd4\x44\xa8\x20\
                  \x05\x95\x04\x0b\x81\x66\xe0\x82\xa6\x2d\x1b\xff\x6e\x91\x9d\x29\xad\x17\x18\x63\xc7\x8f\x0b\
                  \x97\xc8\xe9\xae\x82\xae\x43\xd3";
    let expected = [
        field(":status", "302"),
        field("cache-control", "private"),
        field("date", "Mon, 21 Oct 2013 20:13:21 GMT"),
        field("location", "https://www.example.com"),
    ];
    assert_eq!(fields(&mut decoder, first).as_deref(), Ok(&expected[..]));
    assert_eq!(decoder.table.held(), (4, 222));

    let second = fields(&mut decoder, b"\x48\x83\x64\x0e\xff\xc1\xc0\xbf").expect("a good block");
    assert_eq!(second[0], field(":status", "307"));
    assert_eq!(second[1..], expected[1..]);
    assert_eq!(decoder.table.held(), (4, 222), "(:status, 302) made room for (:status, 307)");
}

#[test]
fn encoded_fields_are_decoded_and_shorter_by_index() {
    let (mut decoder, long) = (Decoder::new(), "x".repeat(300));
    let mut block = Vec::new();
    write_indexed(3, &mut block);
    write_literal(b":path", b"/a", false, &mut block);
    write_literal(b"grpc-timeout", long.as_bytes(), true, &mut block);
    let expected = [field(":method", "POST"), field(":path", "/a"), field("grpc-timeout", &long)];
    assert_eq!(fields(&mut decoder, &block).as_deref(), Ok(&expected[..]));

    let generation = decoder.generation();
    let mut again = Vec::new();
    write_indexed(NEWEST, &mut again);
    assert_eq!(fields(&mut decoder, &again).as_deref(), Ok(&expected[2..]));
    assert_eq!(decoder.generation(), generation, "the table did not change");

    let mut without = Vec::new();
    write_no_table(&mut without);
    write_indexed(NEWEST, &mut without);
    assert_eq!(fields(&mut decoder, &without), Err(HpackError::Index));
    assert_ne!(decoder.generation(), generation, "the table changed");
}

#[test]
fn malformed_blocks_are_errors() {
    for (block, error) in [
        (&b"\x80"[..], HpackError::Index),
        (b"\xbe", HpackError::Index),
        (b"\x40\x05ab", HpackError::Truncated),
        (b"\x40", HpackError::Truncated),
        (b"\xff\xff\xff\xff\xff\xff", HpackError::Integer),
        (b"\x3f\xe2\x1f", HpackError::TableSize),
        (b"\x82\x20", HpackError::LateResize),
    ] {
        assert_eq!(fields(&mut Decoder::new(), block), Err(error), "{block:x?}");
    }
}

#[test]
fn fields_beyond_the_list_bound_are_only_counted_but_added_to_the_table() {
    let (mut decoder, mut list) = (Decoder::new(), Fields::default());
    let mut block = Vec::new();
    write_literal(b"a", &[b'x'; 100], true, &mut block);
    write_literal(b"b", &[b'x'; 100], true, &mut block);
    decoder.decode(&block, 150, &mut list).expect("a good block");
    assert_eq!(list.iter().map(|(name, _)| name[0]).collect::<Vec<_>>(), [b'a']);
    assert_eq!(list.list_bytes(), 2 * (1 + 100 + ENTRY_OVERHEAD));
    assert_eq!(fields(&mut decoder, b"\xbe").expect("b is in the table")[0].0, "b");
}

/// 8,000 bytes made the decoder copy 32 MB.
#[test]
fn a_list_far_beyond_the_bound_is_an_error_and_is_not_copied() {
    let (mut decoder, mut list) = (Decoder::new(), Fields::default());
    let mut block = Vec::new();
    write_literal(&[b'n'; 4000], b"", true, &mut block);
    decoder.decode(&block, LIST_MAX, &mut list).expect("a valid block");
    assert_eq!(decoder.decode(&[0xbe; 8000], LIST_MAX, &mut list), Err(HpackError::ListTooLarge));
    assert!(list.ends_within(LIST_MAX));
    assert!(list.list_bytes() < 5 * LIST_MAX);
}

/// The fields of a traced call, as Envoy encodes them: the path is literal each time, and the trace is added to the table,
/// so that the indices of all other entries change with every call.
fn traced(round: u32) -> Vec<u8> {
    let mut block = Vec::new();
    let trace = format!("00-{round:032x}-{round:016x}-00");
    write_indexed(3, &mut block);
    write_literal(
        b":path",
        b"/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
        false,
        &mut block,
    );
    if round == 0 {
        write_literal(b"te", b"trailers", true, &mut block);
    } else {
        write_indexed(NEWEST + round as usize, &mut block);
    }
    if round == 0 {
        write_literal(b"traceparent", trace.as_bytes(), true, &mut block);
    } else {
        write_literal_of(NEWEST, trace.as_bytes(), &mut block);
    }
    block
}

#[test]
fn fields_that_are_repeated_are_not_decoded_again() {
    let (mut decoder, mut list) = (Decoder::new(), Fields::default());
    decoder.decode(&traced(0), LIST_MAX, &mut list).expect("a good block");
    assert_eq!(list.new_bytes(), list.list_bytes());
    assert!(list.changed_values().is_none(), "there was no block before");
    for round in 1..10 {
        decoder.decode(&traced(round), LIST_MAX, &mut list).expect("a good block");
        let trace = format!("00-{round:032x}-{round:016x}-00");
        assert_eq!(list.new_bytes(), b"traceparent".len() + trace.len() + ENTRY_OVERHEAD);
        let changed: Vec<_> = list.changed_values().expect("only a value changed").collect();
        assert_eq!(changed, [(&b"traceparent"[..], trace.as_bytes())]);
        assert_eq!(
            (list.get(b"te"), list.get(b"traceparent")),
            (Some(&b"trailers"[..]), Some(trace.as_bytes()))
        );
    }
}

/// The fields of one traced call were decoded and checked again with each: 61 % more instructions than without a trace.
#[test]
fn a_value_that_varies_alone_is_decoded_only_if_it_is_read() {
    let (mut decoder, mut list) = (Decoder::new(), Fields::default());
    // A block adds an entry of 98 bytes: the oldest, `te`, is evicted by that of round 41.
    for round in 0..42 {
        let block = traced(round);
        let repeated = decoder.decode_repeated(&block, &[], &list).expect("a valid block");
        assert_eq!(repeated, (round >= 2).then_some((&b"traceparent"[..], 98)), "{round}");
        if repeated.is_none() {
            decoder.decode(&block, LIST_MAX, &mut list).expect("a valid block");
            decoder.expect_repeated(&block, &list);
        } else if round % 4 == 0 {
            decoder.complete(&mut list);
            let trace = format!("00-{round:032x}-{round:016x}-00");
            assert_eq!(list.get(b"traceparent"), Some(trace.as_bytes()));
        } else {
            let entry = decoder.table.get(0).expect("it was added");
            assert!(entry.is_coded && entry.value.len() < 50, "{entry:?}");
        }
    }
    assert_eq!(decoder.decode_repeated(&traced(42), &[], &list), Ok(None));
    assert_eq!(decoder.decode(&traced(42), LIST_MAX, &mut list), Err(HpackError::Index));
}

/// An entry that took the index of another one is not that one.
#[test]
fn an_index_that_stands_for_another_entry_is_decoded() {
    let (mut decoder, mut list) = (Decoder::new(), Fields::default());
    let mut block = Vec::new();
    write_literal(b"a", b"1", true, &mut block);
    write_literal(b"b", b"2", true, &mut block);
    decoder.decode(&block, LIST_MAX, &mut list).expect("a good block");
    for (index, name) in [(NEWEST, b"b"), (NEWEST + 1, b"a")] {
        block.clear();
        write_indexed(index, &mut block);
        decoder.decode(&block, LIST_MAX, &mut list).expect("a good block");
        assert_eq!(list.iter().map(|(name, _)| name).collect::<Vec<_>>(), [name]);
        assert!(list.changed_values().is_none());
    }
}

/// A field: its name, its value, and whether it is literal (0), literal and indexed (1), an index (2), literal with the
/// name of an entry (3), or literal with a name of the static table (4).
fn any_field() -> impl proptest::strategy::Strategy<Value = (u8, u8, u8)> {
    (0..3_u8, 0..4_u8, 0..5_u8)
}

/// Appends a literal field that is not indexed, with the name of an entry.
fn write_name_of_entry(index: usize, value: &[u8], block: &mut Vec<u8>) {
    // The index is above that of the largest number in four bits.
    block.extend([0x0f, (index - 15) as u8, value.len() as u8]);
    block.extend_from_slice(value);
}

proptest::proptest! {
    #[test]
    fn fields_kept_from_the_block_before_are_those_of_a_new_list(
        blocks in proptest::collection::vec(proptest::collection::vec(any_field(), 0..6), 1..30),
        list_max in 40..300_usize,
    ) {
        let (mut decoder, mut reference, mut list) = (Decoder::new(), Decoder::new(), Fields::default());
        for fields in blocks {
            let mut block = Vec::new();
            for (name, value, kind) in fields {
                let value = [b'v', value].repeat(1 + usize::from(value) / 2);
                match kind {
                    2 if reference.table.get(usize::from(name)).is_some() => {
                        write_indexed(NEWEST + usize::from(name), &mut block);
                    }
                    3 if reference.table.get(usize::from(name)).is_some() => {
                        write_name_of_entry(NEWEST + usize::from(name), &value, &mut block);
                    }
                    4 => write_literal([&b":path"[..], b"te", b"accept"][usize::from(name)], &value, false, &mut block),
                    _ => write_literal(&[b'a' + name], &value, kind == 1, &mut block),
                }
            }
            let mut new = Fields::default();
            let expected = reference.decode(&block, list_max, &mut new);
            let before: Vec<_> = list.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
            let was_complete = list.list_bytes() <= list_max;
            proptest::prop_assert_eq!(decoder.decode(&block, list_max, &mut list), expected);
            if expected.is_err() {
                return Ok(());
            }
            proptest::prop_assert!(list.iter().eq(new.iter()));
            proptest::prop_assert_eq!(list.list_bytes(), new.list_bytes());
            if let Some(changed) = list.changed_values() {
                let after = list.iter().map(|(name, value)| (name.to_vec(), value.to_vec()));
                let differing = after.zip(&before).filter(|(after, before)| after != *before);
                let differing: Vec<_> = differing.map(|(after, _)| after).collect();
                let changed: Vec<_> = changed.map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
                proptest::prop_assert!(was_complete);
                proptest::prop_assert_eq!(list.iter().count(), before.len());
                proptest::prop_assert_eq!(changed, differing);
            }
        }
    }

    #[test]
    fn any_bytes_neither_panic_nor_exceed_the_table(blocks: Vec<Vec<u8>>) {
        let (mut decoder, mut fields) = (Decoder::new(), Fields::default());
        for block in blocks {
            let _ = decoder.decode(&block, 100, &mut fields);
            proptest::prop_assert!(decoder.table.is_within_bounds());
            proptest::prop_assert!(fields.ends_within(100));
        }
    }
}
