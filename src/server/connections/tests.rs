use super::*;
use std::net::Ipv4Addr;

fn peer(number: u8) -> Peer {
    Peer::Ip(Ipv4Addr::new(192, 0, 2, number).into())
}

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn connections(max: usize, per_peer_max: usize) -> Arc<Connections> {
    Connections::new(ConnectionBounds { max, per_peer_max }, Arc::default())
}

/// Whether the connection was evicted.
fn is_evicted(admission: &Admission) -> bool {
    admission.connections.table.lock().evicting.contains(&admission.number)
}

/// Publishes that a connection opened at zero had a request that ended this many seconds later.
fn idle_since(admission: &Admission, seconds: u64) {
    admission.activity.publish(Some(Duration::from_secs(seconds)), true);
}

fn busy(admission: &Admission) {
    admission.activity.publish(None, true);
}

#[test]
fn the_bound_holds_while_every_connection_is_busy() {
    let connections = connections(2, 2);
    let open: Vec<_> = (0..2).map(|n| connections.admit(peer(n), at(0)).expect("there is room")).collect();
    open.iter().for_each(busy);
    assert!(connections.admit(peer(9), at(0)).is_none());
    drop(open);
    assert!(connections.admit(peer(9), at(0)).is_some());
}

#[test]
fn a_connection_without_a_request_makes_room_before_one_that_had_a_request() {
    let connections = connections(3, 3);
    let used = connections.admit(peer(1), at(0)).expect("there is room");
    idle_since(&used, 1);
    let newer = connections.admit(peer(2), at(1)).expect("there is room");
    let newest = connections.admit(peer(3), at(2)).expect("there is room");
    let next = connections.admit(peer(4), at(1_000_000)).expect("the older silent one makes room");
    busy(&next);
    assert!(is_evicted(&newer) && !is_evicted(&newest) && !is_evicted(&used));
    let next = connections.admit(peer(5), at(1_000_000)).expect("the other one makes room");
    busy(&next);
    assert!(is_evicted(&newest) && !is_evicted(&used));
    let _next = connections.admit(peer(6), at(1_000_000)).expect("the idle one makes room");
    assert!(is_evicted(&used));
}

#[test]
fn the_longest_idle_connection_makes_room_and_a_busy_one_does_not() {
    let connections = connections(3, 3);
    let open: Vec<_> = (0..3).map(|n| connections.admit(peer(n), at(0)).expect("there is room")).collect();
    idle_since(&open[0], 20);
    idle_since(&open[1], 10);
    busy(&open[2]);
    let _next = connections.admit(peer(9), at(0)).expect("one makes room");
    assert_eq!(open.iter().map(is_evicted).collect::<Vec<_>>(), [false, true, false]);
}

#[test]
fn a_peer_at_its_bound_makes_room_among_its_own_connections_alone() {
    let connections = connections(100, 2);
    let other = connections.admit(peer(1), at(0)).expect("there is room");
    let first = connections.admit(peer(2), at(1)).expect("there is room");
    let second = connections.admit(peer(2), at(2)).expect("there is room");
    let third = connections.admit(peer(2), at(3)).expect("its oldest makes room");
    assert!(is_evicted(&first) && !is_evicted(&second) && !is_evicted(&other));
    busy(&second);
    busy(&third);
    assert!(connections.admit(peer(2), at(1_000)).is_none(), "all of its own are busy");
    assert!(connections.admit(peer(3), at(1_000)).is_some());
}

#[test]
fn a_connection_that_had_a_request_since_the_scan_is_not_evicted() {
    let connections = connections(3, 3);
    let open: Vec<_> = (0..3).map(|n| connections.admit(peer(n), at(0)).expect("there is room")).collect();
    let _next = connections.admit(peer(7), at(0)).expect("the first makes room");
    busy(&open[1]);
    let _next = connections.admit(peer(8), at(0)).expect("the third makes room");
    assert_eq!(open.iter().map(is_evicted).collect::<Vec<_>>(), [true, false, true]);
}

#[test]
fn evicted_connections_that_do_not_end_are_bounded() {
    let connections = connections(1, 1_000);
    let mut open: Vec<_> = vec![connections.admit(peer(0), at(0)).expect("there is room")];
    while let Some(next) = connections.admit(peer(0), at(open.len() as u64)) {
        open.push(next);
        assert!(open.len() <= EVICTING_MAX + 1);
    }
    assert_eq!(open.len(), EVICTING_MAX + 1);
    open.swap_remove(0);
    assert!(connections.admit(peer(0), at(10_000)).is_some());
}

#[test]
fn ended_connections_leave_nothing_behind() {
    let connections = connections(10, 5);
    for _ in 0..3 {
        let open: Vec<_> = (0..40).filter_map(|n| connections.admit(peer(n % 4), at(n.into()))).collect();
        assert_eq!(open.len(), 40);
    }
    let table = connections.table.lock();
    assert!(table.open.is_empty() && table.evicting.is_empty() && table.per_peer.is_empty());
    assert!(table.scans.keys().all(|scope| *scope == Scope::All));
}

#[test]
fn a_full_table_is_scanned_once_for_many_connections() {
    let connections = connections(10_000, 10_000);
    let open: Vec<_> = (0..10_000_u64).map(|n| connections.admit(peer(1), at(n)).expect("room")).collect();
    let mut scans = 0;
    let mut ended = Vec::new();
    for n in 10_000..10_640_u64 {
        ended.push(connections.admit(peer(2), at(n)).expect("the oldest makes room"));
        connections.table.lock().evicting.clear();
        scans +=
            usize::from(connections.table.lock().scans[&Scope::All].candidates.len() == CANDIDATES_MAX - 1);
    }
    assert_eq!(scans, 640 / CANDIDATES_MAX);
    assert!(
        open.iter().take(640).all(|admission| !connections.table.lock().open.contains_key(&admission.number))
    );
}
