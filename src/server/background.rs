//! The background threads, and the limiter they work on.

use super::{
    FirstRules, RuleSettings, ServeError, Settings, clock_follower, listening::Listening, notices,
    quota_record::DISK_WAIT, quotas::QuotaThread, sweeper, token_file::TokenFile,
};
use crate::api::XdsFeed;
use std::{collections::BTreeMap, convert::Infallible, sync::Arc, time::Duration};
use tidegate_core::{clock::Clock, limit::Timestamp, limiter::Limiter};
use tidegate_operations::{
    config::{Config, ControlPlaneCounts, Feed, RuleFiles},
    telemetry::Sources,
};
use tidegate_shared::store::{start_keeper, start_leasing};
use tidegate_snapshot::{SnapshotTask, Writer};
use tidegate_threads::StoppableThread;

/// Time between two looks for the first rules.
const FIRST_RULES_INTERVAL: Duration = Duration::from_millis(20);

/// The background threads, and the limiter they work on.
pub(super) struct Background {
    /// What they work on, as metrics and the control API read it.
    pub(super) sources: Sources,
    /// One for the rule files and one for the files of blocks, if there are any.
    rule_files: Vec<RuleFiles>,
    xds: Option<XdsFeed>,
    /// Notices, the sweeper and the follower of the clock, which end in any order.
    periodic: [StoppableThread; 3],
    snapshots: Option<SnapshotTask>,
    keeper: Option<StoppableThread>,
    leasing: Option<StoppableThread>,
    quotas: QuotaThread,
}

impl Background {
    pub(super) fn start(
        settings: &Settings,
        clock: &Arc<dyn Clock>,
        (limiter, writer): (Limiter, Option<Writer>),
        listening: &Listening,
    ) -> Result<Self, ServeError> {
        let (rules, service) = (&settings.rules, &listening.service);
        let decision_log = settings.decision_log.clone();
        let limiter = if decision_log.is_some() { limiter.with_numbered_decisions() } else { limiter };
        let limiter = Arc::new(limiter);
        let config = Arc::new(config(rules, &limiter, clock.now()));
        if let Some(log) = &decision_log {
            log.set_limiter(&limiter);
            let log = log.clone();
            config.observe(Box::new(move |rules| log.put_in_force(rules)), clock.now());
        }
        let feeds = [(Feed::Files, rules.files.clone()), (Feed::Blocks, rules.block_files.clone())];
        let feeds = feeds.into_iter().filter(|(_, files)| !files.paths.is_empty());
        let rule_files =
            feeds.map(|files| RuleFiles::start(&config, files, rules.watch, clock, &rules.reload));
        let rule_files = rule_files.collect::<Result<Vec<_>, _>>()?;
        let control_plane = rules.xds.as_ref().map(|_| Arc::<ControlPlaneCounts>::default());
        let xds = rules.xds.clone().zip(control_plane.as_ref());
        let xds = xds.map(|(xds, counts)| XdsFeed::start(&config, xds, clock, counts)).transpose()?;
        let periodic = [
            notices::start(&limiter, service.meters(), clock)?,
            sweeper::start(&limiter, clock)?,
            clock_follower::start(clock)?,
        ];
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
        let tls = &listening.tls.counts;
        let sources = Sources {
            meters: Arc::clone(service.meters()),
            connections: Arc::clone(&listening.workers.counts),
            memory_max: super::available_memory().map(|(bytes, _)| bytes),
            limiter,
            config,
            control_plane,
            snapshots: snapshots.as_ref().map(|snapshots| Arc::clone(snapshots.counts())),
            tls: vec![("grpc", Arc::clone(&tls.grpc)), ("http", Arc::clone(&tls.http))],
            token_file: listening.http.tokens.as_ref().map(TokenFile::last_reload),
            decision_log,
            shared_store: settings.shared_store.clone(),
            grants: service.grants().cloned(),
            quotas: service.quotas().clone(),
        };
        Ok(Self { sources, rule_files, xds, periodic, snapshots, keeper, leasing, quotas })
    }

    /// Completes when the control plane, or the rule files where there is none, have put rules in force.
    pub(super) async fn first_rules(&self) {
        let awaited = if self.sources.control_plane.is_some() { Feed::Xds } else { Feed::Files };
        while !self.sources.config.status().feeds.contains(&awaited) {
            tokio::time::sleep(FIRST_RULES_INTERVAL).await;
        }
    }

    /// Reports whether any domain has rules, at each change.
    pub(super) async fn follow_rules(&self, mut report: impl FnMut(bool)) -> Infallible {
        let mut had_rules = true;
        loop {
            let has_rules = self.sources.config.status().domains > 0;
            if std::mem::replace(&mut had_rules, has_rules) != has_rules {
                report(has_rules);
            }
            tokio::time::sleep(FIRST_RULES_INTERVAL).await;
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
        if let Some(log) = self.sources.decision_log {
            log.finish();
        }
        // The credits of leases are released before this server leaves the store.
        drop(self.leasing);
        drop(self.keeper);
        let record = self.quotas.stop();
        drop(self.periodic);
        self.snapshots.map_or(Ok(()), SnapshotTask::finish).map_err(ServeError::LastSnapshot)?;
        record.into_iter().for_each(|record| record.stopped_in_order(DISK_WAIT));
        Ok(())
    }
}

/// The owner of the rules, with those that the limiter has.
fn config(rules: &RuleSettings, limiter: &Arc<Limiter>, now: Timestamp) -> Config {
    let mut declared = BTreeMap::from([(Feed::Files, Vec::new()), (Feed::Blocks, Vec::new())]);
    for source in &rules.sources {
        declared.entry(Feed::of(&source.id)).or_default().push(source.clone());
    }
    let config = Config::new(Arc::clone(limiter), rules.options, declared, now);
    let config = config.with_kept(rules.kept.clone());
    for (feed, at, errors) in rules.began_with_kept.clone() {
        config.began_with_kept(feed, at, errors, now);
    }
    if rules.first == FirstRules::Loaded { config } else { config.awaiting_rules() }
}
