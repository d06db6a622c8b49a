//! `tidegate ctl override` and `tidegate ctl block`.

use super::{
    connection::Caller,
    of_request::entries,
    show,
    shown::{Reason, Shown, entry},
};
use crate::{
    api::{
        pb::control as pb,
        time::{DURATION_SECONDS_MAX, duration},
    },
    cli::Failure,
};
use clap::{ArgGroup, Args, Subcommand, builder::NonEmptyStringValueParser};
use std::time::Duration;
use tidegate_core::limit::DescriptorText;

#[derive(Subcommand, Clone)]
pub(super) enum OverrideCommand {
    /// The overrides in force.
    List,
    /// Set an override, or replace the override with the same id.
    Set(Box<SetOverride>),
    /// Delete an override.
    Delete(Delete),
}

#[derive(Subcommand, Clone)]
pub(super) enum BlockCommand {
    /// The blocks in force.
    List,
    /// Set a block, or replace the block with the same id.
    Set(Box<SetBlock>),
    /// Delete a block.
    Delete(Delete),
}

#[derive(Args, Clone)]
#[command(group = ArgGroup::new("action").required(true))]
pub(super) struct SetOverride {
    /// Domain.
    domain: String,
    /// The whole descriptor; `*` in a value matches any text, `\*` is a literal one.
    #[arg(value_name = "KEY=VALUE,…")]
    descriptor: DescriptorText,
    /// Another limit, such as 100/minute or 5/30s; repeatable with other windows. It continues the counter of the rule's limit.
    #[arg(long, value_name = "N/WINDOW", value_parser = limit, group = "action")]
    limit: Vec<(u32, String)>,
    /// Algorithm of the first limit, such as token_bucket; by default that of the rule.
    #[arg(long, requires = "limit", default_value = "", hide_default_value = true)]
    algorithm: String,
    /// Size of the bucket of the first limit; by default that of the rule, in proportion.
    #[arg(long, value_name = "HITS", requires = "limit", default_value_t = 0, hide_default_value = true)]
    burst: u32,
    /// No limit.
    #[arg(long, group = "action")]
    unlimited: bool,
    /// Every hit is denied.
    #[arg(long, group = "action")]
    denied: bool,
    #[command(flatten)]
    circumstances: Circumstances,
}

#[derive(Args, Clone)]
pub(super) struct SetBlock {
    /// The entry, in any descriptor; `*` in the value matches any text, `\*` is a literal `*`. An address or a network such as
    /// 10.0.0.0/8 blocks all of its addresses, 10.0.0.0\/8 the text alone. With --cidr the key alone.
    #[arg(value_name = "KEY=VALUE", value_parser = entry)]
    entry: (String, String),
    /// The values that are addresses of this network.
    #[arg(long)]
    cidr: Option<String>,
    /// Domain; by default every domain that has rules.
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    domain: Option<String>,
    #[command(flatten)]
    circumstances: Circumstances,
}

#[derive(Args, Clone)]
struct Circumstances {
    /// Name; by default the server makes one.
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    id: Option<String>,
    /// Time after which it expires; by default it does not.
    #[arg(long = "for", value_name = "TIME", value_parser = time_of_message)]
    expires_in: Option<Duration>,
    /// Reason, for people and for the audit log.
    #[arg(long, default_value = "", hide_default_value = true)]
    reason: String,
}

#[derive(Args, Clone)]
pub(super) struct Delete {
    /// Its name.
    id: String,
    #[command(flatten)]
    reason: Reason,
}

/// Parses a time that a message can express.
fn time_of_message(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(time) if time.as_secs() <= DURATION_SECONDS_MAX => Ok(time),
        Ok(_) => Err("write at most 10000y; without --for it does not expire".into()),
        Err(error) => Err(error.to_string()),
    }
}

/// Parses `100/minute`.
fn limit(text: &str) -> Result<(u32, String), String> {
    let parsed =
        text.split_once('/').and_then(|(number, unit)| Some((number.parse().ok()?, unit.to_owned())));
    parsed.ok_or_else(|| "write a number and a window, such as 100/minute or 5/30s".to_owned())
}

/// Further lines of what was done.
fn warnings(warnings: &[String]) -> String {
    warnings.iter().map(|warning| format!("\nwarning: {warning}")).collect()
}

impl Caller<'_> {
    pub(super) async fn overrides(&mut self, command: OverrideCommand) -> Result<Shown, Failure> {
        Ok(match command {
            OverrideCommand::List => show::overrides(&self.call(pb::ListOverridesRequest {}).await?),
            OverrideCommand::Set(set) => {
                let SetOverride { domain, descriptor, limit, algorithm, burst, unlimited, denied, .. } = *set;
                let Circumstances { id, expires_in, reason } = set.circumstances;
                let id = id.unwrap_or_default();
                let of_unit =
                    |(requests, unit)| pb::OverrideLimit { requests, unit, ..pb::OverrideLimit::default() };
                let mut limits = limit.into_iter().map(of_unit);
                let of = pb::Override {
                    id,
                    domain,
                    entries: entries(&descriptor),
                    limit: limits.next().map(|first| pb::OverrideLimit { algorithm, burst, ..first }),
                    further_limits: limits.collect(),
                    unlimited,
                    denied,
                    reason,
                    ..pb::Override::default()
                };
                let expires_in = expires_in.map(duration);
                let response = self.call(pb::SetOverrideRequest { r#override: Some(of), expires_in }).await?;
                let id = response.r#override.as_ref().map_or("", |of| &of.id);
                let text = format!("override {id} set{}", warnings(&response.warnings));
                Shown::new(&response, text)
            }
            OverrideCommand::Delete(Delete { id, reason: Reason { reason } }) => {
                let message = pb::DeleteOverrideRequest { id: id.clone(), reason };
                Shown::new(&self.call(message).await?, format!("override {id} deleted"))
            }
        })
    }

    pub(super) async fn blocks(&mut self, command: BlockCommand) -> Result<Shown, Failure> {
        Ok(match command {
            BlockCommand::List => self.all_blocks().await?,
            BlockCommand::Set(set) => {
                let SetBlock { entry: (key, value), cidr, domain, circumstances } = *set;
                let Circumstances { id, expires_in, reason } = circumstances;
                let [id, domain, cidr] = [id, domain, cidr].map(Option::unwrap_or_default);
                let block = pb::Block { id, domain, key, value, cidr, reason, ..pb::Block::default() };
                let expires_in = expires_in.map(duration);
                let response = self.call(pb::SetBlockRequest { block: Some(block), expires_in }).await?;
                let id = response.block.as_ref().map_or("", |block| &block.id);
                let text = format!("block {id} set{}", warnings(&response.warnings));
                Shown::new(&response, text)
            }
            BlockCommand::Delete(Delete { id, reason: Reason { reason } }) => {
                let message = pb::DeleteBlockRequest { id: id.clone(), reason };
                Shown::new(&self.call(message).await?, format!("block {id} deleted"))
            }
        })
    }

    /// All pages of blocks.
    async fn all_blocks(&mut self) -> Result<Shown, Failure> {
        let (mut all, mut message) = (pb::ListBlocksResponse::default(), pb::ListBlocksRequest::default());
        loop {
            let page = self.call(message.clone()).await?;
            all.blocks.extend(page.blocks);
            all.total = page.total;
            if page.next_page_token.is_empty() {
                return Ok(show::blocks(&all));
            }
            message.page_token = page.next_page_token;
        }
    }
}
