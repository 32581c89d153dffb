//! Which connection gives way, and which is refused.

use super::*;
use crate::{
    account::Refusal,
    traffic::{CONNECTION, Call, Charge},
};

impl Limits {
    /// `connections` of any peer, and no other limit that a test reaches.
    pub(crate) fn for_tests(connections: usize) -> Self {
        Self { connections, bytes: 1 << 30, runs: 8 }
    }
}

fn places(limits: Limits, open_files: fn() -> usize) -> Arc<Places> {
    Arc::new(Places { open_files, ..Places::new(limits) })
}

fn many() -> usize {
    10_000
}

fn peer(uid: u32, pid: i32) -> Peer {
    Peer { listener: 0, uid, gid: uid, pid: Some(pid).filter(|pid| *pid > 0) }
}

type Taken = (Place, Arc<Traffic>);

/// A connection of that peer, which comes at that second.
fn take(places: &Arc<Places>, peer: &Peer, second: u64) -> Result<Taken, Full> {
    places.take(peer, CancellationToken::new(), Duration::from_secs(second))
}

/// As many connections of that peer as it gets, each with a call, and why there are no more.
fn fill(places: &Arc<Places>, peer: &Peer) -> (Vec<(Taken, Call)>, Full) {
    let mut taken = Vec::new();
    loop {
        match take(places, peer, 0) {
            Ok(connection) => {
                let call = Call::of(&connection.1);
                taken.push((connection, call));
            }
            Err(full) => return (taken, full),
        }
    }
}

fn has_ended((_, traffic): &Taken) -> bool {
    traffic.end.is_cancelled()
}

fn full(limit: Limit, who: Who, most: usize) -> Full {
    Full { limit, who, most }
}

#[test]
fn the_connection_that_was_idle_for_the_longest_time_gives_way() {
    let places = places(Limits::for_tests(4), many);
    let busy = take(&places, &peer(1, 1), 0).unwrap();
    let _call = Call::of(&busy.1);
    let (first, second) = (take(&places, &peer(1, 2), 1).unwrap(), take(&places, &peer(2, 3), 2).unwrap());
    let third = take(&places, &peer(2, 4), 2).unwrap();
    let fourth = take(&places, &peer(3, 4), 3).unwrap();
    assert!(has_ended(&first) && !has_ended(&second) && !has_ended(&busy));
    let all = full(Limit::Connections, Who::All, 4);
    assert_eq!(take(&places, &peer(3, 2), 2).unwrap_err(), all, "all were in use a moment ago");
    drop(first);
    assert_eq!(places.lock().served.len(), 4, "its place was taken already");
    drop((busy, second, third, fourth));
    let table = places.lock();
    assert!(table.served.is_empty() && table.uids.is_empty() && table.processes.is_empty());
    assert!(table.leaving.is_empty());
}

#[test]
fn a_process_or_uid_with_its_share_gives_way_to_itself_and_takes_no_place_of_others() {
    let places = places(Limits::for_tests(16), many);
    let other = take(&places, &peer(2, 9), 0).unwrap();
    let idle = take(&places, &peer(1, 1), 0).unwrap();
    let (own, process) = fill(&places, &peer(1, 1));
    assert_eq!((own.len(), process), (8, full(Limit::Connections, Who::Process, 16)));
    let more = take(&places, &peer(1, 1), 9).unwrap();
    assert!(has_ended(&idle) && !has_ended(&own[0].0) && !has_ended(&other));
    let siblings = [2, 3].map(|pid| fill(&places, &peer(1, pid)));
    assert_eq!(
        siblings.each_ref().map(|(taken, full)| (taken.len(), full.who)),
        [(2, Who::Process), (1, Who::Uid)]
    );
    assert!(!has_ended(&other) && !has_ended(&more), "the idle connection of another uid");
    assert_eq!(fill(&places, &peer(3, 3)).0.len(), 2);
}

