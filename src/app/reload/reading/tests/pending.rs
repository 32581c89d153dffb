use super::super::*;

const fn at(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The file, what happened to it, and when, in milliseconds.
type Touched = (&'static str, Touch, u64);

fn touched(touches: &[Touched]) -> PendingChanges {
    let mut pending = PendingChanges::default();
    for (file, touch, millis) in touches {
        pending.touch(file.into(), *touch, at(*millis));
    }
    pending
}

#[test]
fn a_file_is_read_once_it_was_closed_and_quiet() {
    use Touch::{Settled, Written};
    let table: [(&[Touched], u64); 5] = [
        (&[("a", Settled, 0)], 250),
        (&[("a", Settled, 0), ("a", Settled, 200)], 450),
        (&[("a", Written, 0), ("a", Written, 4_000), ("a", Settled, 4_001)], 4_251),
        (&[("a", Written, 0), ("b", Settled, 100), ("a", Settled, 200)], 450),
        (&[("a", Settled, 0), ("b", Settled, 100), ("a", Settled, 50)], 350),
    ];
    for (touches, due) in table {
        let mut pending = touched(touches);
        assert_eq!(pending.due(), Some(at(due)), "{touches:?}");
        assert_eq!(pending.take(at(due - 1)), None, "{touches:?}");
        assert!(pending.take(at(due)).is_some() && pending.take(at(due)).is_none(), "{touches:?}");
    }
}

/// By a program that never closes it, or that writes it again and again.
#[test]
fn a_file_that_is_always_being_written_puts_a_reading_off_for_five_seconds_at_most() {
    use Touch::{Settled, Written};
    for (touch, pause) in [(Written, 1), (Written, 249), (Written, 4_999), (Settled, 1), (Settled, 249)] {
        let mut pending = PendingChanges::default();
        pending.touch("settled".into(), Settled, at(1_000));
        for millis in (1_000..6_000).step_by(pause) {
            assert_eq!(pending.take(at(millis)), None, "{touch:?} {pause} {millis}");
            pending.touch("a".into(), touch, at(millis));
        }
        assert_eq!(pending.due(), Some(at(6_000)), "{touch:?} {pause}");
        assert!(pending.take(at(6_000)).is_some(), "{touch:?} {pause}");
        assert_eq!(pending.due(), None, "{touch:?} {pause}");
    }
}

#[test]
fn a_request_does_not_wait_until_a_file_is_complete() {
    let mut pending = PendingChanges::default();
    pending.request(at(1_000));
    assert!(pending.take(at(1_000)).is_some(), "nothing was touched");
    for pause in [1, 100, 249] {
        let mut pending = touched(&[("a", Touch::Settled, 0), ("b", Touch::Written, 900)]);
        for millis in (1_000..1_250).step_by(pause) {
            pending.request(at(millis));
            assert_eq!(pending.take(at(millis)), None);
            pending.touch("b".into(), Touch::Written, at(millis));
        }
        let taken = pending.take(at(1_250)).unwrap();
        assert!(!taken.may_wait(at(1_250)), "not even if the file changes while it is read");
        assert_eq!(pending.due(), None);
    }
    let mut pending = touched(&[("a", Touch::Settled, 900)]);
    pending.request(at(1_000));
    assert_eq!(pending.due(), Some(at(1_150)), "the file is complete");
}

#[test]
fn a_reading_that_no_person_asked_for_waits_for_a_file_that_is_being_written() {
    let mut pending = touched(&[("a", Touch::Written, 0)]);
    pending.ask(at(10));
    assert_eq!(pending.take(at(4_999)), None);
    assert!(pending.take(at(5_000)).is_some());
}

#[test]
fn a_reading_of_files_that_change_meanwhile_is_repeated_for_five_seconds() {
    let mut pending = touched(&[("a", Touch::Settled, 1_000)]);
    let first = pending.take(at(1_250)).unwrap();
    assert!(first.may_wait(at(1_260)));
    pending.ask_again(&first, at(1_260), at(1_510));
    assert_eq!(pending.due(), Some(at(1_510)));
    pending.touch("a".into(), Touch::Written, at(1_400));
    assert_eq!(pending.due(), Some(at(6_000)), "five seconds after the first change");
    let last = pending.take(at(6_000)).unwrap();
    assert!(!last.may_wait(at(6_010)));
    pending.ask_again(&last, at(6_010), at(6_260));
    let next = pending.take(at(6_260)).unwrap();
    assert!(next.may_wait(at(11_009)) && !next.may_wait(at(11_010)), "it counts from now on");
}

#[test]
fn a_reading_that_was_asked_for_comes_at_its_time_or_with_the_next_change() {
    let mut pending = PendingChanges::default();
    assert_eq!(pending.due(), None);
    pending.ask(at(9_000));
    pending.ask(at(5_000));
    pending.ask(at(7_000));
    assert_eq!(pending.due(), Some(at(5_000)));
    pending.touch("a".into(), Touch::Settled, at(1_000));
    assert_eq!(pending.due(), Some(at(1_250)));
    assert!(pending.take(at(1_250)).is_some());
    assert_eq!(pending.due(), None);
}
