//! The requests that are woken when a request ahead of them is cancelled.

use super::*;
use crate::limiter::queue::line::steps::STEPS;
use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Wake, Waker},
};

/// Counts how often it is woken.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Ten hits a second, and room for ten thousand requests in the queue.
const LONG: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: {unit: second, requests_per_unit: 10, algorithm: leaky_bucket, burst: 1, max_wait: 1h, max_queue: 10000}
";

/// Each cancellation visited all requests behind it: cancelling a thousand of ten thousand stalled a worker for 128 to 322 ms.
#[test]
fn cancelling_at_the_head_of_a_long_queue_takes_logarithmically_many_steps() {
    const QUEUED: u64 = 10_000;
    let mut world = World::of(limiter(LONG).with_queued_max(20_000));
    world.arrive("first", 0, "user=x");
    let positions: Vec<QueuePosition> = (0..QUEUED)
        .map(|_| match world.limiter.pin().decide_or_queue(&request("user=x"), Duration::MAX, at(0)) {
            QueueDecision::Queued(position) => position,
            verdict => panic!("{verdict:?}"),
        })
        .collect();
    let polls = Arc::new(Bell::default());
    for position in &positions {
        world.limiter.poll(position, &Waker::from(Arc::clone(&polls)), at(0));
    }
    let (mut most, mut positions) = (0, positions.into_iter());
    for cancelled in 1..=1_000 {
        let before = STEPS.with(Cell::get);
        world.limiter.cancel(positions.next().expect("one of ten thousand"), at(0));
        let head = &positions.as_slice()[0];
        assert_eq!(world.limiter.due(head), Due::At(at(100)));
        let last = &positions.as_slice()[positions.as_slice().len() - 1];
        assert_eq!(world.limiter.due(last), Due::At(at(100 * (QUEUED - cancelled))));
        most = most.max(STEPS.with(Cell::get) - before);
        // Only the head is woken: the others follow one after the other.
        assert_eq!(polls.0.swap(0, Ordering::Relaxed), 1);
        world.limiter.poll(head, &Waker::from(Arc::clone(&polls)), at(0));
    }
    assert!(most <= 200, "{most} steps");
    positions.for_each(|position| world.limiter.release(position));
}

/// The others have timers from before the first was cancelled.
#[test]
fn requests_behind_a_cancelled_one_are_woken_one_after_the_other_in_time() {
    let mut world = World::new(ONE_A_SECOND);
    for name in ["a", "b", "c", "d"] {
        world.arrive(name, 0, "user=x");
    }
    let bells: BTreeMap<_, _> = ["b", "c", "d"].map(|name| (name, Arc::new(Bell::default()))).into();
    let poll = |world: &World, name: &str, millis| {
        world.limiter.poll(&world.positions[name], &Waker::from(Arc::clone(&bells[name])), at(millis))
    };
    for (name, millis) in [("b", 1_000), ("c", 2_000), ("d", 3_000)] {
        assert_eq!(poll(&world, name, 0), QueuePoll::Again(at(millis)));
    }
    world.cancel("b", 0);
    let woken = || ["c", "d"].map(|name| bells[name].0.load(Ordering::Relaxed));
    assert_eq!(woken(), [1, 0]);
    assert_eq!(poll(&world, "c", 0), QueuePoll::Again(at(1_000)));
    assert_eq!(poll(&world, "c", 1_000), QueuePoll::Release);
    assert_eq!(woken(), [1, 1]);
    assert_eq!(poll(&world, "d", 1_000), QueuePoll::Again(at(2_000)));
}

/// The timer of the first is for its other bucket.
#[test]
fn a_request_that_waits_for_two_buckets_wakes_those_behind_it_in_either() {
    let mut world = World::new(TWO_QUEUES);
    for (name, descriptors) in
        [("a", "user=x; all=1"), ("b", "all=1"), ("c", "user=x; all=1"), ("d", "all=1"), ("e", "all=1")]
    {
        world.arrive(name, 0, descriptors);
    }
    let bells: BTreeMap<_, _> = ["b", "c", "d", "e"].map(|name| (name, Arc::new(Bell::default()))).into();
    let poll = |world: &World, name: &str, millis| {
        world.limiter.poll(&world.positions[name], &Waker::from(Arc::clone(&bells[name])), at(millis))
    };
    let names: Vec<&str> = world.positions.keys().copied().collect();
    names.iter().for_each(|name| _ = poll(&world, name, 0));
    let before = world.release_times(["c", "d", "e"]);
    world.cancel("b", 0);
    let after = world.release_times(["c", "d", "e"]);
    assert!(after[1] < before[1] && after[2] < before[2], "{before:?} {after:?}");
    // Time passes a millisecond at a time; each is polled when it is woken or its timer expires.
    let mut timers: BTreeMap<&str, u64> = ["c", "d", "e"].into_iter().zip(before).collect();
    for millis in 0..=before[0] {
        let mut polled = true;
        while std::mem::take(&mut polled) {
            for name in ["c", "d", "e"] {
                if bells[name].0.swap(0, Ordering::Relaxed) > 0
                    || timers.get(name).is_some_and(|&at| at <= millis)
                {
                    polled = true;
                    match poll(&world, name, millis) {
                        QueuePoll::Again(then) => {
                            _ = timers.insert(name, then.since(at(0)).as_millis() as u64)
                        }
                        other => {
                            assert_eq!(other, QueuePoll::Release);
                            timers.remove(name);
                        }
                    }
                }
            }
        }
        let released = ["c", "d", "e"].map(|name| !timers.contains_key(name));
        assert_eq!(released, after.map(|release| release <= millis), "at {millis} ms");
    }
}

/// Requests that have left a queue are forgotten together; the first of those that wait has to be found afterwards.
#[test]
fn requests_are_woken_after_most_of_those_before_them_have_left() {
    let mut world = World::of(limiter(LONG).with_queued_max(200));
    world.arrive("first", 0, "user=x");
    let mut positions: Vec<QueuePosition> = (0..100)
        .map(|_| match world.limiter.pin().decide_or_queue(&request("user=x"), Duration::MAX, at(0)) {
            QueueDecision::Queued(position) => position,
            verdict => panic!("{verdict:?}"),
        })
        .collect();
    let bell = Arc::new(Bell::default());
    let poll = |position: &QueuePosition, millis| {
        world.limiter.poll(position, &Waker::from(Arc::clone(&bell)), at(millis))
    };
    positions.iter().for_each(|position| _ = poll(position, 0));
    for (number, position) in (1..).zip(positions.drain(..60).collect::<Vec<_>>()) {
        assert_eq!(poll(&position, number * 100), QueuePoll::Release);
        world.limiter.release(position);
    }
    let polled = |position: &QueuePosition| poll(position, 6_000);
    positions.iter().for_each(|position| _ = polled(position));
    bell.0.store(0, Ordering::Relaxed);
    world.limiter.cancel(positions.remove(0), at(6_000));
    assert_eq!(bell.0.load(Ordering::Relaxed), 1, "the next one is released earlier");
    assert_eq!(polled(&positions[0]), QueuePoll::Again(at(6_100)));
    positions.into_iter().for_each(|position| world.limiter.release(position));
}
