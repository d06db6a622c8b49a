//! What concerns the counters of one request: `ctl explain`, `peek`, `counters` and `give-back`.

use super::complete;
use crate::api::pb::control as pb;
use clap::Args;
use clap_complete::ArgValueCompleter;
use tidegate_core::limit::DescriptorText;

/// A request.
#[derive(Args, Clone)]
pub(super) struct RequestArgs {
    /// Domain of the request.
    #[arg(add = ArgValueCompleter::new(complete::domains))]
    domain: String,
    /// Descriptors of the request.
    #[arg(required = true, value_name = "KEY=VALUE,…")]
    pub(super) descriptors: Vec<DescriptorText>,
}

impl RequestArgs {
    /// The domain and the descriptors as the API has them.
    pub(super) fn wire(&self) -> (String, Vec<pb::Descriptor>) {
        (self.domain.clone(), wire(&self.descriptors))
    }
}

/// Descriptors as the API has them.
pub(super) fn wire(descriptors: &[DescriptorText]) -> Vec<pb::Descriptor> {
    let descriptor = |text: &DescriptorText| pb::Descriptor { entries: entries(text) };
    descriptors.iter().map(descriptor).collect()
}

/// Entries as the API has them.
pub(super) fn entries(text: &DescriptorText) -> Vec<pb::Entry> {
    text.0.iter().map(|(key, value)| pb::Entry { key: key.clone(), value: value.clone() }).collect()
}
