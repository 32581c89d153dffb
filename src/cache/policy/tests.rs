//! The decisions, as tables and properties.

use std::time::SystemTime;

use proptest::prelude::*;

use super::*;
use crate::credential::{Generation, Token};

const BOOT: Duration = Duration::from_secs(1_000);

fn wall() -> SystemTime {
    SystemTime::UNIX_EPOCH + secs(1_800_000_000)
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// `secs` after the credential was fetched, both clocks agreeing.
fn after(secs: u64) -> Now {
    Now { wall: wall() + Duration::from_secs(secs), boot: BOOT + Duration::from_secs(secs) }
}

fn material(text: &str) -> Material {
    Material { token: Some(Token { secret: text.into(), expires_at: None }), pair: None }
}

/// Lives 100 s, is due after 53 s.
fn current() -> Current {
    let lifetime = Lifetime { expires_at: wall() + secs(100), within_skew: false };
    let next = || Generation::new("e".into(), 1);
    match replace(None, material("old"), lifetime, after(0), 0.5, next) {
        Replacement::Rotated(current) => current,
        other => panic!("{other:?}"),
    }
}

fn state(current: Option<Current>, retry_at: Option<u64>, running: bool) -> State {
    let failure =
        retry_at.map(|at| Failure { error: CacheError::Draining, attempts: 1, retry_at: BOOT + secs(at) });
    State { current, failure, running, ..State::default() }
}

fn name(decision: &Decision) -> &'static str {
    match decision {
        Decision::Serve(_) => "serve",
        Decision::ServeAndRefresh(_) => "serve and refresh",
        Decision::Wait => "wait",
        Decision::Fail(_) => "fail",
    }
}

#[test]
fn an_ask_gets_what_the_table_says() {
    // (credential held?, failure held until, a run in flight?, seconds since the fetch) → decision, care when used, care when idle
    let table = [
        (false, None, false, 0, "wait", Care::Keep, Care::Drop),
        (false, None, true, 0, "wait", Care::Keep, Care::Keep),
        (false, Some(5), false, 4, "fail", Care::Keep, Care::Keep),
        (false, Some(5), false, 5, "wait", Care::Keep, Care::Drop),
        (true, None, false, 0, "serve", Care::Keep, Care::Keep),
        (true, None, false, 52, "serve", Care::Keep, Care::Keep),
        (true, None, false, 53, "serve and refresh", Care::Refresh, Care::Keep),
        (true, None, true, 75, "serve", Care::Keep, Care::Keep),
        (true, Some(80), false, 79, "serve", Care::Keep, Care::Keep),
        (true, Some(80), false, 80, "serve and refresh", Care::Refresh, Care::Keep),
        (true, None, false, 99, "serve and refresh", Care::Refresh, Care::Keep),
        (true, None, false, 100, "wait", Care::Keep, Care::Drop),
        (true, Some(110), false, 100, "fail", Care::Keep, Care::Keep),
    ];
    for (held, retry_at, running, at, decision, used, idle) in table {
        let state = state(held.then(current), retry_at, running);
        let row = format!("held {held}, failure {retry_at:?}, running {running}, at {at}");
        assert_eq!(name(&decide(&state, after(at))), decision, "{row}");
        assert_eq!(care(&state, secs(1), false, after(at)), used, "used; {row}");
        assert_eq!(care(&state, IDLE, false, after(at)), idle, "idle; {row}");
        assert_eq!(care(&state, IDLE, true, after(at)), used, "watched; {row}");
    }
}

#[test]
fn the_lead_suits_the_lifetime() {
    // Lifetime in seconds, u, seconds before expiry.
    let table = [
        (20, 0.0, 8.4),    // a short one: 42 % of it
        (20, 1.0, 10.4),   // … to 52 %
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
    let next = || Generation::new("e".into(), 2);
    let replaced = |text: &str, expires: u64, at: u64| {
        let lifetime = Lifetime { expires_at: wall() + secs(expires), within_skew: false };
        replace(Some(&old), material(text), lifetime, after(at), 0.5, next)
    };
    let Replacement::Unchanged(same) = replaced("old", 100, 76) else { panic!("the same again") };
    assert!(Arc::ptr_eq(&same.issued, &old.issued));
    assert!(!same.is_due_at(after(85)) && same.is_due_at(after(86)), "a third of 24 s is under ten seconds");
    let Replacement::Extended(longer) = replaced("old", 200, 76) else { panic!("the same with a later end") };
    assert_eq!((&longer.issued.generation, longer.issued.lifetime), (&old.issued.generation, secs(124)));
    let Replacement::Rotated(new) = replaced("new", 100, 76) else { panic!("another token") };
    assert_ne!(new.issued.generation, old.issued.generation);
    let Replacement::Extended(_) = replaced("old", 100, 100) else {
        panic!("the old one is not valid any more")
    };
}

#[test]
fn a_loan_is_used_up_before_the_next_run() {
    let lifetime = Lifetime { expires_at: wall() + secs(10), within_skew: true };
    let lent = replace(None, material("late"), lifetime, after(0), 0.5, || Generation::new("e".into(), 1));
    let Replacement::Rotated(lent) = lent else { panic!("{lent:?}") };
    assert!(!lent.is_due_at(after(9)) && lent.is_due_at(after(10)));
}

#[test]
fn failures_in_a_row_are_held_longer_up_to_a_minute() {
    let mut last = None;
    let held: Vec<_> = (0..8)
        .map(|_| {
            let failure = fail(last.as_ref(), CacheError::Draining, after(0), 0.999);
            let held = failure.at(after(0)).retry_after.as_secs();
            last = Some(failure);
            held
        })
        .collect();
    assert_eq!(held, [1, 3, 7, 15, 31, 59, 59, 59]);
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
        match decide(&state, now) {
            Decision::Serve(issued) | Decision::ServeAndRefresh(issued) => prop_assert!(issued.is_valid_at(now)),
            Decision::Wait | Decision::Fail(_) => prop_assert!(step >= 100 || boot >= 100),
        }
    }

    #[test]
    fn a_back_off_is_between_a_second_and_a_minute(attempts: u32, u in 0.0..1.0_f64) {
        let held = back_off(attempts, u);
        prop_assert!(held >= secs(1) && held <= secs(60));
    }
}
