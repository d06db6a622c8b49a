//! The thread of quotas: processes reports of clients that enforce limits by themselves, and divides the limits among them. With a shared
//! store, another thread requests this server's parts of its limits. With a data directory, a third records what is assigned.

use super::{
    Settings,
    quota_record::{Begun, QuotaRecord},
};
use std::{collections::hash_map::RandomState, hash::BuildHasher as _, io, sync::Arc};
use tidegate_core::{
    clock::Clock,
    limiter::Limiter,
    rules::{DomainRules, Percent},
};
use tidegate_service::{QuotaStart, Quotas, RateLimitService};
use tidegate_shared::{
    lease::NodeId,
    quota::Former,
    store::{SharedStore, start_parts},
};
use tidegate_threads::{BackgroundThread, Priority, StartError};

/// The running thread.
pub(super) struct QuotaThread {
    quotas: Quotas,
    thread: BackgroundThread,
    parts: Option<BackgroundThread>,
    record: Option<QuotaRecord>,
    clock: Arc<dyn Clock>,
}

impl QuotaThread {
    pub(super) fn start(
        service: &RateLimitService,
        limiter: &Arc<Limiter>,
        clock: &Arc<dyn Clock>,
        settings: &Settings,
    ) -> Result<Self, StartError> {
        let (quotas, meters) = (service.quotas(), Arc::clone(service.meters()));
        let store = settings.shared_store.as_ref();
        // A full disk does not prevent the start: decisions do not need the record.
        let begin = Self::begin(settings, store.map(|store| &**store), clock);
        let is_lost = begin.is_err();
        let (mut record, begun) = begin.unwrap_or_else(|error| {
            tracing::error!(
                %error,
                "the record of quotas in the data directory cannot be used, and clients of quotas get what they get without --data; make it \
                 writable, or remove the file `quotas` there"
            );
            (None, None)
        });
        let (parts, calls) = match store {
            None => (None, None),
            Some(store) => {
                let of_thread = quotas.clone();
                let granted = move |bucket, sequence, grant| of_thread.granted(bucket, sequence, grant);
                let (thread, calls) = start_parts(store, clock, granted)?;
                let server = begun.as_ref().map_or(store.holders.node, |begun| begun.server);
                (Some(thread), Some((server, calls)))
            }
        };
        if record.is_none() {
            warn_of_unrecorded(limiter);
        }
        let mut of_thread = QuotaStart::unrecorded(settings.quota_memory);
        of_thread.store = calls;
        if is_lost {
            of_thread.former = Former::Unknown;
        }
        if let Some(Begun { former, ceilings, had_number, .. }) = begun {
            (of_thread.former, of_thread.ceilings) = (former, Some(ceilings));
            of_thread.had_number = had_number;
        }
        if let Some(record) = &mut record {
            of_thread.record = Box::new(record.start(quotas.clone())?);
        }
        let (this, limiter, of_run) = (quotas.clone(), Arc::clone(limiter), Arc::clone(clock));
        let run = move || this.run(&limiter, &*of_run, &meters, of_thread);
        let thread = BackgroundThread::start("quotas", Priority::Awaited, run)?;
        Ok(Self { quotas: quotas.clone(), thread, parts, record, clock: Arc::clone(clock) })
    }

    /// Begins the record, if there is a data directory.
    fn begin(
        settings: &Settings,
        store: Option<&SharedStore>,
        clock: &Arc<dyn Clock>,
    ) -> io::Result<(Option<QuotaRecord>, Option<Begun>)> {
        let Some(of_record) = &settings.quota_record else { return Ok((None, None)) };
        let random = || NodeId(RandomState::new().hash_one(of_record));
        let server = store.map_or_else(random, |store| store.holders.node);
        let (record, begun) = QuotaRecord::begin(of_record, server, clock.now())?;
        match &begun.former {
            Former::Unknown => tracing::info!(
                "the quotas that a former process assigned are not known: all of each limit counts as assigned for 16 s after this start"
            ),
            former => tracing::debug!(?former, "quotas of the former process"),
        }
        Ok((Some(record), Some(begun)))
    }

    /// Ends the thread; returns the record, if there is one.
    pub(super) fn stop(self) -> Option<QuotaRecord> {
        self.quotas.stop();
        self.thread.join();
        if let Some(parts) = self.parts {
            parts.join();
        }
        let mut record = self.record;
        record.iter_mut().for_each(|record| record.stop(self.clock.now()));
        record
    }
}

/// Logs that clients of quotas get less than their limits, if any rule is for quotas.
fn warn_of_unrecorded(limiter: &Limiter) {
    let is_bounded = |domain: &DomainRules| {
        !domain.is_shared() && domain.quotas().is_some_and(|quotas| quotas.unrecorded < Percent::ALL)
    };
    if limiter.pin().rules().domains().any(is_bounded) {
        tracing::warn!(
            "clients of quotas (RLQS) get no more of each limit together than `rlqs.unrecorded` of its domain (50% by default), and for 16 s after \
             each start so much counts as assigned, since nothing records what is; start with --data"
        );
    }
}
