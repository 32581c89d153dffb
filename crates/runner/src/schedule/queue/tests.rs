mod properties;
mod simulated;

use std::num::NonZeroUsize;

use super::*;
use crate::schedule::{throttling::Throttling, turns::BROKER};
use credbroker_plugin::PluginKey;

const THROTTLED: Outcome = Outcome::Throttled(Throttling { retry_after: None });
const NOW: Duration = Duration::from_secs(1000);

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn issuer(name: &str, rate: usize, concurrency: usize) -> Issuer {
    let count = |count| NonZeroUsize::new(count).unwrap();
    Issuer { name: name.into(), runs_per_second: count(rate), concurrency: count(concurrency) }
}

fn waited(peer: u64) -> Urgency {
    Urgency::Waited { peer }
}

/// What defines the run of that key: the configuration alone.
fn configured(key: u64) -> RunSource {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&key.to_be_bytes());
    RunSource::Configuration(PluginKey(bytes))
}

impl Queue {
    /// Adds a run of another key each time.
    fn enter_any(&mut self, provider: &Arc<str>, issuer: &Issuer, urgency: Urgency) -> u64 {
        let source = configured(self.next);
        self.enter(provider, issuer, (urgency, source))
    }

    /// Starts a run of `issuer` that is throttled.
    fn throttle_once(&mut self, issuer: &Issuer, now: Duration) -> Option<(Arc<str>, PaceChange)> {
        let id = self.enter_any(&"throttled".into(), issuer, waited(99));
        assert_eq!(self.dispatch(now), [(id, Ok(()))]);
        self.finish(id, THROTTLED, 0.5, now)
    }
}

/// A queue in which each provider has its own issuer, with a rate that delays no run.
struct Setup {
    queue: Queue,
    now: Duration,
    concurrency: usize,
    names: HashMap<u64, String>,
}

impl Setup {
    fn new(runs: usize, concurrency: usize) -> Self {
        Self { queue: Queue::new(runs), now: NOW, concurrency, names: HashMap::new() }
    }

    /// Enters runs with the name of their provider and a number.
    fn enter(&mut self, provider: &str, urgency: Urgency, count: usize) -> Vec<u64> {
        let issuer = issuer(provider, 100_000, self.concurrency);
        let enter = |number| {
            let id = self.queue.enter_any(&provider.into(), &issuer, urgency);
            self.names.insert(id, format!("{provider}{number}"));
            id
        };
        (0..count).map(enter).collect()
    }

    /// Enters one run with the name `name`.
    fn one(&mut self, provider: &str, urgency: Urgency, name: &str) -> u64 {
        let id = self.enter(provider, urgency, 1)[0];
        self.names.insert(id, name.to_owned());
        id
    }

    /// The runs that start a second later.
    fn started(&mut self) -> Vec<u64> {
        self.now += secs(1);
        let started = |(id, answer): Answer| answer.is_ok().then_some(id);
        self.queue.dispatch(self.now).into_iter().filter_map(started).collect()
    }

    /// The order in which all waiting runs start, after the started ones have ended.
    fn order(&mut self) -> String {
        let mut order = Vec::new();
        let mut running: Vec<_> = self.queue.started.keys().copied().collect();
        loop {
            for id in running {
                self.queue.finish(id, Outcome::Success, 0.5, self.now);
            }
            running = self.started();
            if running.is_empty() {
                return order.join(" ");
            }
            order.extend(running.iter().map(|id| self.names[id].clone()));
        }
    }
}

#[test]
fn a_run_of_an_idle_broker_starts_at_once() {
    for urgency in [Urgency::Background, Urgency::Urgent { uid: None }, waited(1), Urgency::Forced] {
        let mut setup = Setup::new(1, 1);
        let id = setup.enter("a", urgency, 1);
        assert_eq!(setup.started(), id);
        assert_eq!(setup.queue.next_wake(setup.now), None);
    }
}

