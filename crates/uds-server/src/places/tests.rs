//! Which connection gives way, and which is refused.

use super::*;

impl ConnectionLimits {
    /// `connections` of any peer, and no other limit that a test reaches.
    pub(crate) fn for_tests(connections: usize) -> Self {
        Self {
            connections,
            connections_per_uid: connections,
            connections_per_process: connections,
            bytes_per_uid: 1 << 20,
            bytes_per_process: 1 << 20,
            watches_per_connection: 10,
            plugin_runs: 8,
        }
    }
}

fn places(limits: ConnectionLimits) -> Arc<Places> {
    Arc::new(Places { limits, open_files: || 10_000, taken: Mutex::default(), statuses: |_| unreachable!() })
}

fn peer(uid: u32, pid: i32) -> Peer {
    Peer { listener: 0, uid, gid: uid, pid: Some(pid).filter(|pid| *pid > 0) }
}

/// A connection of that peer, which comes at that second.
fn take(places: &Arc<Places>, peer: &Peer, second: u64) -> Result<(Place, Arc<Traffic>), Full> {
    places.take(peer, CancellationToken::new(), Duration::from_secs(second))
}

fn has_ended((_, traffic): &(Place, Arc<Traffic>)) -> bool {
    traffic.end().is_cancelled()
}

#[test]
fn the_connection_that_was_idle_for_the_longest_time_gives_way() {
    let places = places(ConnectionLimits::for_tests(3));
    let busy = take(&places, &peer(1, 1), 0).unwrap();
    let _call = crate::traffic::Call::of(&busy.1);
    let (first, second) = (take(&places, &peer(1, 2), 1).unwrap(), take(&places, &peer(1, 3), 2).unwrap());
    let third = take(&places, &peer(2, 4), 3).unwrap();
    assert!(has_ended(&first) && !has_ended(&second) && !has_ended(&busy));
    assert_eq!(
        take(&places, &peer(1, 2), 2).unwrap_err(),
        Full::Connections(3),
        "all were in use a moment ago"
    );
    drop(first);
    assert_eq!(places.lock().served.len(), 3, "its place was taken already");
    drop((busy, second, third));
    let taken = places.lock();
    assert!(taken.served.is_empty() && taken.uids.is_empty() && taken.processes.is_empty());
    assert!(taken.leaving.is_empty());
}

#[test]
fn a_process_or_uid_with_its_share_gives_way_to_itself_and_takes_no_place_of_others() {
    let limits = ConnectionLimits {
        connections_per_process: 2,
        connections_per_uid: 3,
        ..ConnectionLimits::for_tests(10)
    };
    let places = places(limits);
    let other = take(&places, &peer(2, 9), 0).unwrap();
    let own = [1, 2].map(|second| take(&places, &peer(1, 1), second).unwrap());
    assert_eq!(take(&places, &peer(1, 1), 1).unwrap_err(), Full::Process(2));
    let more = take(&places, &peer(1, 1), 9).unwrap();
    assert!(has_ended(&own[0]) && !has_ended(&own[1]) && !has_ended(&other));
    let sibling = take(&places, &peer(1, 2), 9).unwrap();
    let calls: Vec<_> =
        [&own[1], &more, &sibling].iter().map(|one| crate::traffic::Call::of(&one.1)).collect();
    assert_eq!(take(&places, &peer(1, 3), 20).unwrap_err(), Full::Uid(3));
    assert!(!has_ended(&other), "the idle connection of another uid");
    drop(calls);
}

#[test]
fn peers_without_a_process_id_count_by_uid() {
    let limits = ConnectionLimits::for_tests(10);
    let places = places(ConnectionLimits { connections_per_uid: 2, connections_per_process: 1, ..limits });
    let _served = [(); 2].map(|()| take(&places, &peer(1, 0), 0).unwrap());
    assert_eq!(take(&places, &peer(1, 0), 0).unwrap_err(), Full::Uid(2));
    let _other = take(&places, &peer(2, 7), 0).unwrap();
    assert_eq!(take(&places, &peer(2, 7), 0).unwrap_err(), Full::Process(1));
}

