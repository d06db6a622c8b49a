//! The callers of the control API: their tokens and their roles.

use super::{error::Error, role_of};
use crate::api::{Tokens, bearer_token::bearer_token};
use arc_swap::ArcSwap;
use http::HeaderMap;
use std::sync::Arc;
use tidegate_operations::control::{AuditEvent, Caller, Control, Credential, Denied, Role};

/// The control API, as both protocols call it. Clones share everything.
#[derive(Clone)]
pub struct ControlApi {
    pub(super) control: Arc<Control>,
    /// None if there are no tokens.
    tokens: Option<Arc<ArcSwap<Tokens>>>,
}

/// The control API, as an admitted caller calls it. Clones share everything but the caller.
#[derive(Clone)]
pub(in crate::api) struct Admitted {
    pub(super) control: Arc<Control>,
    pub(super) caller: Caller,
}

/// Whether a caller who was admitted to a stream still is.
#[derive(Clone)]
pub(in crate::api) struct Recheck {
    tokens: Option<Arc<ArcSwap<Tokens>>>,
    /// The tokens for which it was admitted.
    of: Option<Arc<Tokens>>,
    token: Option<Vec<u8>>,
    names: Vec<String>,
    is_socket: bool,
}

impl Recheck {
    /// Whether the caller has its role by the tokens in force.
    pub(super) fn is_admitted(&mut self) -> bool {
        let Some(tokens) = &self.tokens else { return true };
        let now = tokens.load_full();
        if self.is_socket || self.of.as_ref().is_some_and(|of| Arc::ptr_eq(of, &now)) {
            return true;
        }
        let credential = now.credential(self.token.as_deref(), &self.names, Role::Read);
        self.of = Some(now);
        credential.permits(Role::Read)
    }
}

impl ControlApi {
    /// Checks later whether a caller who sent these headers still has its role.
    pub(in crate::api) fn recheck(
        &self,
        admitted: &Admitted,
        headers: &HeaderMap,
        names: &[String],
    ) -> Recheck {
        Recheck {
            of: self.tokens.as_ref().map(|tokens| tokens.load_full()),
            tokens: self.tokens.clone(),
            token: bearer_token(headers).map(<[u8]>::to_vec),
            names: names.to_vec(),
            is_socket: admitted.caller.actor.starts_with("unix:"),
        }
    }

    /// The API of this server, for callers with these tokens.
    pub fn new(control: Arc<Control>, tokens: Option<Arc<ArcSwap<Tokens>>>) -> Self {
        Self { control, tokens }
    }

    /// Admits the caller at this peer, with these verified names in its certificate, if it may call the method.
    pub(in crate::api) fn admit(
        &self,
        headers: &HeaderMap,
        (peer, names): (&str, &[String]),
        method: &str,
    ) -> Result<Admitted, Error> {
        let needs = role_of(method);
        let tokens = self.tokens.as_ref().map(|tokens| tokens.load());
        let needed = needs.unwrap_or(Role::Read);
        let of = |tokens: &Tokens| tokens.credential(bearer_token(headers), names, needed);
        let credential = tokens.map_or(Credential::None, |tokens| of(&tokens));
        let access = &self.control.access;
        let caller = access.admit(credential.clone(), peer, needed, self.control.now());
        let caller = caller.map_err(|denied| {
            let is_too_many = denied == Denied::TooMany;
            let error = Error::from(denied);
            let actor = credential.actor();
            // A flood of calls must not become a flood of lines.
            match is_too_many || !access.is_denial_logged(actor.as_deref(), peer, self.control.now()) {
                true => self.control.audit_log.count_unlogged(),
                false => self.audit_denied(actor, peer, method, &error),
            }
            error
        })?;
        match needs {
            Some(_) => Ok(Admitted { control: Arc::clone(&self.control), caller }),
            None => Err(Error::not_found(format!("there is no method {method:?}"))),
        }
    }
    /// Writes that a call was denied.
    fn audit_denied(&self, actor: Option<String>, peer: &str, method: &str, denied: &Error) {
        let event = AuditEvent {
            actor: actor.unwrap_or_else(|| "unknown".to_owned()),
            peer: peer.to_owned(),
            action: method.chars().filter(|c| c.is_ascii_alphanumeric()).take(64).collect(),
            outcome: denied.code_name().to_owned(),
            ..AuditEvent::default()
        };
        self.control.audit_log.note_denied(event, self.control.now());
    }
}