#[test]
fn runs_with_a_waiting_caller_start_before_background_runs() {
    let mut setup = Setup::new(1, 1);
    setup.enter("busy", waited(1), 1);
    setup.started();
    setup.one("a", Urgency::Background, "refresh");
    setup.one("a", Urgency::Background, "prewarm");
    setup.one("b", waited(1), "waited");
    setup.one("a", Urgency::Urgent { uid: None }, "urgent");
    setup.one("c", Urgency::Forced, "forced");
    assert_eq!(setup.order(), "waited urgent forced refresh prewarm");
}

/// The processes of one uid, and within a process its issuers.
#[test]
fn turns_go_to_processes_and_then_to_issuers() {
    let mut setup = Setup::new(1, 1);
    setup.enter("busy", waited(1), 1);
    setup.started();
    for (provider, peer, name) in [
        ("a", 1, "a1"),
        ("a", 1, "a1'"),
        ("a", 1, "a1''"),
        ("a", 2, "a2"),
        ("b", 1, "b1"),
        ("b", 1, "b1'"),
        ("a", 2, "a2'"),
        ("c", 3, "c3"),
    ] {
        setup.one(provider, waited(peer), name);
    }
    assert_eq!(setup.order(), "a1 a2 c3 b1 a2' b1' a1' a1''");
}

/// A uid gains nothing by the number of issuers at which it waits.
#[test]
fn with_one_slot_turns_alternate_by_uid_at_whichever_issuers() {
    let mut setup = Setup::new(1, 1);
    setup.enter("busy", waited(9 << 32), 1);
    setup.started();
    for provider in ["a", "b", "c", "d"] {
        setup.one(provider, waited(1 << 32 | 1), "x");
        setup.one(provider, waited(1 << 32 | 2), "x");
    }
    for _ in 0..3 {
        setup.one("e", waited(2 << 32 | 1), "y");
    }
    assert_eq!(setup.order(), "x y x y x y x x x x x");
}

#[test]
fn requests_of_the_broker_take_turns_like_those_of_a_uid() {
    let mut setup = Setup::new(1, 1);
    setup.enter("busy", waited(9 << 32), 1);
    setup.started();
    for process in 0..3 {
        setup.one("a", waited(process), "root");
        setup.one("b", waited(1 << 32 | process), "user");
    }
    for _ in 0..2 {
        setup.one("hub", waited(BROKER), "hub");
    }
    assert_eq!(setup.order(), "root user hub root user hub root user");
}

#[test]
fn urgent_renewals_take_the_turns_of_the_uid_that_used_them_last() {
    for (uid, order) in [
        (None, "new1 other1 held1 new2 other2 held2 new3 held3"),
        // As if they were another process of it.
        (Some(1), "new1 other1 held1 other2 new2 held2 new3 held3"),
    ] {
        let mut setup = Setup::new(1, 1);
        setup.enter("busy", waited(9 << 32), 1);
        setup.started();
        for number in 1..=3 {
            setup.one("a", waited(1 << 32 | 7), &format!("new{number}"));
        }
        for number in 1..=2 {
            setup.one("a", waited(2 << 32 | 7), &format!("other{number}"));
        }
        for number in 1..=3 {
            setup.one("a", Urgency::Urgent { uid }, &format!("held{number}"));
        }
        assert_eq!(setup.order(), order);
    }
}

#[test]
fn background_runs_rotate_by_provider() {
    let mut setup = Setup::new(1, 1);
    setup.enter("busy", waited(1), 1);
    setup.started();
    setup.enter("a", Urgency::Background, 3);
    setup.enter("b", Urgency::Background, 2);
    assert_eq!(setup.order(), "a0 b0 a1 b1 a2");
}

#[test]
fn a_busy_provider_leaves_slots_to_the_others() {
    let mut setup = Setup::new(3, 1);
    let busy = setup.enter("busy", waited(1), 2);
    let other = setup.enter("other", waited(1), 1);
    assert_eq!(setup.started(), [busy[0], other[0]]);
    assert_eq!(setup.queue.waits_for(busy[1], None, setup.now), Some((Cause::Concurrency(1), 0)));
    setup.queue.finish(busy[0], Outcome::Success, 0.5, setup.now);
    assert_eq!(setup.started(), [busy[1]]);
}

