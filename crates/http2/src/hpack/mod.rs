//! HPACK (RFC 7541): decodes any header block, and encodes the kinds of fields that are used here.

mod decode;
#[cfg(test)]
mod differential;
mod dynamic_table;
mod encode;
mod error;
mod field_class;
mod fields;
mod huffman;
mod literals;
mod names;
mod repeated;
mod source;
mod static_table;

pub use decode::Decoder;
pub(crate) use encode::{write_indexed, write_literal, write_literal_of, write_no_table, write_table_size};
pub(crate) use error::HpackError;
pub use field_class::FieldNames;
pub(crate) use field_class::Pseudo;
pub use fields::Fields;
pub(crate) use static_table::STATIC_TABLE;

/// The default of SETTINGS_HEADER_TABLE_SIZE; both halves keep it.
pub(crate) const DEFAULT_TABLE_SIZE: usize = 4096;

/// Size of an entry of a table, or of a list of fields, beyond its name and value.
pub(crate) const ENTRY_OVERHEAD: usize = 32;

/// The index of the newest entry of a dynamic table.
pub(crate) const NEWEST: usize = STATIC_TABLE.len() + 1;
