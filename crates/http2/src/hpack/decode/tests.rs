use super::{
    super::{NEWEST, write_indexed, write_literal, write_literal_of, write_no_table},
    *,
};
use std::sync::LazyLock;

const LIST_MAX: usize = 16 * 1024;

fn decoder() -> Decoder {
    static NAMES: LazyLock<FieldNames> = LazyLock::new(|| FieldNames::new(["traceparent"]));
    Decoder::new(&NAMES)
}

fn fields(decoder: &mut Decoder, block: &[u8]) -> Result<Vec<(String, String)>, HpackError> {
    decoder.decode(block, LIST_MAX)?;
    Ok(texts(decoder))
}

/// The fields of the last block.
fn texts(decoder: &Decoder) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    decoder.fields().all().map(|(name, value)| (text(name), text(value))).collect()
}

fn field(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

/// RFC 7541, appendix C.6, first two responses: Huffman coding and a full table.
#[test]
fn the_responses_of_the_rfc_are_read_as_there() {
    let mut decoder = decoder();
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
    let (mut decoder, long) = (decoder(), "x".repeat(300));
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
        assert_eq!(fields(&mut decoder(), block), Err(error), "{block:x?}");
    }
}

#[test]
fn fields_beyond_the_list_bound_are_only_counted_but_added_to_the_table() {
    let mut decoder = decoder();
    let mut block = Vec::new();
    write_literal(b"a", &[b'x'; 100], true, &mut block);
    write_literal(b"b", &[b'x'; 100], true, &mut block);
    decoder.decode(&block, 150).expect("a good block");
    assert_eq!(decoder.fields().all().map(|(name, _)| name[0]).collect::<Vec<_>>(), [b'a']);
    assert_eq!(decoder.fields().list_bytes(), 2 * (1 + 100 + ENTRY_OVERHEAD));
    assert_eq!(fields(&mut decoder, b"\xbe").expect("b is in the table")[0].0, "b");
}

/// 8,000 bytes made the decoder copy 32 MB.
#[test]
fn a_list_far_beyond_the_bound_is_an_error_and_is_not_copied() {
    let mut decoder = decoder();
    let mut block = Vec::new();
    write_literal(&[b'n'; 4000], b"", true, &mut block);
    decoder.decode(&block, LIST_MAX).expect("a valid block");
    assert_eq!(decoder.decode(&[0xbe; 8000], LIST_MAX), Err(HpackError::ListTooLarge));
    assert!(decoder.fields().ends_within(LIST_MAX));
    assert!(decoder.fields().list_bytes() < 5 * LIST_MAX);
}

/// The fields of a traced call, as Envoy encodes them. The path is literal each time, and the trace is added to the table, so that the
/// indices of all other entries change with every call.
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

/// Entries are copied and checked when they are added. Before, a list of them by index took 3.9 steps for each of its bytes.
#[test]
fn a_field_by_index_takes_one_step_however_long_it_is() {
    let mut decoder = decoder();
    let mut block = Vec::new();
    write_literal(&[b'n'; 1000], &[b'v'; 3000], true, &mut block);
    decoder.decode(&block, LIST_MAX).expect("a good block");
    steps::take();
    decoder.decode(&[0xbe; 4], LIST_MAX).expect("a good block");
    assert_eq!(steps::take(), 4 * steps::FIELD);
    assert_eq!(texts(&decoder), vec![field(&"n".repeat(1000), &"v".repeat(3000)); 4]);
}

/// The fields of a traced call were decoded and checked again with each call: 61 % more instructions than without a trace.
#[test]
fn a_value_that_varies_alone_is_decoded_only_if_it_is_read() {
    let mut decoder = decoder();
    // Each block adds an entry of 98 bytes. Round 41 evicts the oldest entry, `te`.
    for round in 0..42 {
        let block = traced(round);
        let repeated = decoder.decode_repeated(&block).expect("a valid block");
        assert_eq!(repeated, (round >= 2).then_some(Repeated { read: Some(0) }), "{round}");
        let trace = format!("00-{round:032x}-{round:016x}-00");
        if repeated.is_none() {
            decoder.decode(&block, LIST_MAX).expect("a valid block");
            decoder.expect_repeated(&block);
        } else if round % 4 == 0 {
            decoder.complete();
            assert_eq!(decoder.fields().get(b"traceparent"), Some(trace.as_bytes()));
        } else {
            assert!(decoder.table.newest_coded().is_some_and(|coded| coded.len() < 50));
            assert_eq!(decoder.repeated_value(), trace.as_bytes());
        }
    }
    assert_eq!(decoder.decode_repeated(&traced(42)), Ok(None));
    assert_eq!(decoder.decode(&traced(42), LIST_MAX), Err(HpackError::Index));
}

/// A field: its name, its value, and whether it is literal (0), literal and indexed (1), an index (2), literal with the
/// name of an entry (3), or literal with a name of the static table (4).
fn any_field() -> impl proptest::strategy::Strategy<Value = (u8, u8, u8)> {
    (0..3_u8, 0..4_u8, 0..5_u8)
}

/// Appends a literal field that is not indexed, with the name of an entry.
fn write_name_of_entry(index: usize, value: &[u8], block: &mut Vec<u8>) {
    // The index exceeds the largest number in four bits.
    block.extend([0x0f, (index - 15) as u8, value.len() as u8]);
    block.extend_from_slice(value);
}

proptest::proptest! {
    #[test]
    fn fields_are_those_of_a_decoder_without_a_bound_as_far_as_they_are_within_it(
        blocks in proptest::collection::vec(proptest::collection::vec(any_field(), 0..6), 1..30),
        list_max in 40..300_usize,
    ) {
        let (mut decoder, mut reference) = (decoder(), decoder());
        for fields in blocks {
            let mut block = Vec::new();
            for (name, value, kind) in fields {
                let value = [b'v', value].repeat(1 + usize::from(value) / 2);
                match kind {
                    2 if reference.table.at(usize::from(name)).is_some() => {
                        write_indexed(NEWEST + usize::from(name), &mut block);
                    }
                    3 if reference.table.at(usize::from(name)).is_some() => {
                        write_name_of_entry(NEWEST + usize::from(name), &value, &mut block);
                    }
                    4 => write_literal([&b":path"[..], b"te", b"accept"][usize::from(name)], &value, false, &mut block),
                    _ => write_literal(&[b'a' + name], &value, kind == 1, &mut block),
                }
            }
            reference.decode(&block, usize::MAX).expect("a valid block");
            let is_far_above = reference.fields().list_bytes() > LIST_FACTOR_MAX * list_max;
            let expected = if is_far_above { Err(HpackError::ListTooLarge) } else { Ok(()) };
            proptest::prop_assert_eq!(decoder.decode(&block, list_max), expected);
            if expected.is_err() {
                return Ok(());
            }
            let (found, all) = (decoder.fields(), reference.fields());
            proptest::prop_assert!(found.all().eq(all.all().take(found.all().count())));
            proptest::prop_assert!(found.ends_within(list_max));
            proptest::prop_assert_eq!(found.list_bytes(), all.list_bytes());
            proptest::prop_assert_eq!(found.count(), all.all().count());
        }
    }

    #[test]
    fn any_bytes_neither_panic_nor_exceed_the_table(blocks: Vec<Vec<u8>>) {
        let mut decoder = decoder();
        for block in blocks {
            let _ = decoder.decode(&block, 100);
            proptest::prop_assert!(decoder.fields().ends_within(100));
            proptest::prop_assert!(decoder.table.is_within_bounds());
        }
    }
}
