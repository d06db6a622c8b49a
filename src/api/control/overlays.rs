//! Overrides and blocks: listed, set and deleted.

use super::{
    caller::Admitted,
    convert::timestamp,
    error::{Error, Result, on_thread},
    rules::{page, page_start},
};
use crate::api::{
    pb::control as pb,
    time::{from_duration, from_timestamp},
};
use std::ops::Range;
use tidegate_core::{
    limit::{CUT_BYTES, Timestamp, Window},
    rules::{
        Block, BlockedValues, Network, OVERRIDE_LIMITS_MAX, OverrideAction, OverrideLimit,
        OverrideLimitError, OverrideRule, RuleLimit, usual_spelling,
    },
};
use tidegate_operations::control::{OverlayError, Overlays, Stored};
use tonic::Code;

const ID_BYTES_MAX: usize = 64;
const REASON_BYTES_MAX: usize = 1_024;

impl Admitted {
    pub(super) async fn list_overrides(
        &self,
        _: pb::ListOverridesRequest,
    ) -> Result<pb::ListOverridesResponse> {
        let control = self.control.clone();
        let listed = move || {
            let overlays = control.overlays();
            overlays.overrides.values().cloned().map(override_to_message).collect()
        };
        // There may be ten thousand.
        let overrides = on_thread("the overrides could not be listed", listed).await?;
        Ok(pb::ListOverridesResponse { overrides })
    }