#[test]
fn the_total_number_of_runs_is_limited() {
    let mut setup = Setup::new(2, 2);
    let [a, b, c] = ["a", "b", "c"].map(|provider| setup.enter(provider, waited(1), 1)[0]);
    assert_eq!(setup.started(), [a, b]);
    assert_eq!(setup.queue.waits_for(c, None, setup.now), Some((Cause::Slots(2), 0)));
    assert_eq!(setup.queue.next_wake(setup.now), None, "no time is waited for");
    setup.queue.finish(a, Outcome::Unknown, 0.5, setup.now);
    assert_eq!(setup.started(), [c]);
}

#[test]
fn background_runs_leave_one_slot_free() {
    let mut setup = Setup::new(3, 3);
    let refreshes = setup.enter("a", Urgency::Background, 3);
    assert_eq!([setup.started(), setup.started()].concat(), refreshes[..2]);
    assert!(setup.started().is_empty());
    let caller = setup.enter("a", waited(1), 1);
    assert_eq!(setup.started(), caller);
    setup.queue.finish(refreshes[0], Outcome::Success, 0.5, setup.now);
    assert_eq!(setup.started(), refreshes[2..], "two others run, but only one of them is a background run");
}

#[test]
fn a_run_that_leaves_the_queue_delays_no_other() {
    let mut setup = Setup::new(1, 1);
    let busy = setup.enter("a", waited(1), 1)[0];
    setup.started();
    let [first, second, third] = ["1", "2", "3"].map(|name| setup.one("a", waited(1), name));
    assert_eq!(setup.queue.waits_for(third, None, setup.now), Some((Cause::Concurrency(1), 2)));
    setup.queue.remove(first);
    setup.queue.remove(third);
    assert_eq!(setup.queue.waits_for(third, None, setup.now), None);
    setup.queue.remove(busy);
    assert!(setup.started().is_empty(), "what has started does not leave, it ends");
    setup.queue.finish(busy, Outcome::Success, 0.5, setup.now);
    assert_eq!(setup.started(), [second]);
}

#[test]
fn a_queued_run_that_a_caller_joins_moves_ahead_and_keeps_its_time_of_entry() {
    let mut setup = Setup::new(1, 1);
    setup.enter("busy", waited(1), 1);
    setup.started();
    let [refresh, other] = ["refresh", "other"].map(|name| setup.one("a", Urgency::Background, name));
    setup.one("a", waited(1), "waited");
    setup.queue.join(refresh, 1, setup.now).unwrap();
    assert_eq!(
        setup.queue.waits_for(refresh, None, setup.now).unwrap().1,
        2,
        "with all runs of the provider"
    );
    assert_eq!(setup.queue.waits_for(other, None, setup.now).unwrap().1, 2);
    assert_eq!(setup.order(), "refresh waited other");
    let mut setup = Setup::new(1, 1);
    setup.enter("busy", waited(1), 1);
    setup.started();
    let given_up = setup.one("a", waited(1), "given up");
    setup.one("a", waited(2), "waited");
    setup.queue.part(given_up, 1);
    assert_eq!(setup.order(), "waited given up");
}

#[test]
fn providers_of_one_issuer_share_its_budget() {
    let mut queue = Queue::new(100);
    let shared = issuer("idp", 3, 50);
    let ids: Vec<_> = ["a", "b", "a", "b", "a"]
        .map(|provider| queue.enter_any(&provider.into(), &shared, waited(1)))
        .into();
    let started: Vec<_> = queue.dispatch(NOW).into_iter().map(|(id, _)| id).collect();
    assert_eq!(started, ids[..3]);
    assert_eq!(queue.waits_for(ids[3], None, NOW), Some((Cause::Rate(3), 0)));
    assert_eq!(queue.next_wake(NOW), Some(NOW + secs(1)));
    assert_eq!(queue.dispatch(NOW + ms(999)), []);
    assert_eq!(queue.dispatch(NOW + secs(1)).len(), 2);
    assert_eq!(queue.next_wake(NOW + secs(1)), None);
}