#[test]
fn peers_without_a_process_id_count_by_uid() {
    let places = places(Limits::for_tests(16), many);
    let (own, uid) = fill(&places, &peer(1, 0));
    assert_eq!((own.len(), uid), (12, full(Limit::Connections, Who::Uid, 16)));
}

#[test]
fn few_connections_leave_at_a_time_and_few_are_refused() {
    let places = places(Limits::for_tests(1000), || 72);
    let all = full(Limit::OpenFiles, Who::All, 12);
    let peers = (1_i32..=12).map(|pid| peer(pid.cast_unsigned() % 4, pid));
    let mut served: Vec<_> = peers.map(|peer| take(&places, &peer, 0).unwrap()).collect();
    assert_eq!(take(&places, &peer(5, 20), 0).unwrap_err(), all);
    served.extend([20, 21].map(|pid| take(&places, &peer(5, pid), 5).unwrap()));
    assert_eq!(take(&places, &peer(5, 22), 9).unwrap_err(), all, "two are leaving");
    drop(served.remove(0));
    assert!(take(&places, &peer(5, 22), 9).is_ok());
    let refused = [places.refuse().unwrap(), places.refuse().unwrap()];
    assert!(places.refuse().is_none());
    drop(refused);
    assert!(places.refuse().is_some());
}

#[test]
fn with_few_descriptors_a_process_and_a_uid_leave_a_quarter_of_the_places_to_others() {
    let places = places(Limits::for_tests(1000), || 72);
    let (_own, process) = fill(&places, &peer(1, 1));
    assert_eq!(process, full(Limit::OpenFiles, Who::Process, 12));
    let (_siblings, uid) = fill(&places, &peer(1, 2));
    assert_eq!(uid, full(Limit::OpenFiles, Who::Uid, 12));
    let silent = [2, 2, 3].map(|pid| take(&places, &peer(2, pid), 0).unwrap());
    assert!(!silent.iter().any(has_ended));
}

#[test]
fn bytes_count_for_the_process_and_the_uid_over_all_connections() {
    const MOST: usize = 16 << 20;
    let places = places(Limits { bytes: MOST, ..Limits::for_tests(100) }, many);
    let connections =
        [(1, 1), (1, 1), (1, 2), (2, 3)].map(|(uid, pid)| take(&places, &peer(uid, pid), 0).unwrap());
    let all = || places.all.bytes.load(Ordering::Relaxed);
    let begun = all();
    assert_eq!(begun, 4 * CONNECTION);
    let mut calls = connections.each_ref().map(|(_, traffic)| Call::of(traffic));
    let mut charge = |call: usize, mebibytes: usize| calls[call].charge().charge(mebibytes << 20);
    let bytes = |who| Err(Refusal::Full(full(Limit::Bytes, who, MOST)));
    charge(0, 8).unwrap();
    assert_eq!(charge(1, 8), Ok(()), "less than three times what remains for its uid");
    assert_eq!(charge(1, 1), bytes(Who::All));
    drop(calls);
    assert_eq!(all() - begun, 0, "all of it was given back");
    let mut calls = connections.each_ref().map(|(_, traffic)| Call::of(traffic));
    let mut charge = |call: usize, mebibytes: usize| calls[call].charge().charge(mebibytes << 20);
    charge(0, 9).unwrap();
    assert_eq!(charge(1, 1), bytes(Who::Process));
    charge(2, 3).unwrap();
    assert_eq!(charge(2, 1), bytes(Who::Uid));
    charge(3, 2).unwrap();
}