    pub(super) async fn set_override(
        &self,
        message: pb::SetOverrideRequest,
    ) -> Result<pb::SetOverrideResponse> {
        let Some(of) = message.r#override else { return Err(Error::invalid("override", "is missing")) };
        let action = action(&of)?;
        let id = id("override.id", of.id, "o")?;
        self.check_domain("override.domain", &of.domain)?;
        if of.entries.is_empty() {
            return Err(Error::invalid("override.entries", "is empty; send at least one entry"));
        }
        for (index, entry) in of.entries.iter().enumerate() {
            self.check_key(&format!("override.entries[{index}].key"), &entry.key)?;
            self.check_text(&format!("override.entries[{index}].value"), &entry.value)?;
        }
        let entries = of.entries.into_iter().map(|entry| (entry.key, entry.value)).collect();
        let declared = OverrideRule { id: id.clone(), domain: of.domain, entries, action };
        self.check_enforceable(&declared)?;
        let warnings = self.warnings_of_override(&declared);
        let expires = self.expires("override.expires", of.expires, message.expires_in)?;
        let stored = self.stored(declared, expires, ("override.reason", of.reason))?;
        let response = override_to_message(stored.clone());
        self.change(move |overlays| _ = overlays.overrides.insert(id, stored)).await?;
        Ok(pb::SetOverrideResponse { r#override: Some(response), warnings })
    }

    pub(super) async fn delete_override(
        &self,
        message: pb::DeleteOverrideRequest,
    ) -> Result<pb::DeleteOverrideResponse> {
        let id = message.id.clone();
        match self.change(move |overlays| overlays.overrides.remove(&id).is_some()).await? {
            true => Ok(pb::DeleteOverrideResponse {}),
            false => Err(Error::not_found(format!("there is no override {:?}", message.id))),
        }
    }

    pub(super) async fn list_blocks(&self, message: pb::ListBlocksRequest) -> Result<pb::ListBlocksResponse> {
        let start = page_start(&message.page_token)?;
        let (overlays, rules) =
            (self.control.overlays(), self.control.limiter().map(|limiter| limiter.rules()));
        let set = &overlays.blocks;
        let of_files: Vec<&Block> = rules.iter().flat_map(|rules| rules.file_blocks()).collect();
        let total = set.len() + of_files.len();
        let (Range { start, end }, next_page_token) = page(start, message.page_size, total);
        let [first, last] = [start, end].map(|at| at.saturating_sub(set.len()));
        let of_files = of_files[first..last].iter().map(|block| block_to_message((*block).clone()));
        let set = set.values().take(end).skip(start).cloned().map(stored_block_to_message);
        Ok(pb::ListBlocksResponse {
            blocks: set.chain(of_files).collect(),
            next_page_token,
            total: total as u32,
        })
    }

    pub(super) async fn set_block(&self, message: pb::SetBlockRequest) -> Result<pb::SetBlockResponse> {
        let Some(of) = message.block else { return Err(Error::invalid("block", "is missing")) };
        let id = id("block.id", of.id, "b")?;
        if !of.domain.is_empty() {
            self.check_domain("block.domain", &of.domain)?;
        }
        self.check_key("block.key", &of.key)?;
        self.check_text("block.value", &of.value)?;
        let values = match (of.value, of.cidr) {
            (value, cidr) if value.is_empty() == cidr.is_empty() => {
                return Err(Error::invalid("block.value", "give either a value or a cidr"));
            }
            // As a line of a file of blocks.
            (value, cidr) if cidr.is_empty() => {
                BlockedValues::of_text(&value).map_err(|reason| Error::invalid("block.value", reason))?
            }
            (_, cidr) => {
                let network = cidr.parse::<Network>();
                network.map_err(|error| Error::invalid("block.cidr", error.to_string()))?;
                BlockedValues::Cidr(cidr)
            }
        };
        let domain = Some(of.domain).filter(|domain| !domain.is_empty());
        let declared = Block { id: id.clone(), domain, key: of.key, values, is_in_file: false };
        let expires = self.expires("block.expires", of.expires, message.expires_in)?;
        let stored = self.stored(declared, expires, ("block.reason", of.reason))?;
        let warnings = self.warnings_of_block(&stored.declared);
        let response = stored_block_to_message(stored.clone());
        self.change(move |overlays| _ = overlays.blocks.insert(id, stored)).await?;
        Ok(pb::SetBlockResponse { block: Some(response), warnings })
    }

    pub(super) async fn delete_block(
        &self,
        message: pb::DeleteBlockRequest,
    ) -> Result<pb::DeleteBlockResponse> {
        let id = message.id.clone();
        match self.change(move |overlays| overlays.blocks.remove(&id).is_some()).await? {
            true => Ok(pb::DeleteBlockResponse {}),
            false if self.is_in_file(&message.id) => {
                let message = format!("the block {:?} is a line of a file; delete it there", message.id);
                Err(Error::new(Code::FailedPrecondition, message))
            }
            false => Err(Error::not_found(format!("there is no block {:?}", message.id))),
        }
    }

    /// Warns of a block whose key no rule of its domains has.
    fn warnings_of_block(&self, block: &Block) -> Vec<String> {
        let of_block = |name: &str| block.domain.as_ref().is_none_or(|domain| *domain == *name);
        self.key_without_rule(&block.key, of_block)
            .map(|key| {
                format!("{key}: the block applies to descriptors that no rule limits; is it misspelt?")
            })
            .into_iter()
            .collect()
    }

    /// Warns of keys that no rule of the domain has, and of values that no address equals as a text: networks, and addresses in another
    /// spelling.
    fn warnings_of_override(&self, of: &OverrideRule) -> Vec<String> {
        let keys =
            of.entries.iter().filter_map(|(key, _)| self.key_without_rule(key, |name| *name == of.domain));
        let keys = keys.map(|key| {
            format!("{key}: the override applies to descriptors that no rule limits; is it misspelt?")
        });
        let values = of.entries.iter().filter_map(|(key, value)| warning_of_value(key, value));
        keys.chain(values).chain(self.warnings_of_dropped_limits(of)).collect()
    }

    /// Warns of limits of the rule that do not apply while the override is in force, because none of its limits replaces them.
    fn warnings_of_dropped_limits(&self, of: &OverrideRule) -> Vec<String> {
        let OverrideAction::Limits(limits) = &of.action else { return Vec::new() };
        let windows: Vec<Window> = limits.iter().map(OverrideLimit::window).collect();
        let rules = self.control.limiter().map(|limiter| limiter.rules());
        let domain = rules.as_ref().and_then(|rules| rules.domain(&of.domain));
        domain.and_then(|domain| domain.rule_behind(of)).map_or_else(Vec::new, |rule| {
            let dropped = rule.limits_not_overridden(&windows);
            dropped.map(|limit| warning_of_dropped_limit(&rule.info.path, limit)).collect()
        })
    }

    /// The beginning of a warning if no rule of these domains has the key: it may be misspelt.
    fn key_without_rule(&self, key: &str, is_of: impl Fn(&str) -> bool) -> Option<String> {
        let rules = self.control.limiter()?.rules();
        let has_key = rules.domains().any(|domain| is_of(domain.name()) && domain.has_key(key));
        (!has_key).then(|| format!("no rule has the key {key}"))
    }

    fn is_in_file(&self, id: &str) -> bool {
        let rules = self.control.limiter().map(|limiter| limiter.rules());
        rules.is_some_and(|rules| rules.file_blocks().any(|block| block.id == id))
    }

    async fn change<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut Overlays) -> T + Send + 'static,
    ) -> Result<T> {
        let control = self.control.clone();
        // The rules are built.
        let changed = on_thread("the change failed", move || control.change_overlays(change)).await?;
        changed.map_err(|error| match &error {
            OverlayError::Starting => Error::starting(),
            OverlayError::TooMany => Error::new(Code::ResourceExhausted, error.to_string()),
            OverlayError::Rules(_) => Error::new(Code::FailedPrecondition, error.to_string()),
            OverlayError::File { .. } => Error::new(Code::Internal, error.to_string()),
        })
    }

