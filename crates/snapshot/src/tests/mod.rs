//! The properties of snapshots, on a disk that fails and on a real disk.

mod bans;
mod clock_set_back;
mod format_1;
#[cfg(feature = "mount")]
mod full_disk;
mod killed;
mod power_cut;
mod real_disk;

use super::{
    SimulatedDisk,
    read::{self, ReadError},
    record::{self, Commit, Kind, Position},
    restore::{RestoreError, Restored, restore},
    write::Writer,
};
use proptest::prelude::*;
use std::collections::BTreeMap;
use tidegate_core::{
    algorithm::{Algorithm, State},
    clock::ManualClock,
    limit::{Code, Descriptor, Entry, Hits, LimitId, Request, Timestamp},
    limiter::Limiter,
    rules::{LimitIdentity, LimitInfo, LoadOptions, RuleSet, Source},
    store::{Counter, Key, OnFull, Seed, Store, StoreSettings},
};

const RULES: &str = "domain: d\ndescriptors:\n- key: user\n  rate_limit: {unit: hour, requests_per_unit: 100}\n\
                     - key: plan\n  rate_limit: {unit: day, requests_per_unit: 1000}\n\
                     - key: log\n  rate_limit: {unit: day, requests_per_unit: 1000000, algorithm: sliding_log}\n";

fn start_of_time() -> Timestamp {
    Timestamp::from_millis(1_700_000_000_000)
}

fn limiter(rules: &str, seed: Seed, counters_max: usize) -> Limiter {
    let source = Source::file("rules.yaml", rules);
    let rules = RuleSet::parse(&[source], &LoadOptions::default()).expect("the test's rules are good");
    Limiter::new(rules, StoreSettings { seed, counters_max, on_full: OnFull::Deny }, false)
}

fn start(
    disk: SimulatedDisk,
    rules: &str,
    now: Timestamp,
) -> Result<(Limiter, Writer, Restored), RestoreError> {
    let build = |seed| limiter(rules, seed, 1_000_000);
    restore(Box::new(disk), None, Seed::from_bytes([1; 16]), build, now, |_| {})
}

/// The limit with this path in the rules.
fn limit(limiter: &Limiter, path: &str) -> (LimitId, Algorithm) {
    let limits = limiter.rules().limits().to_vec();
    let (id, info) = limits.iter().find(|(_, info)| &*info.identity.path == path).expect("the path is there");
    (*id, info.algorithm.clone())
}

/// A number below `below`; advances the seed.
fn random(seed: &mut u64, below: u64) -> u64 {
    *seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
    (*seed >> 33) % below
}

fn key(number: u64) -> Key {
    let high = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Key::from_halves(high, high.rotate_left(31) ^ number)
}

/// Counts hits without a request.
fn count(limiter: &Limiter, key: Key, path: &str, hits: u64, now: Timestamp) {
    let (id, algorithm) = limit(limiter, path);
    let mut shard = limiter.store().lock(Store::shard_of(key));
    let place = shard.find(key);
    let state = place.map_or(State::EMPTY, |place| shard.get(place).state().into_owned());
    let state = algorithm.add(state, hits, now);
    let expires = algorithm.expires(&state);
    let counter = Counter::new(state, id, expires);
    match place {
        Some(place) => *shard.get_mut(place) = counter,
        None => {
            assert!(limiter.store().reserve(1));
            shard.insert(key, counter, now);
        }
    }
}

/// Every counter, with its limit and what is used of it.
fn content(limiter: &Limiter, now: Timestamp) -> BTreeMap<Key, (String, u64)> {
    let (rules, store) = (limiter.rules(), limiter.store());
    let mut all = BTreeMap::new();
    for shard in 0..store.shard_count() {
        for (key, counter) in store.lock(shard).iter() {
            let info = rules.limits().get(counter.limit()).expect("the limit of a counter is known");
            let used = info.algorithm.used(&counter.state(), now);
            all.insert(key, (info.identity.path.to_string(), used));
        }
    }
    all
}

fn pass(writer: &mut Writer, limiter: &Limiter, now: Timestamp) -> Result<super::Pass, super::DiskError> {
    writer.pass(limiter.store(), limiter.rules().limits(), &ManualClock::new(now))
}

