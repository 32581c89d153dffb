use super::*;

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
    let table: [(&[Touched], u64); 6] = [
        (&[("a", Settled, 0)], 250),
        (&[("a", Settled, 0), ("a", Settled, 200)], 450),
        (&[("a", Written, 0)], 10_000),
        (&[("a", Written, 0), ("a", Written, 5_000), ("a", Settled, 5_001)], 5_251),
        (&[("a", Settled, 0), ("a", Written, 100)], 10_100),
        (&[("a", Settled, 0), ("b", Settled, 100), ("a", Settled, 50)], 350),
    ];
    for (touches, due) in table {
        let mut pending = touched(touches);
        assert_eq!(pending.due(), Some(at(due)), "{touches:?}");
        assert!(!pending.take(at(due - 1)) && pending.take(at(due)) && !pending.take(at(due)), "{touches:?}");
    }
}

#[test]
fn a_file_that_is_being_written_delays_the_reading_of_all() {
    let mut pending = touched(&[("a", Touch::Settled, 0), ("b", Touch::Written, 0)]);
    pending.ask(at(10));
    assert!(!pending.take(at(9_999)));
    assert!(pending.take(at(10_000)));
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
    assert!(pending.take(at(1_250)));
    assert_eq!(pending.due(), None);
}