    fn stored<T>(
        &self,
        declared: T,
        expires_ns: Option<u64>,
        (field, reason): (&str, String),
    ) -> Result<Stored<T>> {
        if reason.len() > REASON_BYTES_MAX {
            return Err(Error::invalid(field, format!("is longer than {REASON_BYTES_MAX} bytes")));
        }
        let (actor, created_ns) = (self.caller.actor.clone(), self.control.now().as_nanos());
        Ok(Stored { declared, expires_ns, reason, actor, created_ns })
    }

    fn check_domain(&self, field: &str, domain: &str) -> Result<()> {
        let limiter = self.control.limiter().ok_or_else(Error::starting)?;
        if domain.is_empty() {
            return Err(Error::invalid(field, "is empty; name the domain of a loaded rule set"));
        }
        match limiter.rules().domain(domain) {
            Some(_) => Ok(()),
            None => Err(Error::not_found(format!("no rules for the domain {domain:?}"))),
        }
    }

    /// Refuses a limit that a shared store cannot count, or clients of RLQS cannot enforce.
    fn check_enforceable(&self, declared: &OverrideRule) -> Result<()> {
        let (limiter, config) = (self.control.limiter(), self.control.config());
        let (limiter, config) = limiter.zip(config).ok_or_else(Error::starting)?;
        let (rules, semantics) = (limiter.rules(), config.options.semantics);
        let Some(domain) = rules.domain(&declared.domain) else { return Ok(()) };
        if let Some(reason) = domain.not_divisible(declared, semantics) {
            return Err(Error::invalid("override", reason));
        }
        match domain.not_shareable(declared, semantics) {
            Some((0, reason)) => Err(Error::invalid("override.limit", reason.to_string())),
            Some((index, reason)) => {
                Err(Error::invalid(format!("override.further_limits[{}]", index - 1), reason.to_string()))
            }
            None => Ok(()),
        }
    }

    fn check_key(&self, field: &str, key: &str) -> Result<()> {
        match key {
            "" => Err(Error::invalid(field, "is empty; every entry needs a key")),
            key => self.check_text(field, key),
        }
    }

    fn check_text(&self, field: &str, text: &str) -> Result<()> {
        // The length that logs and tools show a cut value with.
        let max = self.control.service.request_limits().text_bytes_max + CUT_BYTES;
        match text.len() <= max {
            true => Ok(()),
            false => Err(Error::invalid(field, format!("is longer than {max} bytes"))),
        }
    }