#[derive(Clone, Debug)]
enum Step {
    Count {
        first: u64,
        keys: u64,
        hits: u64,
    },
    Pass,
    /// The disk fails after `writes` writes, if the next pass has as many.
    FailingPass {
        writes: u32,
        late: bool,
    },
    /// The process dies. Some of what was not durable has survived.
    Crash {
        kept: u64,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..3000u64, 1..600u64, 1..5u64)
            .prop_map(|(first, keys, hits)| Step::Count { first, keys, hits }),
        2 => Just(Step::Pass),
        2 => (0..12u32, any::<bool>()).prop_map(|(writes, late)| Step::FailingPass { writes, late }),
        2 => (0..4u64).prop_map(|kept| Step::Crash { kept }),
    ];
    prop::collection::vec(step, 1..25)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn after_any_failure_and_crash_the_last_committed_snapshot_is_restored(steps in steps()) {
        let (disk, now) = (SimulatedDisk::default(), start_of_time());
        let (mut limiter, mut writer, _) = start(disk.clone(), RULES, now).unwrap();
        // A failing write of the manifest may have replaced it or not: both are right then.
        let mut possible = vec![content(&limiter, now)];
        for step in steps {
            match step {
                Step::Count { first, keys, hits } => {
                    for number in first..first + keys {
                        let path = if number % 3 == 0 { "plan" } else { "user" };
                        count(&limiter, key(number), path, hits, now);
                    }
                }
                Step::Pass => {
                    pass(&mut writer, &limiter, now).unwrap();
                    possible = vec![content(&limiter, now)];
                }
                Step::FailingPass { writes, late } => {
                    disk.0.lock().writes_left = Some(writes);
                    disk.0.lock().fails_late = late;
                    match pass(&mut writer, &limiter, now) {
                        Ok(_) => possible = vec![content(&limiter, now)],
                        Err(_) => possible.push(content(&limiter, now)),
                    }
                    disk.0.lock().writes_left = None;
                }
                Step::Crash { kept } => {
                    disk.crash(kept);
                    (limiter, writer, _) = start(disk.clone(), RULES, now).unwrap();
                    let found = content(&limiter, now);
                    prop_assert!(possible.contains(&found));
                    prop_assert_eq!(limiter.store().counters(), found.len());
                    possible = vec![found];
                }
            }
        }
    }
}

#[test]
fn a_pass_writes_changes_and_an_idle_one_nothing() {
    let (disk, now) = (SimulatedDisk::default(), start_of_time());
    let (limiter, mut writer, _) = start(disk.clone(), RULES, now).unwrap();
    (0..50_000).for_each(|number| count(&limiter, key(number), "user", 1, now));
    let first = pass(&mut writer, &limiter, now).unwrap();
    assert!(first.afresh && first.counters == 50_000);
    (0..10).for_each(|number| count(&limiter, key(number), "user", 1, now));
    let second = pass(&mut writer, &limiter, now).unwrap();
    assert!(!second.afresh && second.pages <= 10 && second.bytes < first.bytes / 20, "{second:?}");
    assert_eq!(pass(&mut writer, &limiter, now).unwrap(), super::Pass::default());
    // Also after a restart.
    let (limiter, mut writer, restored) = start(disk, RULES, now).unwrap();
    assert_eq!(restored.counters, 50_000);
    count(&limiter, key(7), "user", 1, now);
    assert_eq!(pass(&mut writer, &limiter, now).unwrap().pages, 1);
}

#[test]
fn the_records_are_at_most_three_times_those_of_a_full_pass() {
    let (disk, now) = (SimulatedDisk::default(), start_of_time());
    let (limiter, mut writer, _) = start(disk.clone(), RULES, now).unwrap();
    (0..100_000).for_each(|number| count(&limiter, key(number), "user", 1, now));
    let full = pass(&mut writer, &limiter, now).unwrap().bytes;
    let mut most = 0;
    for round in 0..60 {
        (0..700).for_each(|number| count(&limiter, key(number * 131 + round), "user", 1, now));
        pass(&mut writer, &limiter, now).unwrap();
        most = most.max(writer.disk_bytes().unwrap());
    }
    assert!(most < full * 3, "{most} bytes at most, {full} to keep");
    let (restored, ..) = start(disk, RULES, now).unwrap();
    assert_eq!(content(&restored, now), content(&limiter, now));
}

/// After each start, the generation could grow by half before it was replaced.
#[test]
fn the_records_are_at_most_three_times_those_of_a_full_pass_however_often_the_server_restarts() {
    let (disk, now) = (SimulatedDisk::default(), start_of_time());
    let (limiter, mut writer, _) = start(disk.clone(), RULES, now).unwrap();
    (0..100_000).for_each(|number| count(&limiter, key(number), "user", 1, now));
    let full = pass(&mut writer, &limiter, now).unwrap().bytes;
    for restart in 0..12 {
        let (limiter, mut writer, _) = start(disk.clone(), RULES, now).unwrap();
        (0..700).for_each(|number| count(&limiter, key(number * 131 + restart), "user", 1, now));
        let is_replaced = pass(&mut writer, &limiter, now).unwrap().afresh;
        let bytes = writer.disk_bytes().unwrap();
        assert!(bytes < full * 3, "{bytes} bytes after {restart} restarts, {full} to keep");
        if is_replaced {
            return;
        }
    }
    panic!("no pass began a new generation");
}