#[test]
fn a_pause_refuses_waiting_callers_and_keeps_the_other_runs() {
    let mut queue = Queue::new(8);
    let (idp, other) = (issuer("idp", 10, 1), issuer("other", 10, 1));
    assert_eq!(queue.throttle_once(&idp, NOW), None);
    let mut enter = |provider: &str, issuer, urgency| queue.enter_any(&provider.into(), issuer, urgency);
    let running = enter("a", &idp, waited(1));
    assert_eq!(queue.dispatch(NOW), [(running, Ok(()))]);
    let mut enter = |provider: &str, issuer, urgency| queue.enter_any(&provider.into(), issuer, urgency);
    let waiting = [enter("a", &idp, waited(1)), enter("b", &idp, waited(2))];
    let kept = [enter("a", &idp, Urgency::Urgent { uid: None }), enter("a", &idp, Urgency::Background)];
    enter("c", &other, waited(1));
    assert_eq!(queue.dispatch(NOW).len(), 1);
    let change = queue.finish(running, THROTTLED, 0.5, NOW);
    assert_eq!(change, Some(("idp".into(), PaceChange::Paused(secs(60)))));
    let throttled = Err(secs(60));
    let mut answers = queue.dispatch(NOW);
    answers.sort_unstable_by_key(|(id, _)| *id);
    assert_eq!(answers, waiting.map(|id| (id, throttled)));
    assert_eq!((queue.paused("idp", NOW), queue.paused("other", NOW)), (Some(secs(60)), None));
    // A later caller is refused immediately, also if it joins a queued run.
    let later = NOW + secs(10);
    let late = queue.enter_any(&"b".into(), &idp, waited(3));
    let throttled = Err(secs(50));
    assert_eq!(queue.dispatch(later), [(late, throttled)]);
    assert_eq!(queue.join(kept[1], 4, later), Err(secs(50)), "it stays queued");
    assert_eq!(queue.waits_for(kept[0], None, later), Some((Cause::Paused(secs(50)), 1)));
    // A forced run starts during the pause.
    let forced = queue.enter_any(&"a".into(), &idp, Urgency::Forced);
    assert_eq!(queue.dispatch(later), [(forced, Ok(()))]);
    queue.finish(forced, Outcome::Reached, 0.5, later);
    // One run in fifteen seconds probes the issuer.
    assert_eq!(queue.next_wake(later), Some(NOW + secs(15)));
    assert_eq!(queue.dispatch(NOW + secs(15)), [(kept[0], Ok(()))]);
    queue.finish(kept[0], THROTTLED, 0.5, NOW + secs(16));
    assert_eq!(queue.paused("idp", NOW + secs(16)), Some(secs(60)), "it lasts longer");
    assert_eq!(queue.next_wake(NOW + secs(16)), Some(NOW + secs(30)));
    assert_eq!(queue.dispatch(NOW + secs(30)), [(kept[1], Ok(()))]);
    queue.finish(kept[1], Outcome::Success, 0.5, NOW + secs(31));
    assert_eq!((queue.paused("idp", NOW + secs(31)), queue.next_wake(NOW + secs(31))), (None, None));
}

#[test]
fn the_probe_is_a_run_with_a_waiting_caller_if_there_is_one() {
    let mut queue = Queue::new(1);
    let (idp, other) = (issuer("idp", 10, 4), issuer("other", 10, 4));
    queue.throttle_once(&idp, NOW);
    let first = queue.enter_any(&"a".into(), &idp, waited(1));
    queue.dispatch(NOW);
    queue.finish(first, THROTTLED, 0.5, NOW);
    queue.enter_any(&"a".into(), &idp, Urgency::Background);
    let busy = queue.enter_any(&"b".into(), &other, waited(1));
    queue.dispatch(NOW);
    let later = NOW + secs(60);
    let caller = queue.enter_any(&"a".into(), &idp, waited(1));
    assert_eq!(queue.dispatch(later), []);
    queue.finish(busy, Outcome::Success, 0.5, later);
    assert_eq!(queue.dispatch(later), [(caller, Ok(()))]);
}

