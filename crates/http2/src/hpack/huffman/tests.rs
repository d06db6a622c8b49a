use super::*;

fn coded(plain: &[u8]) -> Vec<u8> {
    let mut coded = Vec::new();
    encode(plain, &mut coded);
    coded
}

fn plain(coded: &[u8]) -> Result<Vec<u8>, HpackError> {
    let mut plain = Vec::new();
    decode(coded, &mut plain).map(|()| plain)
}

#[test]
fn the_examples_of_the_rfc_are_encoded() {
    assert_eq!(coded(b"www.example.com"), *b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff");
    assert_eq!(coded(b"no-cache"), *b"\xa8\xeb\x10\x64\x9c\xbf");
    assert_eq!(coded(b"302"), *b"\x64\x02");
}

#[test]
fn every_byte_is_decoded_as_encoded() {
    let all: Vec<u8> = (0..=255).collect();
    assert_eq!(plain(&coded(&all)), Ok(all));
}

#[test]
fn every_string_of_two_bytes_is_decoded_as_encoded() {
    for first in 0..=255 {
        for second in 0..=255 {
            assert_eq!(plain(&coded(&[first, second])), Ok(vec![first, second]));
        }
    }
}

#[test]
fn invalid_padding_and_end_of_string_are_errors() {
    assert_eq!(plain(&[0x18]), Err(HpackError::Huffman), "padding of zeros");
    assert_eq!(plain(&[0xff]), Err(HpackError::Huffman), "eight bits of padding");
    assert_eq!(plain(&[0xff; 4]), Err(HpackError::Huffman), "the end of string itself");
    assert_eq!(plain(&[]), Ok(Vec::new()));
}

/// Decodes bit by bit, by the codes alone.
fn plain_by_codes(coded: &[u8]) -> Result<Vec<u8>, HpackError> {
    let (mut decoded, mut code, mut length) = (Vec::new(), 0_u32, 0);
    for bit in coded.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1)) {
        (code, length) = (code << 1 | u32::from(bit), length + 1);
        let has_code =
            |symbol: &usize| usize::from(LENGTHS[*symbol]) == length && CODE.codes[*symbol] == code;
        if let Some(symbol) = (0..LENGTHS.len()).find(has_code) {
            decoded.push(u8::try_from(symbol).map_err(|_| HpackError::Huffman)?);
            (code, length) = (0, 0);
        }
    }
    let is_padding = length < 8 && code == (1 << length) - 1;
    if is_padding { Ok(decoded) } else { Err(HpackError::Huffman) }
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_decoded_as_by_their_codes(coded: Vec<u8>) {
        proptest::prop_assert_eq!(plain(&coded), plain_by_codes(&coded));
    }

    #[test]
    fn any_text_is_decoded_as_encoded(text: Vec<u8>, hex in "[0-9a-f-]{0,80}") {
        proptest::prop_assert_eq!(plain(&coded(&text)), Ok(text));
        proptest::prop_assert_eq!(plain(&coded(hex.as_bytes())), Ok(hex.into_bytes()));
    }
}
