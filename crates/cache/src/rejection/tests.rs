//! When a rejection is worth a run.

mod callers;

use std::time::SystemTime;

use super::*;
use credbroker_credential::{EncodedCredential, Generation, LifetimeBound};

fn at(secs: u64) -> Now {
    let since = Duration::from_secs(secs);
    Now { wall: SystemTime::UNIX_EPOCH + since, boot: since }
}

fn issued(number: u64, fetched: u64, lifetime: u64) -> Issued {
    let (fetched, lifetime) = (at(fetched), Duration::from_secs(lifetime));
    Issued {
        generation: Generation::new("e".into(), number),
        encoded: EncodedCredential::default(),
        fingerprint: None,
        certificate: None,
        fetched,
        expires_at: fetched.wall + lifetime,
        lifetime,
        bound: LifetimeBound::ExpirationTimestamp,
    }
}

fn caller(name: u64) -> Caller {
    Caller { name, peer: name, ..Caller::default() }
}

const UNACCEPTED: Evidence = Evidence::Repeated { accepted: false };

/// A rejection of `issued` at `now`, with `evidence`.
fn reject(rejections: &mut Rejections, issued: &Issued, who: u64, evidence: Evidence, now: u64) -> bool {
    rejections.admit(issued, &caller(who), evidence, false, at(now)).is_ok()
}

/// When runs start if a caller rejects each second, and each run brings another generation.
fn runs(evidence: Evidence, lifetime: u64, until: u64) -> Vec<u64> {
    let (mut rejections, mut held) = (Rejections::default(), issued(1, 0, lifetime));
    let mut admitted = Vec::new();
    for now in 0..until {
        if reject(&mut rejections, &held, 7, evidence, now) {
            admitted.push(now);
            held = issued(held.generation.number() + 1, now, lifetime);
        }
    }
    admitted
}

