//! The keys of a domain of which a descriptor ignores the case of letters.

use crate::rules::{
    grammar::{Declared, DeclaredKey, DeclaredValue},
    letter_case::AnyCaseKeys,
};
use smol_str::SmolStr;

pub(super) fn keys_of(declared: &[Declared]) -> AnyCaseKeys {
    let mut keys = Vec::new();
    add(declared, &mut keys);
    AnyCaseKeys::new(keys.into_iter())
}

fn add(declared: &[Declared], keys: &mut Vec<SmolStr>) {
    for Declared { key, value, below, .. } in declared {
        if let (DeclaredKey::Exact(key), DeclaredValue::Set(values)) = (key, value)
            && values.ignores_case()
        {
            keys.push(key.as_ref().into());
        }
        add(below, keys);
    }
}
