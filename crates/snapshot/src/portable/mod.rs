//! The exported form of a snapshot: JSON lines that any tool can read and write. `docs/operations-reference.md` describes it.
//!
//! The first line has the version, the secret and the time. The limits follow, each with its index, then the counters. The last line has
//! the number of counters, so that a truncated file is detected.

mod export;
mod import;

pub use export::{ExportError, PortableWriter, export};
#[cfg(any(test, feature = "fuzzing"))]
pub(super) use import::read_lines;
pub use import::{ImportError, Portable, import};

use serde::{Deserialize, Serialize};
use tidegate_core::rules::LimitInfo;

const FORMAT: u32 = 1;

/// A line of the portable file.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum PortableLine {
    TidegateSnapshot {
        format: u32,
        seed: String,
        at_nanos: u64,
    },
    Limit {
        place: u32,
        limit: LimitInfo,
    },
    /// A counter. All fields except the place are hexadecimal.
    Counter {
        key: String,
        limit: u32,
        state: String,
    },
    End {
        counters: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Archive;

    const FILE: &str = concat!(
        r#"{"tidegate_snapshot":{"format":1,"seed":"000102030405060708090a0b0c0d0e0f","at_nanos":1700000000000000000}}"#,
        "\n",
        r#"{"limit":{"place":0,"limit":{"domain":"d","path":"user","tag":0,"algorithm":{"sliding_window":{"limit":9,"window":60000000000}}}}}"#,
        "\n",
        r#"{"counter":{"key":"ff00000000000000000000000000000a","limit":0,"state":"413f7fb00107"}}"#,
        "\n",
        r#"{"end":{"counters":1}}"#,
        "\n",
    );

    fn import_text(text: &str) -> (tempfile::TempDir, Result<u64, ImportError>) {
        let directory = tempfile::tempdir().unwrap();
        let done = import(text.as_bytes(), directory.path());
        (directory, done)
    }

    #[test]
    fn an_imported_snapshot_is_exported_to_the_same_bytes() {
        let (directory, done) = import_text(FILE);
        assert_eq!(done.unwrap(), 1);
        let mut archive = Archive::open(directory.path()).unwrap().expect("it was imported");
        let mut exported = Vec::new();
        assert_eq!(export(&mut archive, &mut exported, |_| {}).unwrap(), 1);
        assert_eq!(String::from_utf8(exported).unwrap(), FILE);
        drop(archive);
        let again = import(FILE.as_bytes(), directory.path());
        assert!(matches!(again, Err(ImportError::Occupied(_))));
    }

    #[test]
    fn every_truncated_file_is_refused() {
        for length in 0..FILE.len() - 1 {
            assert!(import_text(&FILE[..length]).1.is_err(), "cut to {length} bytes");
        }
    }

    #[test]
    fn keys_chosen_to_collide_are_refused() {
        let (before, rest) = FILE.split_once("{\"counter\"").unwrap();
        let counters: String = (0..100)
            .map(|number| {
                format!("{{\"counter\":{{\"key\":\"{number:016x}00000000000000aa\",\"limit\":0,\"state\":\"413f7fb00107\"}}}}\n")
            })
            .collect();
        let refused =
            import_text(&format!("{before}{counters}{{\"counter\"{rest}")).1.expect_err("too many agree");
        assert_eq!(
            refused.to_string(),
            "line 59: too many keys end in the same bits; they were not made under a secret"
        );
    }

    #[test]
    fn a_malformed_line_is_reported_by_its_number() {
        let refused = |from: &str, to: &str| {
            assert!(FILE.contains(from), "{from}");
            import_text(&FILE.replace(from, to)).1.expect_err("it is wrong").to_string()
        };
        assert_eq!(
            refused(r#""format":1"#, r#""format":2"#),
            "line 1: it has format 2, and this program reads format 1"
        );
        assert_eq!(
            refused(r#""limit":0,"state""#, r#""limit":1,"state""#),
            "line 3: there is no such limit above"
        );
        assert_eq!(refused("413f7fb00107", "413f7fb0010700"), "line 3: `state` is no state");
        assert_eq!(refused("000a", "000x"), "line 3: `key` is not 32 hexadecimal digits");
        assert_eq!(
            refused(r#"{"counters":1}"#, r#"{"counters":2}"#),
            "line 4: the file has 1 counters, not 2"
        );
        assert!(refused(r#""window":60000000000"#, r#""window":0"#).starts_with("line 2: "));
    }
}