#[test]
fn a_counter_survives_changed_and_removed_rules() {
    let (disk, now) = (SimulatedDisk::default(), start_of_time());
    let (before, mut writer, _) = start(disk.clone(), RULES, now).unwrap();
    count(&before, key(1), "user", 60, now);
    count(&before, key(2), "plan", 7, now);
    pass(&mut writer, &before, now).unwrap();

    let changed = RULES.replace("plan", "tier").replace("unit: hour", "unit: minute");
    let (after, mut writer, restored) = start(disk.clone(), &changed, now).unwrap();
    assert_eq!(restored.counters, 2);
    let state = {
        let shard = after.store().lock(Store::shard_of(key(1)));
        let place = shard.find(key(1)).expect("the counter is there");
        let counter = shard.get(place);
        let former = after.rules().limits().get(counter.limit()).unwrap().algorithm.clone();
        limit_of(&changed, "user").take_over(&former, counter.state().into_owned(), u64::MAX, now)
    };
    assert_eq!(limit_of(&changed, "user").used(&state, now), 60);
    // The next start has the former rules again.
    pass(&mut writer, &after, now).unwrap();
    let (back, ..) = start(disk, RULES, now).unwrap();
    assert_eq!(content(&back, now), content(&before, now));
}

fn limit_of(rules: &str, path: &str) -> Algorithm {
    limit(&limiter(rules, Seed::from_bytes([0; 16]), 1), path).1
}

#[test]
fn counters_that_expired_meanwhile_are_left_out() {
    let (disk, now) = (SimulatedDisk::default(), start_of_time());
    let (before, mut writer, _) = start(disk.clone(), RULES, now).unwrap();
    count(&before, key(1), "user", 1, now);
    count(&before, key(2), "plan", 1, now);
    pass(&mut writer, &before, now).unwrap();
    let later = now.saturating_add_nanos(3 * 3_600_000_000_000);
    let (after, _, restored) = start(disk, RULES, later).unwrap();
    assert_eq!((restored.counters, restored.expired), (1, 1));
    assert!(content(&after, later).contains_key(&key(2)));
}

#[test]
fn more_counters_than_the_store_may_hold_are_refused() {
    let (disk, now) = (SimulatedDisk::default(), start_of_time());
    let (before, mut writer, _) = start(disk.clone(), RULES, now).unwrap();
    (0..100).for_each(|number| count(&before, key(number), "user", 1, now));
    pass(&mut writer, &before, now).unwrap();
    let build = |seed| limiter(RULES, seed, 99);
    let refused = restore(Box::new(disk), None, Seed::from_bytes([1; 16]), build, now, |_| {});
    assert!(matches!(refused, Err(RestoreError::Full { counters_max: 99 })));
}

#[test]
fn a_missing_record_or_manifest_is_an_error_and_not_an_empty_start() {
    let (disk, now) = (SimulatedDisk::default(), start_of_time());
    let (before, mut writer, _) = start(disk.clone(), RULES, now).unwrap();
    (0..20_000).for_each(|number| count(&before, key(number), "user", 1, now));
    pass(&mut writer, &before, now).unwrap();
    let damaged = |disk: &SimulatedDisk| {
        let refused = start(disk.clone(), RULES, now).err().expect("it is refused");
        assert!(matches!(refused, RestoreError::Read(ReadError::Damaged(_))), "{refused}");
    };
    let numbers: Vec<u64> = disk.0.lock().generations[&1].records.keys().copied().collect();
    for number in numbers {
        let change = |record: Option<Vec<u8>>| {
            let mut content = disk.0.lock();
            let records = &mut content.generations.get_mut(&1).unwrap().records;
            let former = records.remove(&number);
            records.extend(record.map(|record| (number, record)));
            former
        };
        let former = change(None);
        damaged(&disk);
        change(former);
    }
    disk.0.lock().manifest = None;
    damaged(&disk);
}

#[test]
fn a_snapshot_of_a_newer_format_is_refused_as_such() {
    let disk = SimulatedDisk::default();
    let line = r#"{"format":2,"generation":1,"committed":3}"#;
    disk.0.lock().manifest = Some(format!("{line}\n{:08x}\n", crc32fast::hash(line.as_bytes())).into_bytes());
    let mut handle = disk.clone();
    assert!(matches!(read::find(&mut handle), Err(ReadError::Newer(2))));
}

/// Found by a fuzzer: memory was allocated for the number of shards in the head.
#[test]
fn a_head_with_too_many_shards_is_damaged() {
    let head = br#"{"seed":"000102030405060708090a0b0c0d0e0f","shards":18446744073709551615}"#;
    let commit = br#"{"at_nanos":1,"counters":0,"limit_records":[]}"#;
    let bodies = [(0, &head[..]), (3, &commit[..])];
    let build = |seed| limiter(RULES, seed, 1_000);
    let restored = super::fuzz_bridge::restore_records(bodies.into_iter(), build, start_of_time());
    assert!(matches!(restored.err(), Some(RestoreError::Read(ReadError::Damaged(_)))));
}

