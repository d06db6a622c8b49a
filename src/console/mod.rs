//! The console: pages for operators in a browser, over the control API. The files are part of the program, and are served as
//! they are: there is no build step.
//!
//! Invariants: the pages refer to no other origin, and contain no script or style in the markup, so that
//! [`CONTENT_SECURITY_POLICY`] applies to them.

use std::sync::LazyLock;

/// Scripts, styles and requests of this origin alone; no frame of another page around the console.
pub const CONTENT_SECURITY_POLICY: &str =
    "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// A file as a browser requests it.
#[derive(Clone, Copy, Debug)]
pub struct File {
    /// Its name below the path of the console.
    pub name: &'static str,
    /// Its media type.
    pub media_type: &'static str,
    /// Its content.
    pub content: &'static str,
}

/// The page that loads the others.
pub const INDEX: &str = "index.html";

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// A file of the folder `static`.
macro_rules! file {
    ($name:literal, $media_type:expr) => {
        File { name: $name, media_type: $media_type, content: include_str!(concat!("static/", $name)) }
    };
}

/// Every file.
const FILES: [File; 16] = [
    file!("index.html", "text/html; charset=utf-8"),
    file!("console.css", "text/css; charset=utf-8"),
    file!("icon.svg", "image/svg+xml"),
    file!("api.js", SCRIPT),
    file!("app.js", SCRIPT),
    file!("audit.js", SCRIPT),
    file!("chart.js", SCRIPT),
    file!("keys.js", SCRIPT),
    file!("live.js", SCRIPT),
    file!("overview.js", SCRIPT),
    file!("rules.js", SCRIPT),
    file!("shares.js", SCRIPT),
    file!("try.js", SCRIPT),
    file!("unlimited.js", SCRIPT),
    file!("view.js", SCRIPT),
    file!("what-if.js", SCRIPT),
];

/// Changes with the content of any file: all are of one version.
static ENTITY_TAG: LazyLock<String> = LazyLock::new(|| {
    let bytes = FILES.iter().flat_map(|file| file.content.bytes());
    // FNV-1a.
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("\"{hash:016x}\"")
});

/// The file of that name.
pub fn file(name: &str) -> Option<&'static File> {
    FILES.iter().find(|file| file.name == name)
}

/// The entity tag of every file (RFC 9110, section 8.8.3).
pub fn entity_tag() -> &'static str {
    &ENTITY_TAG
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Bytes of all files that a browser loads.
    const BYTES_MAX: usize = 150_000;

    #[test]
    fn every_file_of_the_folder_is_served_and_all_are_small() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/console/static");
        let entries = std::fs::read_dir(folder).expect("a folder");
        let names = entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"));
        let served = FILES.iter().map(|file| file.name.to_owned());
        assert_eq!(names.collect::<BTreeSet<_>>(), served.collect());
        let bytes: usize = FILES.iter().map(|file| file.content.len()).sum();
        eprintln!("console: {bytes} bytes in {} files", FILES.len());
        assert!(bytes < BYTES_MAX, "{bytes} bytes");
    }

    #[test]
    fn no_file_refers_to_another_origin_or_makes_markup_of_texts() {
        for File { name, content, .. } in FILES {
            let content = content.replace("http://www.w3.org/2000/svg", "");
            for forbidden in
                ["http:", "https:", "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("]
            {
                assert!(!content.contains(forbidden), "{name}: {forbidden}");
            }
        }
        let index = file(INDEX).expect("a file").content;
        for forbidden in [" style=", "<style", " onclick=", " onload=", "<script>"] {
            assert!(!index.contains(forbidden), "{forbidden}");
        }
    }
}