    /// The time in nanoseconds at which something expires; none for never.
    fn expires(
        &self,
        field: &str,
        at: Option<prost_types::Timestamp>,
        after: Option<prost_types::Duration>,
    ) -> Result<Option<u64>> {
        let now = self.control.now();
        let expires = match (at, after) {
            (None, None) => return Ok(None),
            (Some(_), Some(_)) => {
                return Err(Error::invalid("expires_in", format!("is given beside {field}")));
            }
            (Some(at), None) => {
                let at = from_timestamp(at);
                at.ok_or_else(|| Error::invalid(field, "is not a time from 1970 to 2554"))?.as_nanos()
            }
            (None, Some(after)) => {
                let after = from_duration(after);
                let after = after.ok_or_else(|| Error::invalid("expires_in", "is negative"))?;
                now.saturating_add(after).as_nanos()
            }
        };
        if expires <= now.as_nanos() {
            return Err(Error::invalid(field, "is not in the future"));
        }
        Ok(Some(expires))
    }
}

/// The id that was given, or a new one.
fn id(field: &str, given: String, prefix: &str) -> Result<String> {
    if given.is_empty() {
        let random = getrandom::u64();
        let random = random.map_err(|error| Error::new(Code::Internal, format!("no random id: {error}")))?;
        return Ok(format!("{prefix}-{:08x}", random >> 32));
    }
    let is_of_id = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    match given.len() <= ID_BYTES_MAX && given.chars().all(is_of_id) {
        true => Ok(given),
        false => Err(Error::invalid(field, "is not 1 to 64 of A-Z a-z 0-9 . _ -")),
    }
}

/// The warning that the value of an override is a network, or an address in another spelling than that of requests.
fn warning_of_value(key: &str, value: &str) -> Option<String> {
    if value.contains('/') && value.parse::<Network>().is_ok() {
        return Some(format!(
            "{key}={value}: the override applies to this text as the value, not to the addresses of the network; write a rule with \
             `value_network: {value}`, or block the network"
        ));
    }
    let usual = usual_spelling(value)?;
    Some(format!(
        "{key}={value}: the override applies to this text as the value, and Envoy writes it as {usual}; write {usual}"
    ))
}

/// The warning that a limit of a rule does not apply under an override.
fn warning_of_dropped_limit(rule: &str, limit: &RuleLimit) -> String {
    let window = limit.unit.map_or_else(|| limit.window.to_string(), |unit| unit.name().to_owned());
    let text = match limit.algorithm.holds_slots() {
        true => format!("{} in flight", limit.requests),
        false => format!("{} per {window}", limit.requests),
    };
    let limit = if limit.name.is_empty() { text } else { format!("{} ({text})", limit.name) };
    format!(
        "{limit} of {rule} does not apply while the override is in force; to keep it, add it to the limits of the override"
    )
}

fn action(of: &pb::Override) -> Result<OverrideAction> {
    if of.further_limits.len() >= OVERRIDE_LIMITS_MAX {
        let message = format!("an override has at most {OVERRIDE_LIMITS_MAX} limits; leave some out");
        return Err(Error::invalid("override.further_limits", message));
    }
    match (&of.limit, of.unlimited, of.denied) {
        (Some(first), false, false) => {
            let mut limits = vec![limit("override.limit", first)?];
            for (index, further) in of.further_limits.iter().enumerate() {
                let field = format!("override.further_limits[{index}]");
                let limit = limit(&field, further)?;
                if limits.iter().any(|other| other.window() == limit.window()) {
                    let message = "is the window of another limit; keep one of the two";
                    return Err(Error::invalid(format!("{field}.unit"), message));
                }
                limits.push(limit);
            }
            Ok(OverrideAction::Limits(limits))
        }
        (None, true, false) if of.further_limits.is_empty() => Ok(OverrideAction::Unlimited),
        (None, false, true) if of.further_limits.is_empty() => Ok(OverrideAction::Denied),
        _ => Err(Error::invalid("override", "give exactly one of limit, unlimited and denied")),
    }
}

