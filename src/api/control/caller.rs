//! The callers of the control API: their tokens and their roles.

use super::{error::Error, role_of};
use crate::{
    api::http::{Tokens, bearer_token},
    control::{Caller, Control, Denied, Role},
};
use arc_swap::ArcSwap;
use http::HeaderMap;
use std::sync::Arc;

/// The control API, as both protocols call it. Clones share everything.
#[derive(Clone)]
pub struct ControlApi {
    pub(super) control: Arc<Control>,
    /// None if there are no tokens.
    tokens: Option<Arc<ArcSwap<Tokens>>>,
}

impl ControlApi {
    /// The API of this server, for callers with these tokens.
    pub fn new(control: Arc<Control>, tokens: Option<Arc<ArcSwap<Tokens>>>) -> Self {
        Self { control, tokens }
    }

    /// The caller at this peer, with these verified names in its certificate, if it may call the method.
    pub(in crate::api) fn admit(
        &self,
        headers: &HeaderMap,
        (peer, names): (&str, &[String]),
        method: &str,
    ) -> Result<Caller, Error> {
        let needs = role_of(method);
        let tokens = self.tokens.as_ref().map(|tokens| tokens.load());
        let token = tokens.as_ref().and_then(|tokens| tokens.find(bearer_token(headers)?));
        let credential = match (token, &tokens) {
            (Some((name, role)), _) => Some((format!("token:{name}"), role)),
            (None, Some(tokens)) => {
                tokens.find_client(names).map(|(name, role)| (format!("san:{name}"), role))
            }
            (None, None) => None,
        };
        let access = self.control.access();
        let needed = needs.unwrap_or(Role::Read);
        let caller = access.admit(credential.clone(), peer, needed, self.control.now());
        let caller = caller.map_err(|denied| {
            // A flood of calls must not become one of lines.
            let is_written = denied != Denied::TooMany;
            let error = Error::from(denied);
            if is_written {
                self.audit_denied(credential.map(|(actor, _)| actor), peer, method, &error);
            }
            error
        })?;
        match needs {
            Some(_) => Ok(caller),
            None => Err(Error::not_found(format!("there is no method {method:?}"))),
        }
    }
}
