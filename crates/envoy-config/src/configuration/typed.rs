//! Configurations of filters, within the messages that Envoy allows around them.

use crate::part::Part;

/// The message of an `Any`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Typed<'d> {
    /// Its name, such as `envoy.….ratelimit.v3.RateLimit`; empty if there is none.
    pub message: &'d str,
    /// The part with its fields.
    pub fields: Part<'d>,
}

impl<'d> Typed<'d> {
    /// Reads an `Any`. A `TypedStruct` in it states the name of the message, and has its fields below `value`.
    pub(crate) fn of(any: Part<'d>) -> Self {
        let message = any.message();
        match any.get("value") {
            Some(fields) if message.ends_with(TYPED_STRUCT) => {
                Self { message: any.text("type_url").rsplit('/').next().unwrap_or_default(), fields }
            }
            _ => Self { message, fields: any },
        }
    }
}

/// Of `xds.type.v3` and of `udpa.type.v1`.
const TYPED_STRUCT: &str = ".TypedStruct";

const STRUCT: &str = "google.protobuf.Struct";

/// Whether a message is one of those that hold a configuration in a form that does not show its type.
fn is_opaque(message: &str) -> bool {
    let names = [STRUCT, "google.protobuf.StringValue", "google.protobuf.BytesValue"];
    names.contains(&message) || message.ends_with(TYPED_STRUCT)
}

/// The messages of the ratelimit filter, which the module has too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// `RateLimit`, of a filter.
    Filter,
    /// `RateLimitPerRoute`, of a route.
    Route,
}

/// A configuration, after Envoy's wrappers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Content<'d> {
    /// The message of the ratelimit filter for this role.
    RateLimit {
        /// Its fields.
        settings: Part<'d>,
        /// Whether it is for a module.
        is_module: bool,
    },
    /// Possibly such a message, in this one, which is not read here.
    Unread(&'d str),
    /// Another message.
    Other(&'d str),
}

impl<'d> Content<'d> {
    pub(crate) fn of(any: Part<'d>, role: Role) -> Self {
        let name = match role {
            Role::Filter => "http.ratelimit.v3.RateLimit",
            Role::Route => "ratelimit.v3.RateLimitPerRoute",
        };
        let Typed { message, fields } = Typed::of(any);
        let inner = fields.get("filter_config").filter(|_| message.contains("dynamic_modules.v3."));
        let Some(inner) = inner else {
            return match message {
                _ if message.ends_with(name) => Self::RateLimit { settings: fields, is_module: false },
                _ if is_opaque(message) => Self::Unread(message),
                _ => Self::Other(message),
            };
        };
        // A `Struct` has the fields of the message that the module expects, without its name.
        let settings = match inner.message() {
            STRUCT if is_tidegate(fields) == Some(true) => inner.get("value"),
            own => Some(inner).filter(|_| own.ends_with(name)),
        };
        match settings {
            Some(settings) => Self::RateLimit { settings, is_module: true },
            None if is_opaque(inner.message()) && is_tidegate(fields) != Some(false) => {
                Self::Unread(inner.message())
            }
            None => Self::Other(message),
        }
    }
}

/// Whether a module is Tidegate's, by its name or its file; none if neither is stated.
fn is_tidegate(fields: Part<'_>) -> Option<bool> {
    let module = fields.get("dynamic_module_config")?;
    let names = [
        module.get("name"),
        module.get_in(["module", "local", "filename"]),
        module.get_in(["module", "remote", "http_uri", "uri"]),
    ];
    let mut names = names.into_iter().flatten().map(Part::as_text).peekable();
    names.peek()?;
    Some(names.any(|name| name.contains("tidegate")))
}