#[test]
fn ten_thousand_queued_runs_start_or_leave_and_nothing_remains() {
    let mut setup = Setup::new(4, 4);
    let ids: Vec<_> = (0..10_000).flat_map(|peer| setup.enter("a", waited(peer % 100), 1)).collect();
    assert_eq!(setup.started().len(), 4);
    for id in ids.iter().skip(4).step_by(2) {
        setup.queue.remove(*id);
    }
    assert_eq!(setup.order().split(' ').count(), 4998);
    let queue = &setup.queue;
    assert!(queue.waiting.is_empty() && queue.started.is_empty() && queue.next_wake(setup.now).is_none());
}

#[test]
fn a_share_applies_while_another_process_or_another_uid_waits() {
    let [one, sibling, other] = [1 << 32 | 1, 1 << 32 | 2, 2 << 32 | 1].map(waited);
    for (others, runs, cause) in [
        (&[][..], 8, Cause::Slots(9)),
        (&[sibling], 7, Cause::ProcessShare(7)),
        (&[other], 6, Cause::UidShare(6)),
        (&[sibling, other], 5, Cause::ProcessShare(5)),
    ] {
        let mut setup = Setup::new(9, 9);
        // The others wait for the only place of an issuer.
        let narrow = issuer("narrow", 100_000, 1);
        let mut enter = |urgency| {
            let id = setup.queue.enter_any(&"narrow".into(), &narrow, urgency);
            (id, setup.started())
        };
        enter(Urgency::Background);
        let others: Vec<_> = others.iter().map(|urgency| enter(*urgency).0).collect();
        let ids = setup.enter("a", one, 9);
        assert_eq!(setup.started(), ids[..runs]);
        assert_eq!(setup.queue.waits_for(ids[8], None, setup.now).unwrap().0, cause);
        if others.len() == 2 {
            let more = setup.enter("a", sibling, 2);
            assert_eq!(setup.started(), more[..1], "the uid has six then");
            let cause = setup.queue.waits_for(more[1], None, setup.now).unwrap().0;
            assert_eq!(cause, Cause::UidShare(6));
            for id in &more {
                setup.queue.remove(*id);
            }
            setup.queue.finish(more[0], Outcome::Success, 0.5, setup.now);
        }
        for id in others {
            setup.queue.remove(id);
        }
        assert_eq!(setup.started(), ids[runs..8], "nothing else waits");
    }
}

#[test]
fn limits_of_a_newer_configuration_apply_to_the_runs_that_wait() {
    let mut setup = Setup::new(1, 1);
    let a = setup.enter("a", waited(1), 3);
    let b = setup.enter("b", waited(1), 1);
    assert_eq!(setup.started(), a[..1], "one slot");
    let newer = |rate, concurrency| [Arc::new(issuer("a", rate, concurrency))];
    setup.queue.set_limits(10, newer(100_000, 2));
    assert_eq!(setup.started(), [b[0], a[1]], "more slots, and two runs of `a` at a time");
    setup.queue.set_limits(10, newer(100_000, 1));
    for id in [a[0], a[1]] {
        assert_eq!(setup.started(), [0; 0], "runs that have started go on");
        setup.queue.finish(id, Outcome::Success, 0.5, setup.now);
    }
    assert_eq!(setup.started(), a[2..]);
}

#[test]
fn limits_of_a_newer_configuration_apply_to_issuers_that_are_new_to_the_queue() {
    let mut setup = Setup::new(10, 1);
    setup.queue.set_limits(10, [Arc::new(issuer("a", 100_000, 3))]);
    assert_eq!(setup.enter("a", waited(1), 5)[..3], setup.started(), "the provider names the earlier limit");
}