fn pauses(runs: &[u64]) -> Vec<u64> {
    runs.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

#[test]
fn runs_that_do_not_help_are_ten_seconds_apart_then_twice_that_up_to_five_minutes() {
    for evidence in [Evidence::Reported, UNACCEPTED] {
        let admitted = runs(evidence, 3_600, 2_000);
        assert_eq!(admitted[0], 10, "a young one is not asked for again");
        assert_eq!(pauses(&admitted), [10, 20, 40, 80, 160, 300, 300, 300, 300, 300]);
    }
    let admitted = runs(Evidence::Verified, 3_600, 1_000);
    assert_eq!(admitted[0], 0, "a 401 that the broker saw needs no patience");
    assert_eq!(pauses(&admitted), [10, 20, 40, 80, 160, 300, 300]);
}

#[test]
fn a_pause_is_at_most_half_a_lifetime() {
    assert_eq!(runs(Evidence::Reported, 60, 200), [10, 20, 40, 70, 100, 130, 160, 190]);
}

#[test]
fn a_credential_that_is_revoked_again_and_again_is_replaced_each_time_at_once() {
    let verified = [Evidence::Verified, Evidence::Reported, Evidence::Repeated { accepted: true }];
    for evidence in verified {
        let mut rejections = Rejections::default();
        for revocation in 1..20 {
            let held = issued(revocation, 60 * revocation, 3_600);
            let refused = 60 * revocation + 30;
            assert!(reject(&mut rejections, &held, 7, evidence, refused), "{revocation} {evidence:?}");
        }
    }
}

#[test]
fn the_same_generation_again_shows_that_runs_do_not_help() {
    let (mut rejections, held) = (Rejections::default(), issued(1, 0, 3_600));
    let admitted: Vec<_> =
        (0..200).filter(|now| reject(&mut rejections, &held, 7, Evidence::Verified, *now)).collect();
    assert_eq!(pauses(&admitted), [10, 20, 40, 80]);
}

#[test]
fn runs_that_fail_say_nothing_about_whether_runs_help() {
    let (mut rejections, held) = (Rejections::default(), issued(1, 0, 3_600));
    let verified = |rejections: &mut Rejections, now: u64| {
        rejections.admit(&held, &caller(7), Evidence::Verified, true, at(now)).is_ok()
    };
    let admitted: Vec<_> = (0..60).filter(|now| verified(&mut rejections, *now)).collect();
    assert_eq!(admitted, [0, 10, 20, 30, 40, 50]);
}

#[test]
fn two_callers_within_ten_seconds_weigh_more_than_thirty_repeats_of_one() {
    let mut rejections = Rejections::default();
    let mut number = 1;
    let mut held = issued(number, 0, 3_600);
    let mut last = 0;
    for now in 0..100 {
        if reject(&mut rejections, &held, 7, UNACCEPTED, now) {
            (number, last) = (number + 1, now);
            held = issued(number, now, 3_600);
        }
    }
    assert_eq!(last, 80, "and the next run for this caller is due at 160");
    for now in 100..130 {
        assert!(!reject(&mut rejections, &held, 7, UNACCEPTED, now), "{now}");
    }
    let mut same_process = rejections.clone();
    let other_name = Caller { name: 8, peer: 7, ..Caller::default() };
    assert!(
        same_process.admit(&held, &other_name, UNACCEPTED, false, at(131)).is_err(),
        "one process under two names"
    );
    assert!(reject(&mut rejections, &held, 8, UNACCEPTED, 131));
}

#[test]
fn a_second_caller_that_comes_later_than_ten_seconds_is_one_caller() {
    let (mut rejections, held) = (Rejections::default(), issued(1, 0, 3_600));
    assert!(reject(&mut rejections, &held, 7, UNACCEPTED, 20));
    assert!(reject(&mut rejections, &held, 7, UNACCEPTED, 30));
    assert!(!reject(&mut rejections, &held, 8, UNACCEPTED, 41));
    assert!(reject(&mut rejections, &held, 7, UNACCEPTED, 52));
}

#[test]
fn a_verdict_decides_and_a_caller_without_exec_info_never_does() {
    let held = issued(1, 0, 3_600);
    let weigh = |verdict, without_exec_info| {
        let caller = Caller { without_exec_info, ..caller(7) };
        Rejections::default().weigh(&held, &caller, verdict, true, (at(60), at(60)))
    };
    assert_eq!(weigh(Verdict::Rejected, false), Some(Evidence::Verified));
    assert_eq!(weigh(Verdict::Rejected, true), Some(Evidence::Verified));
    assert_eq!(weigh(Verdict::Accepted, false), None);
    assert_eq!(weigh(Verdict::Unverifiable, false), Some(Evidence::Repeated { accepted: true }));
    assert_eq!(weigh(Verdict::Unverifiable, true), None);
}

#[test]
fn callers_that_come_back_after_a_good_verdict_are_believed_once() {
    let held = issued(1, 0, 3_600);
    let accepted = |rejections: &mut Rejections, who: u64, now: u64| {
        rejections.weigh(&held, &caller(who), Verdict::Accepted, false, (at(now), at(now)))
    };
    let mut same = Rejections::default();
    assert_eq!(accepted(&mut same, 7, 60), None);
    assert_eq!(accepted(&mut same, 7, 65), None);
    assert_eq!(accepted(&mut same, 7, 70), Some(Evidence::Doubted), "twice more");
    let mut two = Rejections::default();
    assert_eq!(accepted(&mut two, 7, 60), None);
    assert_eq!(accepted(&mut two, 7, 65), None);
    assert_eq!(accepted(&mut two, 8, 70), Some(Evidence::Doubted), "two callers");
    let mut late = Rejections::default();
    assert_eq!(accepted(&mut late, 7, 60), None);
    assert_eq!(accepted(&mut late, 7, 80), None);
    assert_eq!(accepted(&mut late, 7, 91), None, "after more than thirty seconds it counts again");

    let mut shared = Rejections::default();
    assert_eq!(accepted(&mut shared, 7, 60), None);
    for who in [8, 9] {
        let verdict = Verdict::Accepted;
        let found = shared.weigh(&held, &caller(who), verdict, false, (at(59), at(60)));
        assert_eq!(found, None, "it came back before the verdict");
    }
}
