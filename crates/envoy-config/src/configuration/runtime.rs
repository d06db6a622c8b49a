//! The runtime of a bootstrap: values of static layers, which replace defaults of settings.

use super::share::Share;
use crate::part::Part;

/// The values of the static layers. Only a running Envoy has the layers on disk, of the admin port and of RTDS.
#[derive(Debug, Default)]
pub struct Runtime<'d>(Vec<(String, Part<'d>)>);

impl<'d> Runtime<'d> {
    /// Adds the runtime of a document: a bootstrap, or a dump of a bootstrap.
    pub(crate) fn add(&mut self, root: Part<'d>) {
        let dumped = root.list("configs").find_map(|config| config.get("bootstrap"));
        let layers =
            dumped.unwrap_or(root).get("layered_runtime").into_iter().flat_map(|all| all.list("layers"));
        for layer in layers.filter_map(|layer| layer.get("static_layer")) {
            self.flatten("", layer);
        }
    }

    /// Nested maps make one key: `a: { b: 1 }` is `a.b: 1`.
    fn flatten(&mut self, prefix: &str, part: Part<'d>) {
        for (name, value) in part.fields() {
            let key = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") };
            match value.fields().next().is_some() && !value.has("numerator") {
                true => self.flatten(&key, value),
                false => self.0.push((key, value)),
            }
        }
    }

    /// Place and value of a key that has a share of requests. The last layer applies.
    pub fn share(&self, key: &str) -> Option<(Part<'d>, Share)> {
        let (_, value) = self.0.iter().rev().find(|(own, _)| own == key)?;
        let share = match value.has("numerator") {
            true => Share::of(*value),
            false => Share::percents(value.as_text().parse().ok()?),
        };
        Some((*value, share))
    }
}