#[test]
fn a_run_that_waits_for_a_person_frees_its_slot_and_its_issuer() {
    let mut setup = Setup::new(1, 1);
    setup.queue.interactive = 1;
    let ids = setup.enter("a", waited(1), 3);
    assert_eq!(setup.started(), ids[..1]);
    assert!(setup.started().is_empty());
    assert!(setup.queue.step_aside(ids[0]));
    assert_eq!(setup.started(), ids[1..2], "although slots and issuer allow one run");
    assert!(!setup.queue.step_aside(ids[1]), "one may wait for a user");
    assert!(!setup.queue.step_aside(ids[2]), "it has not started");
    setup.queue.finish(ids[0], Outcome::Success, 0.5, setup.now);
    assert!(setup.started().is_empty(), "the end of that run frees nothing again");
    assert!(setup.queue.step_aside(ids[1]), "its place is free");
    assert_eq!(setup.started(), ids[2..]);
    for id in &ids[1..] {
        setup.queue.finish(*id, Outcome::Success, 0.5, setup.now);
    }
    assert!(setup.queue.started.is_empty());
    let next = setup.enter("a", waited(1), 2);
    assert_eq!(setup.started(), next[..1]);
}

#[test]
fn a_throttled_run_that_waited_for_a_person_pauses_its_issuer() {
    let mut setup = Setup::new(2, 2);
    setup.queue.interactive = 1;
    setup.queue.throttle_once(&issuer("a", 100_000, 2), setup.now);
    let ids = setup.enter("a", Urgency::Background, 1);
    assert_eq!(setup.started(), ids);
    assert!(setup.queue.step_aside(ids[0]));
    setup.queue.finish(ids[0], THROTTLED, 0.5, setup.now);
    assert!(setup.queue.paused("a", setup.now).is_some());
}

/// Eight slots. A process has six runs, which is its share while another one waits, and two others have one each. At
/// the issuer of one of them, a run waits.
fn full() -> (Setup, [u64; 3]) {
    let mut setup = Setup::new(8, 8);
    let held = setup.enter("a", waited(1), 6);
    let other = setup.one("b", waited(3), "other");
    let narrow = issuer("narrow", 100_000, 1);
    let ids = [(); 2].map(|()| setup.queue.enter_any(&"narrow".into(), &narrow, waited(9)));
    assert_eq!(setup.started().len(), 8);
    (setup, [held[0], other, ids[1]])
}

#[test]
fn a_queued_run_that_a_process_at_its_share_joins_starts_in_its_first_turn() {
    for joins in [[1, 1], [1, 4], [4, 1]] {
        let (mut setup, [_, other, _]) = full();
        let run = setup.one("c", waited(2), "joined");
        for peer in joins {
            setup.queue.join(run, peer, setup.now).unwrap();
        }
        setup.queue.finish(other, Outcome::Success, 0.5, setup.now);
        assert_eq!(setup.started(), [run], "{joins:?}");
        assert_eq!(setup.queue.started[&run].1.party, Party::peer(2), "it counts to whom it started for");
    }
}

#[test]
fn a_run_of_the_broker_that_a_process_at_its_share_joins_keeps_its_place() {
    for urgency in [Urgency::Urgent { uid: None }, Urgency::Background, Urgency::Forced] {
        let (mut setup, [_, other, _]) = full();
        let run = setup.one("c", urgency, "joined");
        setup.queue.join(run, 1, setup.now).unwrap();
        setup.queue.finish(other, Outcome::Success, 0.5, setup.now);
        assert_eq!(setup.started(), [run], "{urgency:?}");
        let broker = Party { group: None, sender: None, process: None };
        assert_eq!(setup.queue.started[&run].1.party, broker, "{urgency:?}");
    }
}

