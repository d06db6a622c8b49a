//! The background threads, and the limiter they work on.

use super::{
    FirstRules, RuleSettings, ServeError, Settings, clock_follower, notices, quota_record::QuotaRecord,
    quotas::QuotaThread, sweeper, tls::PortCounts,
};
use crate::api::XdsFeed;
use std::{collections::BTreeMap, convert::Infallible, sync::Arc, time::Duration};
use tidegate_core::{clock::Clock, limiter::Limiter};
use tidegate_counts::LastAttempt;
use tidegate_http2::ConnectionCounts;
use tidegate_operations::{
    config::{Config, ControlPlaneCounts, Feed, RuleFiles},
    telemetry::{DecisionLog, Sources},
};
use tidegate_service::RateLimitService;
use tidegate_shared::store::{start_keeper, start_leasing};
use tidegate_snapshot::{SnapshotTask, Writer};
use tidegate_threads::StoppableThread;

/// Time between two looks for the first rules.
const FIRST_RULES_INTERVAL: Duration = Duration::from_millis(20);

/// The background threads, and the limiter they work on.
pub(super) struct Background {
    pub(super) limiter: Arc<Limiter>,
    pub(super) config: Arc<Config>,
    /// One for the rule files and one for the files of blocks, if there are any.
    rule_files: Vec<RuleFiles>,
    xds: Option<XdsFeed>,
    control_plane: Option<Arc<ControlPlaneCounts>>,
    clock_follower: StoppableThread,
    sweeper: StoppableThread,
    notices: StoppableThread,
    snapshots: Option<SnapshotTask>,
    keeper: Option<StoppableThread>,
    leasing: Option<StoppableThread>,
    quotas: QuotaThread,
    decision_log: Option<DecisionLog>,
}

impl Background {
    pub(super) fn start(
        settings: &Settings,
        clock: &Arc<dyn Clock>,
        (limiter, writer): (Limiter, Option<Writer>),
        service: &RateLimitService,
    ) -> Result<Self, ServeError> {
        let decision_log = settings.decision_log.clone();
        let limiter = if decision_log.is_some() { limiter.with_numbered_decisions() } else { limiter };
        let limiter = Arc::new(limiter);
        let RuleSettings {
            options,
            sources,
            files,
            block_files,
            watch,
            reload,
            kept,
            began_with_kept,
            xds,
            first,
            health_needs_rules: _,
        } = settings.rules.clone();
        let mut declared = BTreeMap::from([(Feed::Files, Vec::new()), (Feed::Blocks, Vec::new())]);
        for source in sources {
            declared.entry(Feed::of(&source.id)).or_default().push(source);
        }
        let config = Config::new(Arc::clone(&limiter), options, declared, clock.now()).with_kept(kept);
        for (feed, at, errors) in began_with_kept {
            config.began_with_kept(feed, at, errors, clock.now());
        }
        let config = Arc::new(if first == FirstRules::Loaded { config } else { config.awaiting_rules() });
        if let Some(log) = &decision_log {
            log.set_limiter(&limiter);
            let log = log.clone();
            config.observe(Box::new(move |rules| log.put_in_force(rules)), clock.now());
        }
        let feeds = [(Feed::Files, files), (Feed::Blocks, block_files)];
        let feeds = feeds.into_iter().filter(|(_, files)| !files.paths.is_empty());
        let rule_files = feeds.map(|files| RuleFiles::start(&config, files, watch, clock, &reload));
        let rule_files = rule_files.collect::<Result<Vec<_>, _>>()?;
        let control_plane = xds.as_ref().map(|_| Arc::<ControlPlaneCounts>::default());
        let xds = xds.zip(control_plane.as_ref());
        let xds = xds.map(|(xds, counts)| XdsFeed::start(&config, xds, clock, counts)).transpose()?;
        let sweeper = sweeper::start(&limiter, clock)?;
        let notices = notices::start(&limiter, service.meters(), clock)?;
        let clock_follower = clock_follower::start(clock)?;
        let snapshots = writer
            .map(|writer| SnapshotTask::start(writer, &limiter, clock, settings.snapshot_interval))
            .transpose()?;
        let put_keys = {
            let config = Arc::clone(&config);
            move |seed, resets| config.put_shared_keys(seed, resets)
        };
        let store = settings.shared_store.as_ref();
        let keeper = store.map(|store| start_keeper(store, put_keys)).transpose()?;
        let leasing = store.map(|store| start_leasing(store, clock)).transpose()?;
        let quotas = QuotaThread::start(service, &limiter, clock, settings)?;
        Ok(Self {
            limiter,
            config,
            rule_files,
            xds,
            control_plane,
            clock_follower,
            sweeper,
            notices,
            snapshots,
            keeper,
            leasing,
            quotas,
            decision_log,
        })
    }

    /// Completes when the control plane, or the rule files where there is none, have put rules in force.
    pub(super) async fn first_rules(&self) {
        let awaited = if self.control_plane.is_some() { Feed::Xds } else { Feed::Files };
        while !self.config.status().feeds.contains(&awaited) {
            tokio::time::sleep(FIRST_RULES_INTERVAL).await;
        }
    }

    /// Reports whether any domain has rules, at each change.
    pub(super) async fn follow_rules(&self, mut report: impl FnMut(bool)) -> Infallible {
        let mut had_rules = true;
        loop {
            let has_rules = self.config.status().domains > 0;
            if std::mem::replace(&mut had_rules, has_rules) != has_rules {
                report(has_rules);
            }
            tokio::time::sleep(FIRST_RULES_INTERVAL).await;
        }
    }

    pub(super) fn sources(
        &self,
        service: &RateLimitService,
        tls: &PortCounts,
        token_file: Option<Arc<LastAttempt>>,
        connections: Arc<ConnectionCounts>,
    ) -> Sources {
        let snapshots = self.snapshots.as_ref().map(|snapshots| Arc::clone(snapshots.counts()));
        let (limiter, config) = (Arc::clone(&self.limiter), Arc::clone(&self.config));
        let meters = Arc::clone(service.meters());
        let tls = vec![("grpc", Arc::clone(&tls.grpc)), ("http", Arc::clone(&tls.http))];
        let decision_log = self.decision_log.clone();
        let control_plane = self.control_plane.clone();
        Sources {
            meters,
            connections,
            memory_max: super::available_memory().map(|(bytes, _)| bytes),
            limiter,
            config,
            control_plane,
            snapshots,
            tls,
            token_file,
            decision_log,
            shared_store: service.shared_store().cloned(),
            grants: service.grants().cloned(),
            quotas: service.quotas().clone(),
        }
    }

    /// Stops the threads and writes the last snapshot; called after the last decision. `time` bounds rules that are being loaded.
    pub(super) fn finish(self, time: Duration) -> Result<(), ServeError> {
        for files in self.rule_files {
            files.stop(time);
        }
        if let Some(xds) = self.xds {
            xds.stop(time);
        }
        if let Some(log) = self.decision_log {
            log.finish();
        }
        // The credits of leases are released before this server leaves the store.
        drop(self.leasing);
        drop(self.keeper);
        let record = self.quotas.stop();
        drop([self.notices, self.sweeper, self.clock_follower]);
        self.snapshots.map_or(Ok(()), SnapshotTask::finish).map_err(ServeError::LastSnapshot)?;
        record.into_iter().for_each(QuotaRecord::stopped_in_order);
        Ok(())
    }
}
