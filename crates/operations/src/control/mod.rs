//! Operations on a running server: access, current decisions, overrides and blocks, and the audit log.
//!
//! Invariant: nothing here decides a client's request. Every change of decisions is made by the owner of the rules or the limiter.

mod access;
mod audit;
mod history;
mod live;
mod overlay_changes;
mod overlay_store;
mod overlays;
mod rates;
mod redaction;
mod tail;
mod task;
mod top_keys;
mod what_if;

pub use access::{Access, AccessTo, Caller, Credential, Denied, Reach, Role};
pub use audit::{
    AuditEntry, AuditError, AuditEvent, AuditLog, BrokenChain, ChainEnd, INTENT, NotLogged, VerifiedChain,
    verify as verify_audit,
};
pub use history::{DomainHits, Durations, History, domain_hits};
pub use live::Live;
pub use overlays::{KeptOverlaysError, OVERLAYS_MAX, OverlayError, Overlays, Stored};
pub use rates::{HitCounts, RateHistory, Rates};
pub use redaction::{ShownEntry, Values};
pub use tail::{Tail, TailDecision, TailDescriptor, TailFilter, TailStream, ValueFilter};
pub use task::ControlTask;
pub use top_keys::{Estimate, KeyEntry, KeyOutcome, Report, ReportWindow, SketchKey, TopKeys};
pub use what_if::{RECORDED_BYTES_MAX, Recorder, RecorderStatus, Suggest, WhatIf, WhatIfError, WhatIfReport};

use crate::{
    config::{Config, Feed, FeedLoads},
    telemetry::{ResetRecord, Sources},
};
use overlay_store::OverlayStore;
use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
    sync::{Arc, OnceLock, atomic::AtomicBool},
    thread::Thread,
    time::Duration,
};
use tidegate_core::{
    clock::Clock,
    limit::{Code, SeriesId, Timestamp},
    limiter::Limiter,
    store::Removed,
};
use tidegate_service::{DecisionEvent, Outcome, RateLimitService};
use tokio::sync::Semaphore;

/// Time between two lines about denied calls without a line.
const UNLOGGED_INTERVAL: Duration = Duration::from_secs(60);

/// Settings of the control API.
#[derive(Clone, Debug)]
pub struct ControlSettings {
    /// Where callers may be.
    pub reach: Reach,
    /// The file of the audit log. None if the log is only in memory.
    pub audit_log: Option<PathBuf>,
    /// The file that keeps overrides and blocks. None if they end with the process.
    pub overlays: Option<PathBuf>,
}

