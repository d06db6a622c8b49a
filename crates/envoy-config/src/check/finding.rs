//! Findings: what leaves requests without a limit, and where.

use crate::part::Part;
use std::collections::HashSet;
use tidegate_core::rules::Origin;

/// The effect of a finding on limits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// Requests are not limited, or will not be after a failure.
    Unlimited,
    /// Depends on something that the files do not show, or that only Envoy can evaluate.
    Unknown,
    /// An effect as configured, and easily overlooked.
    Note,
}

impl Severity {
    /// The name in tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unlimited => "unlimited",
            Self::Unknown => "unknown",
            Self::Note => "note",
        }
    }
}

macro_rules! kinds {
    ($($variant:ident = $name:literal, $severity:ident, $doc:literal;)*) => {
        /// Kinds of findings.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Kind {
            $(#[doc = $doc] $variant,)*
        }

        impl Kind {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// Its name in tables and JSON.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Its effect on limits.
            pub fn severity(self) -> Severity {
                match self { $(Self::$variant => Severity::$severity,)* }
            }
        }
    };
}

kinds! {
    DomainWithoutRules = "domain-without-rules", Unlimited, "The rules have no such domain.";
    DomainMissing = "domain-missing", Unlimited, "A filter without a domain.";
    DescriptorWithoutRule = "descriptor-without-rule", Unlimited, "A descriptor that no rule matches.";
    DescriptorEndsEarly = "descriptor-ends-early", Unlimited, "A descriptor that ends at a rule without a limit, above those that have one.";
    RuleNotSent = "rule-not-sent", Unlimited, "A rule that no descriptor reaches.";
    OnlyAtEnd = "only-at-end", Unlimited, "A limit that is charged at the end of requests and never asked before.";
    NeverCharged = "never-charged", Unlimited, "A limit that entries only peek at or give hits back to, and that no entry charges.";
    TicketNotReturned = "ticket-not-returned", Unlimited, "A limit of requests in flight, or a reservation, whose end is not sent.";
    TicketKey = "ticket-key", Unlimited, "The ticket is sent under another key than `slot`.";
    FilterAbsent = "filter-absent", Unlimited, "Entries of rate_limits without a filter that applies them.";
    FilterWithoutEntries = "filter-without-entries", Unlimited, "A filter that no route gives an entry.";
    FilterAfterRouter = "filter-after-router", Unlimited, "The filter is after the router.";
    FilterDisabled = "filter-disabled", Unlimited, "The filter is disabled, and no route enables it.";
    FilterPartly = "filter-partly", Unlimited, "The filter is enabled or enforced for a part of the requests only.";
    FilterVersion2 = "filter-version-2", Unlimited, "A filter of API version 2.";
    FilterOtherName = "filter-other-name", Unlimited, "A route configures a filter by a name that no filter has.";
    StageWithoutFilter = "stage-without-filter", Unlimited, "An entry of a stage that no filter has.";
    StageNotSupported = "stage-not-supported", Unlimited, "stage or disable_key where Envoy refuses it.";
    HitsIgnored = "hits-ignored", Unlimited, "hits_addend where Envoy ignores it.";
    EntryWithoutActions = "entry-without-actions", Unlimited, "An entry without actions.";
    RouteAnswered = "route-answered", Unlimited, "A route with rate_limits to which Envoy itself responds.";
    RouteNeverReached = "route-never-reached", Unlimited, "A route with rate_limits behind a route that matches every request.";
    EntryReplaced = "entry-replaced", Unlimited, "rate_limits that are never applied, since others stand above them.";
    NotSeenByModule = "not-seen-by-module", Unlimited, "rate_limits of a route or virtual host whose only filter is a module.";
    PerRouteOfOtherKind = "per-route-of-other-kind", Unlimited, "A RateLimitPerRoute that is wrapped for a module, and the filter is ratelimit, or the other way round.";
    TimeoutDefault = "timeout-default", Unlimited, "No timeout: 20 ms, after which requests are admitted.";
    TimeoutIgnored = "timeout-ignored", Unlimited, "A timeout where Envoy's filter does not read it.";
    TimeoutZero = "timeout-zero", Unlimited, "A timeout below a millisecond.";
    ServiceMissing = "service-missing", Unlimited, "No rate limit service.";
    ServiceVersion = "service-version", Unlimited, "A rate limit service of another API version than 3.";
    ClusterMissing = "cluster-missing", Unlimited, "The cluster of the rate limit service does not exist.";
    ClusterWithoutHttp2 = "cluster-without-http2", Unlimited, "The cluster of the rate limit service has no HTTP/2.";
    ClusterWithoutEndpoints = "cluster-without-endpoints", Unlimited, "The cluster of the rate limit service has no endpoints.";
    ClusterNotChecked = "cluster-not-checked", Unlimited, "Several servers without health checks.";
    ClusterBreaker = "cluster-breaker", Unlimited, "A circuit breaker of the rate limit cluster that few calls open.";
    RequestTooLarge = "request-too-large", Unlimited, "A route whose calls Tidegate may refuse, since they are too large.";
    RuntimeDisables = "runtime-disables", Unlimited, "The runtime disables a filter or an entry, or its denials.";
    UpgradeWithoutFilter = "upgrade-without-filter", Unlimited, "Upgrades whose filters do not limit.";
    NetworkFilterAfterLast = "network-filter-after-last", Unlimited, "A filter of connections behind a filter that ends the chain.";
    NotEvaluated = "not-evaluated", Unknown, "What only Envoy can evaluate.";
    RoutesNotShown = "routes-not-shown", Unknown, "Routes that are not in the files.";
    FilterNotShown = "filter-not-shown", Unknown, "The filter of these entries is not in the files.";
    ClusterNotShown = "cluster-not-shown", Unknown, "The cluster of the rate limit service is not in the files.";
    SomeValues = "some-values", Note, "Only some values of a descriptor have a limit.";
    EmptyDescriptor = "empty-descriptor", Note, "A descriptor that clients can leave without entries, so that it has no limit.";
    LimitOfRequest = "limit-of-request", Note, "A limit that comes with the request.";
    PathWithQuery = "path-with-query", Note, "A descriptor with :path, which has the query.";
    HostReplaced = "host-replaced", Note, "A route has entries of its own, so those of its virtual host do not apply.";
    MissingPart = "missing-part", Note, "A request without a header or parameter makes no descriptor.";
    OtherOrigin = "other-origin", Note, "The filter applies to internal or to external requests only.";
    CanBeDisabled = "can-be-disabled", Note, "An entry that runtime can disable.";
    TimeoutRefuses = "timeout-refuses", Note, "A short or ignored timeout, after which requests are refused.";
    ShadowRule = "shadow-rule", Note, "A rule that denies nothing.";
    RouteWithoutEntries = "route-without-entries", Note, "Routes to which no entry applies, beside routes with limits.";
    DisabledHere = "disabled-here", Note, "The filter is disabled for a route, a virtual host or a weighted cluster.";
    AddressOfHeader = "address-of-header", Note, "The address of the client is that of a header.";
    HitsOfClient = "hits-of-client", Note, "The hits of a request are those that a header of the request states.";
    DomainNotSent = "domain-not-sent", Note, "A domain of the rules that nothing here sends.";
}

