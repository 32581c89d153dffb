//! The decisions, as tables and properties.

mod outlook;

use std::time::SystemTime;

use proptest::prelude::*;

use super::{
    super::{
        error::{Failure, back_off},
        rejection::Callers,
    },
    *,
};
use credbroker_credential::{Draft, Generation, Lifetime, LifetimeBound, Material, Token, testing::plain};
use credbroker_observe::clock::Clock;
use credbroker_plugin::Interactive;
use credbroker_runner::{Attendance, RunError, RunErrorKind, RunSource, Scheduler, Urgency};

const BOOT: Duration = Duration::from_secs(1_000);
const PERSON: Asker = Asker::Person { lends: false, caller: 7 };

fn wall() -> SystemTime {
    SystemTime::UNIX_EPOCH + secs(1_800_000_000)
}

/// The clock of a queue that decides nothing.
#[derive(Debug)]
struct Unused;

impl Clock for Unused {
    fn now(&self) -> Now {
        after(0)
    }
}

pub(crate) fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// `secs` after the credential was fetched, both clocks agreeing.
pub(crate) fn after(secs: u64) -> Now {
    Now { wall: wall() + Duration::from_secs(secs), boot: BOOT + Duration::from_secs(secs) }
}

fn material(text: &str) -> Material {
    Material { token: Some(Token { secret: text.into(), expires_at: None }), pair: None }
}

fn lifetime(expires: u64) -> Lifetime {
    Lifetime {
        expires_at: wall() + secs(expires),
        within_skew: false,
        bound: LifetimeBound::ExpirationTimestamp,
    }
}

fn issued(number: u64, text: &str, fetched: u64, expires: u64) -> Arc<Issued> {
    let (generation, material) = (Generation::new("e".into(), number), material(text));
    let (fetched, lifetime) = (after(fetched), lifetime(expires));
    Arc::new(Draft { generation, material: &material, fetched, lifetime, cluster: None }.issue(plain))
}

/// Version of the plugin's file.
pub(crate) const FILE: u64 = 1;

/// Lives 100 s, is due after 75 s.
pub(crate) fn current() -> Current {
    let (outcome, due_in) = renewal(None, &material("old"), lifetime(100), after(0), 0.5);
    assert_eq!(outcome, RunOutcome::Rotated, "there was none");
    Current::new(issued(1, "old", 0, 100), due_in, after(0), FILE)
}

pub(crate) fn state(current: Option<Current>, retry_at: Option<u64>, running: bool) -> KeyState {
    let failure = retry_at.map(|at| {
        let at = BOOT + secs(at);
        Arc::new(Failure {
            error: CacheError::Draining,
            failed_at: at,
            attempts: 1,
            throttled: 0,
            refresh_at: at,
            ask_at: at,
            is_interactive: false,
            notified: Callers::default(),
        })
    });
    let run = running.then(|| {
        let (spec, floor) = (crate::tests::spec("a"), Urgency::Background);
        let scheduler = Scheduler::new(1, Arc::new(Unused), || 0.5);
        let ticket =
            scheduler.enter(&spec.provider, floor, RunSource::Configuration(spec.key)).handle.clone();
        let (attendance, queued) = (Attendance::default(), (floor, ticket));
        Arc::new(Run::new((&spec, RunReason::Refresh), attendance, queued, after(0)))
    });
    KeyState { current, failure, run, ..KeyState::default() }
}

pub(crate) fn usage(idle: u64, watched: bool) -> Usage {
    Usage { idle: secs(idle), watched, awaited: watched, file: FILE, timeout: secs(1), uid: Some(7) }
}

fn name(decision: &Decision) -> &'static str {
    match decision {
        Decision::Serve { refresh: false, .. } => "serve",
        Decision::Serve { refresh: true, .. } => "serve and refresh",
        Decision::Wait => "wait",
        Decision::Fail(_) => "fail",
    }
}

