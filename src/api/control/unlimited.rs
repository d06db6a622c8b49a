//! Descriptors without a limit, unless a rule exempts them: `ListUnlimited`.

use super::{caller::ControlApi, convert::timestamp, error::Error, rules::page_size};
use crate::api::pb::control as pb;
use tidegate_core::rules::{Advice, RuleSet};
use tidegate_operations::control::Caller;
use tidegate_service::{CountedKeyPath, KEY_PATHS_MAX};
use tonic::Code;

const PATHS_DEFAULT: usize = 100;

impl ControlApi {
    pub(super) async fn list_unlimited(
        &self,
        _: &Caller,
        message: pb::ListUnlimitedRequest,
    ) -> Result<pb::ListUnlimitedResponse, Error> {
        let rules = self.control.limiter().ok_or_else(Error::starting)?.rules();
        let now = self.control.now();
        let (mut paths, others) = self.control.service().meters().unlimited.read(now);
        paths.retain(|path| message.domain.is_empty() || *message.domain == *path.domain);
        let total = paths.len() as u32;
        paths.sort_by_key(|path| std::cmp::Reverse((path.last, path.count)));
        paths.truncate(if message.limit == 0 {
            PATHS_DEFAULT
        } else {
            page_size(message.limit, KEY_PATHS_MAX)
        });
        // On a thread of its own: each path is compared with the rules.
        let paths = move || paths.iter().map(|path| advised(&rules, path)).collect();
        let paths = tokio::task::spawn_blocking(paths).await;
        let paths = paths.map_err(|_| Error::new(Code::Internal, "the paths could not be read"))?;
        Ok(pb::ListUnlimitedResponse { paths, total, others })
    }
}

fn advised(rules: &RuleSet, path: &CountedKeyPath) -> pb::UnlimitedPath {
    let keys: Vec<&str> = path.keys.iter().map(|key| &**key).collect();
    let Advice { reason, nearest, declared_at, place, yaml } = rules.advise(&path.domain, &keys);
    pb::UnlimitedPath {
        domain: path.domain.to_string(),
        keys: keys.into_iter().map(str::to_owned).collect(),
        descriptors: path.count,
        first: Some(timestamp(path.first)),
        last: Some(timestamp(path.last)),
        reason,
        nearest,
        declared_at,
        yaml,
        place,
    }
}