/// A finding.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Its kind.
    pub kind: Kind,
    /// Its place.
    pub at: Origin,
    /// The listener, virtual host and route; empty if it belongs to none.
    pub place: String,
    /// The facts, and the remedy.
    pub message: String,
    /// The actions that would send the descriptor of a rule.
    pub actions: Option<serde_json::Value>,
}

/// The findings of a check, each once.
#[derive(Default)]
pub(crate) struct Findings {
    all: Vec<Finding>,
    known: HashSet<(Kind, Origin, String)>,
}

impl Findings {
    pub(crate) fn add(&mut self, kind: Kind, part: Part<'_>, place: &str, message: impl Into<String>) {
        self.add_at(kind, part.origin(), place, message.into(), None);
    }

    pub(crate) fn add_at(
        &mut self,
        kind: Kind,
        at: Origin,
        place: &str,
        message: String,
        actions: Option<serde_json::Value>,
    ) {
        // One line for an entry, even if several routes or filters share it.
        if self.known.insert((kind, at.clone(), message.clone())) {
            self.all.push(Finding { kind, at, place: place.to_owned(), message, actions });
        }
    }

    /// Sorts them by severity, then by place.
    pub(crate) fn into_sorted(mut self) -> Vec<Finding> {
        self.all
            .sort_by(|one, other| (one.kind.severity(), &one.at).cmp(&(other.kind.severity(), &other.at)));
        self.all
    }
}