#[test]
fn a_request_gets_what_the_table_says() {
    let (background, urgent) = (Urgency::Background, Urgency::Urgent { uid: Some(7) });
    let refresh = NextAction::Refresh;
    let queued = |urgency, abandon| if abandon { NextAction::Abandon } else { NextAction::Adjust(urgency) };
    // (credential held?, failure held until, a run in flight?, seconds since the fetch) → decision, action when watched, action when idle
    let table = [
        (false, None, false, 0, "wait", refresh(urgent), NextAction::Forget),
        (false, None, true, 0, "wait", queued(urgent, false), queued(background, true)),
        (false, Some(5), false, 4, "fail", NextAction::Keep, NextAction::Keep),
        (false, Some(5), false, 5, "wait", refresh(urgent), NextAction::Forget),
        (true, None, false, 0, "serve", NextAction::Keep, NextAction::Keep),
        (true, None, false, 74, "serve", NextAction::Keep, NextAction::Keep),
        (true, None, false, 75, "serve and refresh", refresh(background), NextAction::Keep),
        (true, None, true, 80, "serve", queued(background, false), queued(background, true)),
        (true, Some(80), false, 79, "serve", NextAction::Keep, NextAction::Keep),
        (true, Some(80), false, 80, "serve and refresh", refresh(background), NextAction::Keep),
        (true, None, false, 90, "serve and refresh", refresh(background), NextAction::Keep),
        (true, None, false, 91, "serve and refresh", refresh(urgent), NextAction::Keep),
        (true, None, true, 91, "serve", queued(urgent, false), queued(background, true)),
        (true, None, false, 100, "wait", refresh(urgent), NextAction::Forget),
        (true, Some(110), false, 100, "fail", NextAction::Keep, NextAction::Keep),
    ];
    for (held, retry_at, running, at, decision, watched, idle) in table {
        let state = state(held.then(current), retry_at, running);
        let row = format!("held {held}, failure {retry_at:?}, running {running}, at {at}");
        assert_eq!(
            name(&decide(&state, (Asker::Program, Duration::ZERO), FILE, after(at))),
            decision,
            "{row}"
        );
        assert_eq!(next_action(&state, usage(1, true), after(at)), watched, "watched; {row}");
        assert_eq!(next_action(&state, usage(300, true), after(at)), watched, "watched for long; {row}");
        assert_eq!(next_action(&state, usage(300, false), after(at)), idle, "idle; {row}");
        if held && at < 100 {
            assert_eq!(next_action(&state, usage(1, false), after(at)), watched, "used; {row}");
        }
    }
}

#[test]
fn a_caller_that_needs_a_longer_lifetime_gets_what_the_table_says() {
    // (needed lifetime, failure held until, a run in flight?, seconds since the fetch) → decision
    let table = [
        (100, None, false, 0, "serve"),
        (0, None, true, 60, "serve"),
        // The run did not bring as much: a third of 100 s.
        (101, None, false, 0, "serve"),
        (101, None, true, 33, "serve"),
        (101, None, false, 34, "wait"),
        (9_999, None, false, 33, "serve"),
        (9_999, None, false, 34, "wait"),
        (9_999, None, true, 34, "wait"),
        // It did: ten seconds.
        (95, None, false, 5, "serve"),
        (95, None, false, 9, "serve"),
        (95, None, false, 10, "wait"),
        (80, None, false, 20, "serve"),
        (80, None, false, 21, "wait"),
        (80, None, true, 21, "wait"),
        // Back-off.
        (80, Some(40), false, 39, "serve"),
        (80, Some(40), true, 39, "serve"),
        (80, Some(40), false, 40, "wait"),
        // It is due as well.
        (20, None, false, 80, "serve and refresh"),
        (21, None, false, 80, "wait"),
        (99, Some(90), false, 89, "serve"),
    ];
    for (needed, retry_at, running, at, decision) in table {
        let state = state(Some(current()), retry_at, running);
        let row = format!("needed {needed}, failure {retry_at:?}, running {running}, at {at}");
        for asker in [Asker::Program, PERSON] {
            assert_eq!(name(&decide(&state, (asker, secs(needed)), FILE, after(at))), decision, "{row}");
        }
    }
}

#[test]
fn a_plugin_that_needs_a_person_is_not_run_for_a_longer_lifetime_without_one() {
    let prompts = Prompts::of(Interactive::Always);
    let state = KeyState { prompts, ..state(Some(current()), None, false) };
    let decide = |asker| decide(&state, (asker, secs(90)), FILE, after(50));
    assert_eq!(name(&decide(Asker::Program)), "serve");
    assert_eq!(name(&decide(PERSON)), "serve");
    assert_eq!(name(&decide(Asker::Person { lends: true, caller: 7 })), "wait");
}

#[test]
fn why_a_run_starts() {
    let (expired, failed) = (after(100), state(None, Some(5), false));
    let held = state(Some(current()), None, false);
    assert_eq!(held.reason(false, FILE, after(80)), RunReason::Refresh);
    assert_eq!(held.reason(true, FILE, after(50)), RunReason::MinLifetime);
    assert_eq!(held.reason(true, FILE + 1, after(50)), RunReason::PluginChanged);
    assert_eq!(held.reason(true, FILE, expired), RunReason::Expired);
    assert_eq!(failed.reason(true, FILE, after(9)), RunReason::Retry);
    assert_eq!(state(None, None, false).reason(true, FILE, after(9)), RunReason::First);
}