/// The control API cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The audit log cannot be used.
    #[error("--audit-log {0}")]
    AuditLog(#[from] AuditError),
    /// The overrides and blocks from before cannot be used.
    #[error(transparent)]
    Overlays(#[from] KeptOverlaysError),
}

/// What the audit log already contains.
#[derive(Default)]
struct Audited {
    /// Whether it contains the rules of the start.
    has_start: bool,
    /// Loads of each feed.
    loads: BTreeMap<Feed, FeedLoads>,
    /// The time up to which it contains the number of denied calls without a line.
    unlogged_at: Timestamp,
}

/// The server for operators. It has no rules until [`Control::start`].
pub struct Control {
    /// The service that decides.
    pub service: RateLimitService,
    clock: Arc<dyn Clock>,
    /// The start of the server.
    pub started: Timestamp,
    /// Decides which calls are permitted.
    pub access: Access,
    sources: OnceLock<Sources>,
    rates: Mutex<RateHistory>,
    history: Mutex<History>,
    /// Observers of decisions.
    pub live: Arc<Live>,
    /// The redaction of values.
    pub values: Values,
    /// The audit log.
    pub audit_log: AuditLog,
    overlays: OverlayStore,
    /// Whether kept overrides and blocks are in force.
    is_restored: AtomicBool,
    /// The thread that passes decisions to watchers.
    task: OnceLock<Thread>,
    audited: Mutex<Audited>,
    /// Permits one comparison of rules at a time.
    comparisons: Arc<Semaphore>,
}

impl Control {
    /// The control of a starting server. `live` observes the decisions of the service.
    pub fn new(
        settings: &ControlSettings,
        service: RateLimitService,
        live: Arc<Live>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, ControlError> {
        let started = clock.now();
        let overlays = OverlayStore::open(settings.overlays.clone())?;
        let audit_log = AuditLog::open(settings.audit_log.as_deref())?;
        let control = Self {
            service,
            started,
            access: Access::new(AccessTo::Control, settings.reach),
            clock,
            sources: OnceLock::new(),
            rates: Mutex::default(),
            history: Mutex::default(),
            live,
            values: Values::new(salt()),
            audit_log,
            overlays,
            is_restored: AtomicBool::new(false),
            task: OnceLock::new(),
            audited: Mutex::default(),
            comparisons: Arc::new(Semaphore::new(1)),
        };
        control.audit_event("Started", "OK", String::new());
        Ok(control)
    }

    /// Sets the sources of figures and rules. Only the first call has an effect.
    pub fn start(&self, sources: Sources) {
        let _ = self.sources.set(sources);
    }

    /// Sources of figures; none until the counters are restored.
    pub fn sources(&self) -> Option<&Sources> {
        self.sources.get()
    }

    /// The owner of the rules; none until the counters are restored.
    pub fn config(&self) -> Option<&Arc<Config>> {
        self.sources.get().map(|sources| &sources.config)
    }

    /// The counters; none until they are restored.
    pub fn limiter(&self) -> Option<&Arc<Limiter>> {
        self.sources.get().map(|sources| &sources.limiter)
    }

    /// Notes an event of the server itself in the audit log.
    fn audit_event(&self, action: &str, outcome: &str, details: String) {
        let (actor, action, outcome) = ("server".to_owned(), action.to_owned(), outcome.to_owned());
        let event = AuditEvent { actor, action, outcome, details, ..AuditEvent::default() };
        self.audit_log.note(event, self.now());
    }

    /// Watches decisions from now on. None if there are too many watchers.
    pub fn watch(&self, filter: TailFilter) -> Option<TailStream> {
        let stream = self.live.tail.watch(filter);
        // Without a reader, the thread sleeps longer.
        self.wake_task();
        stream
    }

    fn wake_task(&self) {
        self.task.get().inspect(|task| task.unpark());
    }

    /// Passes queued decisions to watchers.
    fn pass_on(&self, taken: &mut Vec<Vec<u8>>) {
        if let (true, Some(limiter)) = (self.live.tail.is_watched(), self.limiter()) {
            self.live.tail.pass_on(taken, &limiter.rules(), &self.values);
        }
        self.live.recorder.collect(taken, self.now(), || self.number_decisions(false));
    }

    /// The work of each second: collects the keys with the most hits, drops expired overrides and blocks, and adds reloads to the audit
    /// log.
    fn each_second(&self) {
        self.live.top_keys.collect(self.now());
        self.add_to_history();
        for id in self.expire_overlays() {
            self.audit_event("Expired", "OK", serde_json::json!({ "id": id }).to_string());
        }
        let mut audited = self.audited.lock();
        self.audit_unlogged(&mut audited);
        self.audit_loads(&mut audited);
    }

    fn add_to_history(&self) {
        let (now, Some(sources)) = (self.now(), self.sources()) else { return };
        if !self.history.lock().is_due(now) {
            return;
        }
        let decisions = &self.service.meters().decisions;
        let [admitted, denied] =
            [DecisionEvent::Admitted, DecisionEvent::Denied].map(|event| decisions.sum(event));
        let decisions = HitCounts { admitted, denied, shadow_denied: 0 };
        let (rules, hits) = (sources.limiter.rules(), self.hits());
        self.history.lock().add(now, decisions, durations(sources), &domain_hits(&rules, &hits));
    }

    /// The durations of the last five minutes. None until the counters are restored.
    pub fn last_durations(&self) -> Option<Durations> {
        self.sources().map(|sources| self.history.lock().last_durations(durations(sources)))
    }

    /// The counts of the last minutes: of all decisions, or the hits of a domain.
    pub fn history(&self, domain: Option<&str>) -> Vec<(Timestamp, HitCounts)> {
        self.history.lock().points(domain)
    }

    /// Adds the number of denied calls without a line to the audit log, once a minute.
    fn audit_unlogged(&self, audited: &mut Audited) {
        let now = self.now();
        if now.since(audited.unlogged_at) < UNLOGGED_INTERVAL {
            return;
        }
        audited.unlogged_at = now;
        let calls = self.audit_log.take_unlogged();
        if calls > 0 {
            self.audit_event("DeniedWithoutLine", "OK", serde_json::json!({ "calls": calls }).to_string());
        }
    }

    /// Adds the loads of every feed to the audit log. Overrides and blocks have their own lines, with their operator.
    fn audit_loads(&self, audited: &mut Audited) {
        let Some(config) = self.config() else { return };
        let status = config.status();
        let details = |generation, feed: &str| {
            serde_json::json!({ "generation": generation, "feed": feed }).to_string()
        };
        if !std::mem::replace(&mut audited.has_start, true) {
            self.audit_event("RulesLoaded", "OK", details(1, "start"));
        }
        for (feed, loads) in status.by_feed {
            let before = audited.loads.insert(feed, loads).unwrap_or_default();
            if loads.generation > before.generation && feed != Feed::Overrides {
                self.audit_event("RulesLoaded", "OK", details(loads.generation, feed.name()));
            }
            if loads.failed > before.failed {
                let details = details(status.generation, feed.name());
                self.audit_event("RulesRejected", "INVALID_ARGUMENT", details);
            }
        }
    }

    /// Writes a reset of a domain, and of a rule or of descriptors in it, to the decision log.
    pub fn log_reset(
        &self,
        removed: Removed,
        generation: u64,
        (domain, rule, descriptors): (String, String, Vec<Vec<(String, String)>>),
    ) {
        if let Some(log) = self.sources.get().and_then(|sources| sources.decision_log.as_ref()) {
            let (number, time) = (removed.number, self.now().as_nanos());
            log.reset(ResetRecord { number, generation, time, domain, rule, descriptors });
        }
    }

    /// The time.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The hits of every limit in force since the start, by series.
    pub fn hits(&self) -> HashMap<SeriesId, HitCounts> {
        let Some(limiter) = self.limiter() else { return HashMap::new() };
        let counts = &self.service.meters().limits;
        let (rules, reader) = (limiter.rules(), counts.reader());
        let hits_of = |counts: &tidegate_service::OutcomeCounts| HitCounts {
            admitted: counts.hits(Outcome::Admitted).saturating_add(counts.hits(Outcome::Queued)),
            denied: counts.hits(Outcome::Denied),
            shadow_denied: counts.hits(Outcome::ShadowDenied),
        };
        let series = rules.rule_limits().map(|(_, limit)| limit.series);
        let mut hits: HashMap<SeriesId, HitCounts> =
            series.map(|series| (series, hits_of(&reader.counts(series)))).collect();
        for ((series, _), counts) in counts.by_values(|_| true).0 {
            let sum = hits.entry(series).or_default();
            *sum = sum.plus(hits_of(&counts));
        }
        hits
    }

    /// The rates of every limit in force; none before a second reading.
    pub fn rates(&self) -> Option<Rates> {
        let (now, hits) = (self.now(), self.hits());
        self.rates.lock().read(now, hits)
    }
}

/// The durations since the start.
fn durations(sources: &Sources) -> Durations {
    let [admitted, denied] = [Code::Ok, Code::OverLimit].map(|code| sources.meters.responses(code).sums());
    let store = sources.shared_store.as_deref();
    Durations {
        responses: admitted.plus(&denied),
        round_trips: store.map(|store| store.counts.round_trips.sums()),
    }
}

/// A secret for the hashes of values. Without it, guessing would reverse them.
fn salt() -> Vec<u8> {
    let mut salt = vec![0; 16];
    getrandom::fill(&mut salt).expect("the keys of counters need randomness too");
    salt
}
