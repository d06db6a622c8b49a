//! Files that hold Envoy configurations, and the documents in them.

use tidegate_core::rules::{Document, Located, RuleErrors, Source, config_map_files, documents};

/// The documents of files, and those of the ConfigMaps in them.
pub struct Files(Vec<(Source, Vec<Document>)>);

impl Files {
    /// Reads texts; an error if one is not YAML.
    pub fn read(sources: Vec<Source>) -> Result<Self, RuleErrors> {
        let mut files = Vec::new();
        for source in sources {
            let all = documents(&source)?;
            let of_maps = |document: &Document| config_map_files(&source, document.root());
            let inner: Vec<Source> = all.iter().flat_map(of_maps).collect();
            files.push((source, all));
            // An entry of a ConfigMap may be anything, such as a script.
            let read = |source: Source| documents(&source).ok().map(|all| (source, all));
            files.extend(inner.into_iter().filter_map(read));
        }
        Ok(Self(files))
    }

    /// Each document with its file.
    pub(crate) fn documents(&self) -> impl Iterator<Item = (&Source, Located<'_>)> {
        self.0.iter().flat_map(|(source, all)| all.iter().map(move |document| (source, document.root())))
    }
}