#[test]
fn a_replaced_plugin_makes_a_credential_due_and_takes_nothing_away() {
    let state = state(Some(current()), None, false);
    assert_eq!(
        name(&decide(&state, (Asker::Program, Duration::ZERO), FILE + 1, after(10))),
        "serve and refresh"
    );
    let usage = Usage { file: FILE + 1, ..usage(1, false) };
    assert_eq!(next_action(&state, usage, after(10)), NextAction::Refresh(Urgency::Background));
    let held = state.current.as_ref();
    let (outcome, due_in) = renewal(held, &material("old"), lifetime(100), after(10), 0.5);
    assert_eq!(outcome, RunOutcome::Unchanged);
    let again = held.unwrap().again(due_in, after(10), FILE + 1);
    assert!(!again.is_due_at(after(11), FILE + 1));
}

#[test]
fn a_refresh_is_urgent_when_little_is_left_for_two_runs() {
    let state = state(Some(current()), None, false);
    let urgent = |timeout: u64, at: u64| {
        next_action(&state, Usage { timeout: secs(timeout), ..usage(1, true) }, after(at))
            == NextAction::Refresh(Urgency::Urgent { uid: Some(7) })
    };
    assert!(!urgent(12, 76) && urgent(12, 77), "less than 24 s");
    assert!(!urgent(1, 90) && urgent(1, 91), "less than a tenth of the lifetime");
}

#[test]
fn the_next_run_is_when_the_maintenance_starts_it() {
    // (credential held?, failure held until, a run in flight?, seconds since the fetch) → when watched, when idle
    let table = [
        (true, None, false, 70, Some(5), Some(5)),
        (true, None, false, 80, Some(0), None),
        (true, None, true, 80, None, None),
        (true, Some(90), false, 80, Some(10), None),
        (true, Some(90), true, 80, None, None),
        (false, None, false, 0, Some(0), None),
        (false, Some(5), false, 2, Some(3), None),
        (false, None, true, 0, None, None),
    ];
    for (held, retry_at, running, at, watched, idle) in table {
        let state = state(held.then(current), retry_at, running);
        let row = format!("held {held}, failure {retry_at:?}, running {running}, at {at}");
        assert_eq!(next_refresh(&state, usage(300, true), after(at)), watched.map(secs), "watched; {row}");
        assert_eq!(next_refresh(&state, usage(300, false), after(at)), idle.map(secs), "idle; {row}");
    }
    let state = state(Some(current()), None, false);
    let replaced = Usage { file: FILE + 1, ..usage(1, false) };
    assert_eq!(next_refresh(&state, replaced, after(10)), Some(Duration::ZERO), "of another file");
}

#[test]
fn the_lead_suits_the_lifetime() {
    // Lifetime in seconds, u, seconds before expiry.
    let table = [
        (20, 0.0, 4.0),    // a short one: a fifth
        (20, 1.0, 6.0),    // … to three tenths of it
        (719, 0.0, 143.8), // just under twelve minutes
        (720, 0.0, 302.4), // twelve: 42 %
        (840, 0.0, 352.8), // EKS's 14 minutes: more than Python's five
        (840, 1.0, 436.8),
        (3_600, 0.0, 720.0), // an hour: a fifth
        (3_600, 1.0, 1_080.0),
        (1_200, 0.0, 360.0), // six minutes
        (1_200, 1.0, 450.0),
        (86_400, 0.5, 21_600.0), // a day: a quarter
    ];
    for (lifetime, u, expected) in table {
        let lead = lead(secs(lifetime), u).as_secs_f64();
        assert!((lead - expected).abs() < 1e-6, "{lifetime} s, u = {u}: {lead}, not {expected}");
    }
}

#[test]
fn what_replaces_what() {
    let old = current();
    let replaced = |text: &str, expires: u64, at: u64| {
        renewal(Some(&old), &material(text), lifetime(expires), after(at), 0.5)
    };
    let (outcome, due_in) = replaced("old", 100, 76);
    assert_eq!(outcome, RunOutcome::Unchanged, "the same again");
    let same = old.again(due_in, after(76), FILE);
    assert!(Arc::ptr_eq(&same.issued, &old.issued));
    let due = |at| same.is_due_at(after(at), FILE);
    assert!(!due(85) && due(86), "a third of 24 s is under ten seconds");
    assert_eq!(replaced("old", 200, 76), (RunOutcome::Extended, secs(93)), "the same with a later end");
    assert_eq!(replaced("new", 100, 76).0, RunOutcome::Rotated);
    assert_eq!(replaced("old", 100, 100).0, RunOutcome::Extended, "the old one is no longer valid");
}

#[test]
fn a_loan_is_used_up_before_the_next_run() {
    let lent = Lifetime { expires_at: wall() + secs(10), within_skew: true, bound: LifetimeBound::ClockSkew };
    let lent = renewal(None, &material("late"), lent, after(0), 0.5);
    assert_eq!(lent, (RunOutcome::Rotated, secs(10)));
}

