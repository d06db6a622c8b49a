//! The part of a request that a key of a descriptor usually names.

/// A part of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KeySource {
    /// A header.
    Header(String),
    /// The address of the client, as Envoy determines it.
    SourceIp,
    /// None: every request has the same value.
    Constant,
}

impl KeySource {
    /// The part of a request that a key stands for in Envoy's rate limit actions, else the header with the key's name.
    pub fn of_key(key: &str) -> Self {
        match key {
            "remote_address" | "masked_remote_address" => Self::SourceIp,
            "generic_key" | "destination_cluster" | "source_cluster" => Self::Constant,
            "path" | "method" | "authority" => Self::Header(format!(":{key}")),
            "PATH" => Self::Header(":path".to_owned()),
            "host" => Self::Header(":authority".to_owned()),
            _ => Self::Header(key.to_ascii_lowercase().replace('_', "-")),
        }
    }
}
