use super::super::*;

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

const NONE: (Vec<PathBuf>, Option<Duration>) = (Vec::new(), None);

fn files(names: &[&str]) -> Vec<PathBuf> {
    names.iter().map(PathBuf::from).collect()
}

#[test]
fn an_absence_is_a_problem_for_ten_seconds() {
    let mut absences = Absences::default();
    let awaited = (files(&["a"]), Some(secs(11)));
    assert_eq!(observe(&mut absences, files(&["a"]), secs(1)), awaited);
    assert_eq!(observe(&mut absences, files(&["a"]), secs(10)), awaited);
    assert_eq!(observe(&mut absences, files(&["a"]), secs(11)), NONE);
    assert_eq!(observe(&mut absences, files(&["a"]), secs(60)), NONE);
}

#[test]
fn a_file_that_comes_back_has_its_ten_seconds_again() {
    let mut absences = Absences::default();
    observe(&mut absences, files(&["a"]), secs(0));
    assert_eq!(observe(&mut absences, files(&[]), secs(9)), NONE);
    let awaited = (files(&["a"]), Some(secs(22)));
    assert_eq!(observe(&mut absences, files(&["a"]), secs(12)), awaited);
}

#[test]
fn each_file_has_its_own_ten_seconds_and_the_last_decides() {
    let mut absences = Absences::default();
    observe(&mut absences, files(&["a"]), secs(0));
    let both = (files(&["a", "b"]), Some(secs(15)));
    assert_eq!(observe(&mut absences, files(&["a", "b"]), secs(5)), both);
    let one = (files(&["b"]), Some(secs(15)));
    assert_eq!(observe(&mut absences, files(&["a", "b"]), secs(10)), one);
    assert_eq!(observe(&mut absences, files(&["a", "b"]), secs(15)), NONE);
}