#[test]
fn few_connections_leave_at_a_time_and_few_are_refused() {
    let limits = ConnectionLimits::for_tests(1000);
    let places =
        Arc::new(Places { limits, open_files: || 72, taken: Mutex::default(), statuses: |_| unreachable!() });
    let mut served: Vec<_> =
        (1_i32..=12).map(|pid| take(&places, &peer(pid.cast_unsigned() % 2, pid), 0).unwrap()).collect();
    assert_eq!(take(&places, &peer(3, 20), 0).unwrap_err(), Full::OpenFiles(12));
    served.extend([20, 21].map(|pid| take(&places, &peer(3, pid), 5).unwrap()));
    assert_eq!(take(&places, &peer(3, 22), 9).unwrap_err(), Full::OpenFiles(12), "two are leaving");
    drop(served.remove(0));
    assert!(take(&places, &peer(3, 22), 9).is_ok());
    let refused = [places.refuse().unwrap(), places.refuse().unwrap()];
    assert!(places.refuse().is_none());
    drop(refused);
    assert!(places.refuse().is_some());
}

#[test]
fn bytes_count_for_the_process_and_the_uid_over_all_connections() {
    let limits =
        ConnectionLimits { bytes_per_process: 10, bytes_per_uid: 15, ..ConnectionLimits::for_tests(10) };
    let places = places(limits);
    let connections =
        [(1, 1), (1, 1), (1, 2), (2, 3)].map(|(uid, pid)| take(&places, &peer(uid, pid), 0).unwrap());
    let request = |connection: usize| crate::traffic::Unfinished::new(&connections[connection].1);
    let mut requests = [0, 1, 2, 3].map(request);
    requests[0].grow_to(8).unwrap();
    assert_eq!(requests[1].grow_to(8).unwrap_err().name, "limits.bytesPerProcess");
    assert_eq!(requests[2].grow_to(1).unwrap_err().name, "limits.bytesPerUid");
    requests[3].grow_to(8).unwrap();
    drop(requests);
    assert!(connections.iter().all(|(_, traffic)| traffic.check_bytes().is_ok()));
}

#[test]
fn connections_that_had_no_call_in_time_give_way_when_their_process_has_many() {
    let places = places(ConnectionLimits::for_tests(1000));
    let other = take(&places, &peer(1, 2), 0).unwrap();
    let called = take(&places, &peer(1, 1), 0).unwrap();
    drop(crate::traffic::Call::of(&called.1));
    let silent: Vec<_> = (0..SILENT).map(|_| take(&places, &peer(1, 1), 0).unwrap()).collect();
    assert!(!silent.iter().any(has_ended));
    let further: Vec<_> = (0..24).map(|_| take(&places, &peer(1, 1), 0).unwrap()).collect();
    assert!(!silent.iter().any(has_ended), "their calls may still come");
    let leaving: Vec<_> = (0..24).map(|_| take(&places, &peer(1, 1), 1).unwrap()).collect();
    assert_eq!(silent.iter().chain(&further).filter(|one| has_ended(one)).count(), leaving.len());
    assert!(has_ended(&silent[23]) && !has_ended(&silent[24]), "the oldest first");
    assert!(!has_ended(&called) && !has_ended(&other));
    assert_eq!(take(&places, &peer(1, 1), 2).unwrap_err(), Full::Silent(SILENT), "too many are leaving");
    assert!(take(&places, &peer(1, 2), 1).is_ok(), "of another process");
    drop(silent);
    assert!(take(&places, &peer(1, 1), 1).is_ok());
}

#[test]
fn with_few_descriptors_a_process_and_a_uid_leave_a_quarter_of_the_places_to_others() {
    let limits = ConnectionLimits::for_tests(1000);
    let places =
        Arc::new(Places { limits, open_files: || 72, taken: Mutex::default(), statuses: |_| unreachable!() });
    let mut connections = Vec::new();
    for _ in 0..9 {
        let connection = take(&places, &peer(1, 1), 0).unwrap();
        let call = crate::traffic::Call::of(&connection.1);
        connections.push((connection, call));
    }
    assert_eq!(take(&places, &peer(1, 1), 9).unwrap_err(), Full::OpenFiles(9));
    assert_eq!(take(&places, &peer(1, 2), 9).unwrap_err(), Full::OpenFiles(9), "nor its uid");
    let silent = [2, 2, 2].map(|pid| take(&places, &peer(2, pid), 0).unwrap());
    assert!(!silent.iter().any(has_ended));
}