#[test]
fn a_run_waits_for_each_of_its_callers_until_the_last_one_leaves() {
    let (mut setup, [held, other, waits]) = full();
    let run = setup.one("c", waited(1), "joined");
    setup.queue.join(run, 1, setup.now).unwrap();
    setup.queue.join(run, 2, setup.now).unwrap();
    assert_eq!(setup.queue.waits_for(run, Some(1), setup.now), Some((Cause::Slots(8), 0)));
    setup.queue.part(run, 2);
    setup.queue.part(run, 5); // who never joined
    setup.queue.part(run, 1);
    setup.queue.finish(other, Outcome::Success, 0.5, setup.now);
    assert!(setup.started().is_empty(), "one caller of the process at its share still waits");
    assert_eq!(setup.queue.waits_for(run, Some(1), setup.now), Some((Cause::ProcessShare(6), 0)));
    setup.queue.join(run, 3, setup.now).unwrap();
    setup.queue.part(run, 3);
    setup.queue.part(run, 1);
    assert_eq!(setup.started(), [run], "it is background work, of no process");
    setup.queue.remove(waits);
    setup.queue.finish(held, Outcome::Success, 0.5, setup.now);
    setup.queue.finish(run, Outcome::Success, 0.5, setup.now);
    assert!(setup.queue.waiting.is_empty() && setup.queue.next_wake(setup.now).is_none());
}

#[test]
fn a_caller_who_comes_when_a_probe_is_due_is_the_probe_unless_a_renewal_waits() {
    for (has_renewal, started) in [(false, 1), (true, 0)] {
        let mut queue = Queue::new(8);
        let idp = issuer("idp", 10, 4);
        queue.throttle_once(&idp, NOW);
        queue.throttle_once(&idp, NOW);
        let at = NOW + secs(15);
        let renewal = has_renewal.then(|| queue.enter_any(&"a".into(), &idp, Urgency::Background));
        let callers = [1, 2].map(|peer| queue.enter_any(&"a".into(), &idp, waited(peer)));
        let mut answers = queue.dispatch(at);
        answers.sort_unstable_by_key(|(id, _)| *id);
        let throttled = Err(secs(45));
        let expected: Vec<_> = renewal
            .map(|renewal| (renewal, Ok(())))
            .into_iter()
            .chain(
                callers
                    .iter()
                    .enumerate()
                    .map(|(index, id)| (*id, if index < started { Ok(()) } else { throttled })),
            )
            .collect();
        assert_eq!(answers, expected);
    }
}

#[test]
fn a_caller_of_the_uid_of_the_last_probe_or_at_its_share_is_not_the_probe() {
    let mut queue = Queue::new(8);
    let (idp, other, narrow) = (issuer("idp", 10, 4), issuer("other", 10, 6), issuer("narrow", 10, 1));
    let peer = |uid: u32| u64::from(uid) << 32 | 7;
    let sent = |uid| (waited(peer(uid)), RunSource::Others { uid: Some(uid) });
    queue.throttle_once(&idp, NOW);
    let throttled = queue.enter(&"a".into(), &idp, sent(1));
    assert_eq!(queue.dispatch(NOW), [(throttled, Ok(()))]);
    queue.finish(throttled, THROTTLED, 0.5, NOW);
    let busy = [(); 6].map(|()| queue.enter(&"b".into(), &other, sent(2)));
    let waiting = [(); 2].map(|()| queue.enter(&"c".into(), &narrow, sent(4)));
    assert_eq!(queue.dispatch(NOW).len(), busy.len() + 1);
    assert!(queue.waits_for(waiting[1], None, NOW).is_some(), "so a uid has a share");
    for (uid, answer) in [(1, Err(secs(45))), (2, Err(secs(45))), (3, Ok(()))] {
        let run = queue.enter(&"a".into(), &idp, sent(uid));
        assert_eq!(queue.dispatch(NOW + secs(15)), [(run, answer)], "{uid}");
    }
}