/// A disk on which the record with this number is replaced by what `replacement` seals for its position.
fn with_record(number: u64, replacement: impl Fn(Position) -> Vec<u8>) -> SimulatedDisk {
    let (disk, now) = (SimulatedDisk::default(), start_of_time());
    let (before, mut writer, _) = start(disk.clone(), RULES, now).unwrap();
    (0..100).for_each(|number| count(&before, key(number), "user", 1, now));
    pass(&mut writer, &before, now).unwrap();
    let last = *disk.0.lock().generations[&1].records.keys().next_back().unwrap();
    let number = last.saturating_sub(number);
    let record = replacement(Position { generation: 1, number });
    disk.0.lock().generations.get_mut(&1).unwrap().records.insert(number, record);
    disk
}

#[track_caller]
fn is_damaged(disk: SimulatedDisk, message: &str) {
    let refused = start(disk, RULES, start_of_time()).err().expect("it is refused");
    let is_damaged =
        matches!(&refused, RestoreError::Read(ReadError::Damaged(text)) if text.contains(message));
    assert!(is_damaged, "{refused}");
}

#[test]
fn a_counter_of_no_limit_is_damaged() {
    let commit = Commit { at_nanos: start_of_time().as_nanos(), counters: 100, limit_records: Vec::new() };
    let disk = with_record(0, |position| record::seal_json(Kind::Commit, position, &commit));
    is_damaged(disk, "a counter belongs to no limit");
}

/// If a record with pages was sealed as another kind, it was skipped.
#[test]
fn a_snapshot_without_some_of_its_pages_is_damaged() {
    let no_limits = Vec::<u8>::new();
    // Record 2 is before those of the limits and of the commit.
    let disk = with_record(2, |position| record::seal_json(Kind::Limits, position, &no_limits));
    is_damaged(disk, "some of its pages are missing");
}

/// A pass that continued the generation would mix its records with those that could not be removed.
#[test]
fn a_start_that_cannot_remove_an_unfinished_pass_begins_a_new_generation() {
    let (disk, now) = (SimulatedDisk::default(), start_of_time());
    let (before, mut writer, _) = start(disk.clone(), RULES, now).unwrap();
    count(&before, key(1), "user", 1, now);
    pass(&mut writer, &before, now).unwrap();
    count(&before, key(2), "user", 1, now);
    disk.0.lock().writes_left = Some(1);
    assert!(pass(&mut writer, &before, now).is_err());
    disk.0.lock().writes_left = Some(0);
    let (after, mut writer, _) = start(disk.clone(), RULES, now).unwrap();
    disk.0.lock().writes_left = None;
    count(&after, key(3), "user", 1, now);
    assert!(pass(&mut writer, &after, now).unwrap().afresh);
    let (again, ..) = start(disk, RULES, now).unwrap();
    assert_eq!(content(&again, now), content(&after, now));
}

/// The counters of the limit that has the number now were restored under the limit that had the number before.
#[test]
fn a_number_that_another_limit_has_by_now_is_written_as_that_limit() {
    let (disk, now) = (SimulatedDisk::default(), start_of_time());
    let (limiter, mut writer, _) = start(disk.clone(), RULES, now).unwrap();
    (0..1_000).for_each(|number| count(&limiter, key(number), "user", 1, now));
    let (former, algorithm) = limit(&limiter, "user");
    let register = |path: &str| {
        let identity = LimitIdentity { domain: "d".into(), path: path.into(), tag: 0 };
        limiter.rules().limits().register(LimitInfo { identity, algorithm: algorithm.clone() })
    };
    let set = |number: u64, id: LimitId| {
        let mut shard = limiter.store().lock(Store::shard_of(key(number)));
        let place = shard.find(key(number)).expect("it was counted");
        let state = shard.get(place).state().into_owned();
        let expires = algorithm.expires(&state);
        *shard.get_mut(place) = Counter::new(state, id, expires);
    };
    let first = register("first");
    assert_ne!(first, former);
    set(7, first);
    pass(&mut writer, &limiter, now).unwrap();
    set(7, former);
    limiter.rules().limits().collect(|_| {}).expect("nothing is written meanwhile");
    assert_eq!(register("second"), first, "the number is used again");
    set(7, first);
    assert!(!pass(&mut writer, &limiter, now).unwrap().afresh);
    let (again, ..) = start(disk, RULES, now).unwrap();
    assert_eq!(content(&again, now)[&key(7)].0, "second");
}
