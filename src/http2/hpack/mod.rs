//! HPACK (RFC 7541): reading any header block, and the shapes of field that are written here.

mod decode;
mod dynamic_table;
mod encode;
mod fields;
mod huffman;
mod static_table;

pub(crate) use decode::{Decoder, HpackError};
pub(crate) use encode::{write_indexed, write_literal, write_no_table};
pub use fields::Fields;

/// The table size that both sides have unless SETTINGS say otherwise; both of ours leave it so.
pub(crate) const DEFAULT_TABLE_SIZE: usize = 4096;

/// What an entry costs in a table, or in a list of fields, beyond the bytes of its name and value.
pub(crate) const ENTRY_OVERHEAD: usize = 32;

/// The index of the newest entry of a dynamic table.
pub(crate) const NEWEST: usize = static_table::STATIC_TABLE.len() + 1;
