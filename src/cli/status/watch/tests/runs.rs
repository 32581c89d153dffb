use credbroker_proto::v1alpha1;

use super::super::*;

fn held(key: &str, runs: u64) -> CredentialState {
    v1alpha1::CredentialState { id: key.into(), runs, ..v1alpha1::CredentialState::default() }.into()
}

#[test]
fn runs_before_the_first_reading_do_not_count() {
    let mut runs = Runs::default();
    for reading in [[9, 0], [9, 1], [16, 1], [16, 3]] {
        runs.read(&[held("a", reading[0]), held("b", reading[1])]);
    }
    assert_eq!((runs.bars(10).as_str(), runs.total), ("▂█▃", 10));
    assert_eq!(runs.bars(2), "█▃");
}

#[test]
fn new_and_forgotten_keys_count_from_nothing() {
    let mut runs = Runs::default();
    runs.read(&[held("a", 5)]);
    runs.read(&[held("a", 5), held("b", 2)]);
    runs.read(&[held("a", 1), held("b", 2)]);
    assert_eq!(runs.total, 3);
    for _ in 0..2 * MOST {
        runs.read(&[]);
    }
    assert_eq!(runs.bars(usize::MAX).chars().count(), MOST);
    assert!(runs.bars(5).chars().all(|bar| bar == '▁'));
}