#[test]
fn ten_thousand_watches_of_one_process_and_three_hundred_clients_of_one_uid_fit() {
    const MOST: usize = 40 << 20;
    let limits = Limits { bytes: MOST, ..Limits::for_tests(4096) };
    let places_of_one = places(limits, many);
    let connections: Vec<_> = (0..10).map(|_| take(&places_of_one, &peer(1, 1), 0).unwrap()).collect();
    let watches: Vec<_> = (0..10_000).map(|number| Call::of(&connections[number % 10].1)).collect();
    for (_, traffic) in &connections {
        traffic.reserve.grow_to(traffic.used()).unwrap();
    }
    drop((watches, connections));
    for pid in [0, 300] {
        let places = places(limits, many);
        let clients =
            (0..300).map(|client| take(&places, &peer(1, if pid == 0 { 0 } else { pid + client }), 0));
        let mut clients: Vec<_> = clients.collect::<Result<_, _>>().unwrap();
        let calls: Vec<_> = clients.iter_mut().map(|(_, traffic)| Call::of(traffic)).collect();
        assert!(clients.iter().all(|(_, traffic)| traffic.reserve.grow_to(traffic.used()).is_ok()));
        drop(calls);
    }
}

#[test]
fn an_unfinished_request_gives_back_its_bytes() {
    let places = places(Limits::for_tests(10), many);
    let (_place, traffic) = take(&places, &peer(1, 1), 0).unwrap();
    let charge = Charge::unfinished(&traffic);
    charge.receive(1 << 20).unwrap();
    assert!(places.all.bytes.load(Ordering::Relaxed) >= 1 << 20);
    drop(charge);
    assert_eq!(places.all.bytes.load(Ordering::Relaxed), CONNECTION);
}

#[test]
fn connections_that_had_no_call_in_time_give_way_when_their_process_has_many() {
    let places = places(Limits::for_tests(1000), many);
    let other = take(&places, &peer(1, 2), 0).unwrap();
    let called = take(&places, &peer(1, 1), 0).unwrap();
    drop(Call::of(&called.1));
    let silent: Vec<_> = (0..SILENT).map(|_| take(&places, &peer(1, 1), 0).unwrap()).collect();
    assert!(!silent.iter().any(has_ended));
    let further: Vec<_> = (0..24).map(|_| take(&places, &peer(1, 1), 0).unwrap()).collect();
    assert!(!silent.iter().any(has_ended), "their calls may still come");
    let leaving: Vec<_> = (0..24).map(|_| take(&places, &peer(1, 1), 1).unwrap()).collect();
    assert_eq!(silent.iter().chain(&further).filter(|one| has_ended(one)).count(), leaving.len());
    assert!(has_ended(&silent[23]) && !has_ended(&silent[24]), "the oldest first");
    assert!(!has_ended(&called) && !has_ended(&other));
    let too_many = full(Limit::Silent, Who::Process, SILENT);
    assert_eq!(take(&places, &peer(1, 1), 2).unwrap_err(), too_many, "too many are leaving");
    assert!(take(&places, &peer(1, 2), 1).is_ok(), "of another process");
    drop(silent);
    assert!(take(&places, &peer(1, 1), 1).is_ok());
}

#[test]
fn a_process_gets_a_bounded_number_of_connections_before_their_calls_are_due() {
    let places = places(Limits::for_tests(1000), many);
    let silent: Vec<_> = (0..MOST_SILENT).map(|_| take(&places, &peer(1, 1), 0).unwrap()).collect();
    assert_eq!(take(&places, &peer(1, 1), 0).unwrap_err().limit, Limit::Silent);
    assert!(take(&places, &peer(1, 2), 0).is_ok());
    drop(silent);
}

#[test]
fn runs_keep_their_descriptors_however_many_connections_there_are() {
    for (open_files, runs, expected) in [
        (1_048_576, 8, (1_048_392, 48, 8)),
        (1024, 8, (840, 48, 8)),
        (256, 8, (90, 30, 8)),
        (72, 8, (12, 4, 1)),
        (0, 8, (1, 0, 1)),
        (usize::MAX, usize::MAX, (usize::MAX / 2 - 67, 48, (usize::MAX - 40) / 2 / 12)),
    ] {
        let Budget { connections, spare, runs } = Budget::of(open_files, runs);
        assert_eq!((connections, spare, runs), expected, "{open_files}");
    }
}
