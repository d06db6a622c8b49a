//! The bytes of a state in a page. Pure; reading never panics. The format never changes, because every version must read it.
//!
//! Two words: a byte with the lengths of both in its upper and lower four bits, then their bytes, little-endian. Ten million counters with
//! small numbers therefore take little room. Any other state: the byte 255, the number of bytes that follow (4 bytes), and the state in the
//! format of [`State::encode`].

use tidegate_core::algorithm::State;

const OTHER: u8 = 0xff;

/// Appends the state's bytes.
pub(super) fn write(state: &State, out: &mut Vec<u8>) {
    let State::Words([first, second]) = *state else {
        let mut bytes = Vec::new();
        state.encode(&mut bytes);
        out.push(OTHER);
        out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        out.extend_from_slice(&bytes);
        return;
    };
    let length = |word: u64| (8 - word.leading_zeros() / 8) as usize;
    let (first_length, second_length) = (length(first), length(second));
    out.push((first_length << 4 | second_length) as u8);
    out.extend_from_slice(&first.to_le_bytes()[..first_length]);
    out.extend_from_slice(&second.to_le_bytes()[..second_length]);
}

/// Takes a state off the front of the bytes. None if there is no state.
pub(super) fn read(bytes: &mut &[u8]) -> Option<State> {
    let (&lengths, rest) = bytes.split_first()?;
    if lengths == OTHER {
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let (state, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        *bytes = rest;
        return State::decode(state).ok();
    }
    let (first, rest) = word(rest, lengths >> 4)?;
    let (second, rest) = word(rest, lengths & 0xf)?;
    *bytes = rest;
    Some(State::Words([first, second]))
}

fn word(bytes: &[u8], length: u8) -> Option<(u64, &[u8])> {
    let (taken, rest) = bytes.split_at_checked(usize::from(length))?;
    let mut word = [0; 8];
    word.get_mut(..taken.len())?.copy_from_slice(taken);
    Some((u64::from_le_bytes(word), rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tidegate_core::{
        algorithm::{Algorithm, SlidingLog},
        limit::{Timestamp, Window},
    };

    #[test]
    fn small_words_take_few_bytes() {
        let written = |words| {
            let mut bytes = Vec::new();
            write(&State::Words(words), &mut bytes);
            bytes
        };
        assert_eq!(written([0, 0]), [0]);
        assert_eq!(written([0x1234, 7]), [0x21, 0x34, 0x12, 7]);
        assert_eq!(written([u64::MAX, u64::MAX]).len(), 17);
    }

    fn is_read_as_written(state: State, rest: &[u8]) -> Result<(), TestCaseError> {
        let mut bytes = Vec::new();
        write(&state, &mut bytes);
        bytes.extend_from_slice(rest);
        let mut left = bytes.as_slice();
        prop_assert_eq!(read(&mut left), Some(state));
        prop_assert_eq!(left, rest);
        Ok(())
    }

    proptest! {
        #[test]
        fn a_state_is_read_as_it_was_written(first: u64, second: u64, shift in 0..64u32, rest: Vec<u8>) {
            is_read_as_written(State::Words([first >> shift, second << shift]), &rest)?;
        }

        #[test]
        fn a_log_is_read_as_it_was_written(hits in prop::collection::vec(1..1_000_000_000u64, 1..40), rest: Vec<u8>) {
            let log = Algorithm::SlidingLog(SlidingLog { limit: 1000, window: Window::from_secs(60).unwrap() });
            let state = hits.iter().fold(State::EMPTY, |state, &nanos| {
                log.add(state, 1, Timestamp::from_nanos(nanos))
            });
            is_read_as_written(state, &rest)?;
        }

        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = read(&mut bytes.as_slice());
        }
    }
}
