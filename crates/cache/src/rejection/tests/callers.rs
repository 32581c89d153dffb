use super::super::*;

fn at(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

#[test]
fn a_caller_that_receives_the_same_generation_again_is_noticed() {
    let callers = Callers::default();
    let table = [(7, 1, false), (8, 1, false), (7, 1, true), (7, 2, false), (7, 2, true), (8, 2, false)];
    for (caller, generation, repeats) in table {
        assert_eq!(callers.repeats(caller, generation, at(1)), repeats, "{caller} {generation}");
    }
    assert!(!callers.repeats(0, 1, at(1)) && !callers.repeats(0, 1, at(1)), "0 is not a name");
}

#[test]
fn the_number_of_callers_is_limited_and_each_takes_16_bytes() {
    let callers = Callers::default();
    for caller in 1..10 * REMEMBERED as u64 {
        callers.repeats(caller.wrapping_mul(0x9e37_79b9_7f4a_7c15), 1, at(1));
        assert!(callers.0.lock().unwrap().len() <= REMEMBERED);
    }
    assert_eq!(size_of::<Given>(), 16);
    assert!(callers.0.lock().unwrap().capacity() <= REMEMBERED + GROWTH);
}

#[test]
fn a_generation_is_accepted_when_the_caller_that_rejected_the_previous_one_does_not_ask_again() {
    let callers = Callers::default();
    callers.repeats(7, 1, at(0));
    callers.repeats(7, 1, at(1));
    callers.repeats(7, 2, at(2));
    assert!(!callers.accepted(2, at(11)));
    assert!(callers.accepted(2, at(12)));
    callers.repeats(7, 2, at(13));
    assert!(callers.accepted(2, at(30)), "it asked again later");
    callers.repeats(7, 3, at(31));
    callers.repeats(7, 3, at(40));
    assert!(!callers.accepted(3, at(60)), "it asked again immediately");
}

#[test]
fn a_generation_is_accepted_when_two_other_callers_do_not_ask_again() {
    let callers = Callers::default();
    callers.repeats(7, 2, at(2));
    assert!(!callers.accepted(2, at(60)), "one is not enough");
    callers.repeats(8, 2, at(50));
    assert!(!callers.accepted(2, at(59)));
    assert!(callers.accepted(2, at(60)));
    assert!(!callers.accepted(1, at(60)), "another generation");
}