#[test]
fn each_caller_of_a_run_gets_its_own_reason() {
    let mut queue = Queue::new(8);
    let (idp, other) = (issuer("idp", 10, 4), issuer("other", 10, 6));
    let peer = |uid: u32| u64::from(uid) << 32 | 7;
    let sent = |uid| (waited(peer(uid)), RunSource::Others { uid: Some(uid) });
    queue.throttle_once(&idp, NOW);
    queue.throttle_once(&idp, NOW);
    let later = NOW + secs(60);
    let probe = queue.enter(&"a".into(), &idp, sent(1));
    assert_eq!(queue.dispatch(later), [(probe, Ok(()))]);
    queue.finish(probe, Outcome::Unknown, 0.5, later);
    let busy = [(); 6].map(|()| queue.enter(&"b".into(), &other, sent(2)));
    assert_eq!(queue.dispatch(later).len(), busy.len());
    let run = queue.enter(&"a".into(), &idp, sent(1));
    queue.join(run, peer(2), later).unwrap();
    assert_eq!(queue.dispatch(later), []);
    for (uid, cause) in [(1, Cause::Probe), (2, Cause::UidShare(6))] {
        assert_eq!(queue.waits_for(run, Some(peer(uid)), later), Some((cause, 0)));
    }
}

#[test]
fn renewals_of_other_uids_pass_those_of_the_last_probe() {
    let mut queue = Queue::new(8);
    let idp = issuer("idp", 10, 4);
    queue.throttle_once(&idp, NOW);
    queue.throttle_once(&idp, NOW);
    let sent = |uid| RunSource::Others { uid: Some(uid) };
    let mut enter = |uid| queue.enter(&"a".into(), &idp, (Urgency::Background, sent(uid)));
    let of_one = [(); 20].map(|()| enter(1));
    let of_other = enter(2);
    let mut at = NOW;
    let mut order = Vec::new();
    while order.len() < 4 {
        at = queue.next_wake(at).expect("a time");
        assert!(at <= NOW + secs(75), "{at:?}");
        for (id, answer) in queue.dispatch(at) {
            assert_eq!(answer, Ok(()));
            order.push(id);
            queue.finish(id, Outcome::Unknown, 0.5, at);
        }
    }
    assert_eq!(order, [of_one[0], of_other, of_one[1], of_one[2]]);
    assert_eq!(at, NOW + secs(75), "no other uid has a run for the probe of a minute");
}

/// At one issuer, a uid gains nothing by its number of processes, or of providers.
#[test]
fn a_uid_with_many_processes_and_providers_has_the_turns_of_one() {
    let mut setup = Setup::new(8, 1);
    let shared = issuer("idp", 100_000, 1);
    let mut enter = |provider: &str, peer: u64, name: &str| {
        let id = setup.queue.enter_any(&provider.into(), &shared, waited(peer));
        setup.names.insert(id, name.to_owned());
    };
    for (process, provider) in (0..60).zip(["a", "b", "c"].into_iter().cycle()) {
        enter(provider, 1 << 32 | process, "x");
    }
    enter("a", 2 << 32 | 1, "y");
    enter("d", 2 << 32 | 2, "y");
    let order = setup.order();
    let order: Vec<_> = order.split(' ').take(5).collect();
    assert_eq!(order, ["x", "y", "x", "y", "x"]);
}

/// A uid with all slots leaves the next one to another uid, at whichever issuer.
#[test]
fn while_another_uid_waits_a_uid_has_at_most_three_quarters_of_the_slots() {
    let mut setup = Setup::new(4, 1);
    for provider in ["a", "b", "c", "d", "e", "f", "g"] {
        setup.one(provider, waited(1 << 32 | 1), provider);
    }
    let started = setup.started();
    assert_eq!(started.len(), 4, "alone it has all");
    setup.one("x", waited(2 << 32 | 1), "x");
    let y = setup.one("x", waited(2 << 32 | 1), "y");
    setup.queue.finish(started[0], Outcome::Success, 0.5, setup.now);
    let next = setup.started();
    assert_eq!(setup.names[&next[0]], "x");
    setup.queue.finish(started[1], Outcome::Success, 0.5, setup.now);
    assert_eq!(setup.started().len(), 1, "y waits for x at its issuer, and there are three quarters for e");
    setup.queue.remove(y);
    setup.queue.finish(next[0], Outcome::Success, 0.5, setup.now);
    assert_eq!(setup.started().len(), 1, "all slots again");
}