fn limit(field: &str, of: &pb::OverrideLimit) -> Result<OverrideLimit> {
    let algorithm = Some(&*of.algorithm).filter(|name| !name.is_empty());
    let limit =
        OverrideLimit::new(of.requests, &of.unit, algorithm, Some(of.burst).filter(|burst| *burst > 0));
    limit.map_err(|error| {
        let name = match error {
            OverrideLimitError::Window { .. } => "unit",
            OverrideLimitError::Algorithm(_) => "algorithm",
            OverrideLimitError::Burst(_) | OverrideLimitError::NeverRefilled => "burst",
            OverrideLimitError::TooLarge { .. } => "requests",
        };
        Error::invalid(format!("{field}.{name}"), error.to_string())
    })
}

fn limit_to_message(limit: &OverrideLimit) -> pb::OverrideLimit {
    pb::OverrideLimit {
        requests: limit.requests(),
        unit: limit.window_text(),
        algorithm: limit.algorithm_name().unwrap_or_default().to_owned(),
        burst: limit.burst().unwrap_or_default(),
    }
}

pub(super) fn override_to_message(stored: Stored<OverrideRule>) -> pb::Override {
    let Stored { declared, expires_ns, reason, actor, created_ns } = stored;
    let limits = match &declared.action {
        OverrideAction::Limits(limits) => &limits[..],
        OverrideAction::Unlimited | OverrideAction::Denied => &[],
    };
    let mut limits = limits.iter().map(limit_to_message);
    let (limit, further_limits) = (limits.next(), limits.collect());
    pb::Override {
        id: declared.id,
        domain: declared.domain,
        entries: declared.entries.into_iter().map(|(key, value)| pb::Entry { key, value }).collect(),
        limit,
        further_limits,
        unlimited: declared.action == OverrideAction::Unlimited,
        denied: declared.action == OverrideAction::Denied,
        expires: expires_ns.map(|nanos| timestamp(Timestamp::from_nanos(nanos))),
        reason,
        actor,
        created: Some(timestamp(Timestamp::from_nanos(created_ns))),
    }
}

pub(super) fn stored_block_to_message(stored: Stored<Block>) -> pb::Block {
    let Stored { declared, expires_ns, reason, actor, created_ns } = stored;
    pb::Block {
        expires: expires_ns.map(|nanos| timestamp(Timestamp::from_nanos(nanos))),
        reason,
        actor,
        created: Some(timestamp(Timestamp::from_nanos(created_ns))),
        ..block_to_message(declared)
    }
}

/// Converts a block. When, by whom and why it was set is left out: blocks in files have none of that.
pub(super) fn block_to_message(declared: Block) -> pb::Block {
    let is_network = declared.values.network().is_some();
    let (value, cidr) = match declared.values {
        BlockedValues::Value(value) if !is_network => (value, String::new()),
        BlockedValues::Value(cidr) | BlockedValues::Cidr(cidr) => (String::new(), cidr),
    };
    pb::Block {
        id: declared.id,
        domain: declared.domain.unwrap_or_default(),
        key: declared.key,
        value,
        cidr,
        ..pb::Block::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::rules::{LoadOptions, RuleSet, Source};

    #[test]
    fn a_dropped_limit_is_named_with_its_number_and_its_rule() {
        let text = "{ domain: shop, descriptors: [{ key: user, rate_limits: [
            { name: per-day, unit: day, requests_per_unit: 1000 }, { per: 30s, requests_per_unit: 5 },
            { algorithm: concurrency, requests_in_flight: 7, max_hold: 60s }] }] }";
        let rules =
            RuleSet::parse(&[Source::file("shop.yaml", text)], &LoadOptions::default()).expect("good rules");
        let warnings: Vec<String> =
            rules.rule_limits().map(|(_, limit)| warning_of_dropped_limit("user", limit)).collect();
        let begins = [
            "per-day (1000 per day) of user does not apply",
            "5 per 30s of user does",
            "7 in flight of user does",
        ];
        assert!(
            warnings.iter().zip(begins).all(|(warning, begin)| warning.starts_with(begin)),
            "{warnings:?}"
        );
    }
}