#[test]
fn a_failure_holds_callers_shortly_and_refreshes_longer() {
    let mut last: Option<Failure> = None;
    let mut held = Vec::new();
    for _ in 0..10 {
        let failure = Failure::after(last.as_ref(), CacheError::Draining, false, after(0), 0.999);
        let left = |until: Duration| until.saturating_sub(after(0).boot).as_secs();
        held.push((left(failure.refresh_at), left(failure.ask_at)));
        last = Some(failure);
    }
    let expected =
        [(1, 1), (3, 3), (7, 3), (15, 3), (31, 3), (59, 6), (59, 12), (59, 24), (59, 30), (59, 30)];
    assert_eq!(held, expected);
}

#[test]
fn a_failure_answers_a_user_at_a_terminal_only_through_the_process_that_got_it() {
    let failure = Failure::after(None, CacheError::Draining, false, after(0), 0.999);
    assert!(failure.answers(Asker::Program, after(0)) && !failure.answers(PERSON, after(0)));
    failure.notified.repeats(7, 0, after(0).boot);
    assert!(failure.answers(PERSON, after(9)) && !failure.answers(PERSON, after(10)));
    assert!(!failure.answers(Asker::Person { lends: false, caller: 8 }, after(0)));
    assert_eq!(failure.at(after(0), true).retry_after, secs(0));
}

#[test]
fn a_pause_of_the_issuer_is_not_an_attempt_and_is_the_schedulers_to_hold() {
    let throttled = CacheError::Run(RunError::new(
        "p",
        RunErrorKind::Throttled {
            provider: "p".into(),
            issuer: "i".into(),
            of_key: false,
            retry_after: secs(60),
        },
    ));
    let first = Failure::after(None, CacheError::Draining, false, after(0), 0.5);
    let second = Failure::after(Some(&first), throttled, false, after(0), 0.5);
    assert_eq!((second.attempts, second.at(after(0), false).retry_after), (1, secs(60)));
    assert!(!second.is_held(after(0)), "the issuer may be free again before");
    assert_eq!(second.at(after(20), false).retry_after, secs(40), "it becomes shorter");
    assert!(second.at(after(20), false).to_string().contains("paused for another 40 s"));
}

#[test]
fn a_pause_of_the_key_is_held_and_its_renewal_is_tried_every_fifteen_seconds() {
    let throttled = |secs: u64| {
        CacheError::Run(RunError::new(
            "p",
            RunErrorKind::Throttled {
                provider: "p".into(),
                issuer: "i".into(),
                of_key: true,
                retry_after: self::secs(secs),
            },
        ))
    };
    for (holds, refresh_in) in [(false, 60), (true, 15)] {
        let first = Failure::after(None, throttled(60), holds, after(0), 0.5);
        assert!(first.is_held(after(59)) && first.answers(PERSON, after(59)));
        assert!(!first.is_held(after(60)) && !first.answers(PERSON, after(60)));
        assert_eq!(first.refresh_at, after(refresh_in).boot);
        assert_eq!(first.at(after(20), false).retry_after, secs(40));
        let other = Failure::after(Some(&first), CacheError::Draining, holds, after(0), 0.5);
        let second = Failure::after(Some(&other), throttled(7), holds, after(0), 0.5);
        assert_eq!((first.throttled, other.throttled, second.throttled), (1, 1, 2));
        assert_eq!((first.attempts, second.attempts, second.refresh_at), (0, 1, after(7).boot));
    }
}

proptest! {
    #[test]
    fn the_refresh_point_lies_within_the_lifetime_and_spreads(lifetime in 1_u64..4_000_000, u in 0.0..1.0_f64) {
        let (lifetime, lead) = (secs(lifetime), lead(secs(lifetime), u));
        prop_assert!(lead > lifetime.mul_f64(0.199) && lead < lifetime.mul_f64(0.521));
        if lifetime >= secs(840) {
            prop_assert!(lead > secs(300), "a client with a margin of five minutes asks again by itself");
        }
    }

    #[test]
    fn nothing_invalid_is_ever_served(step in -500_i64..500, boot in 0_u64..500, retry in proptest::option::of(0_u64..500), running: bool) {
        let state = state(Some(current()), retry, running);
        let shift = Duration::from_secs(step.unsigned_abs());
        let wall = if step < 0 { wall() - shift } else { wall() + shift };
        let now = Now { wall, boot: BOOT + secs(boot) };
        match decide(&state, (Asker::Program, Duration::ZERO), FILE, now) {
            Decision::Serve { issued, .. } => prop_assert!(issued.is_valid_at(now)),
            Decision::Wait | Decision::Fail(_) => prop_assert!(step >= 100 || boot >= 100),
        }
    }

    #[test]
    fn a_back_off_is_between_a_second_and_a_minute(attempts: u32, u in 0.0..1.0_f64) {
        let held = back_off(attempts, u);
        prop_assert!(held >= secs(1) && held <= secs(60));
    }
}
