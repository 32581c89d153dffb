mod absences;
mod marks;
mod pending;

use credbroker_test_support::{private_directory, private_file};

use super::*;
use credbroker_config::Problem;

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn sources(filled: &[&str], empty: &[&str]) -> Sources {
    let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
    Sources { followed: [paths(filled), paths(empty)].concat(), filled: paths(filled) }
}

fn refused(problems: &[&str], sources: Sources) -> ConfigError {
    let problem = |message: &&str| Problem {
        file: "/c".into(),
        at: credbroker_credential::document::Position { line: 3, column: 5 },
        message: (*message).into(),
    };
    ConfigError { problems: problems.iter().map(problem).collect(), warnings: Vec::new(), sources }
}

#[test]
fn a_problem_keeps_the_active_configuration() {
    let (active, error) = (sources(&["/c"], &[]), refused(&["no"], sources(&["/c"], &[])));
    let verdict = judge(&Err(error), &active, &mut Absences::default(), secs(1));
    assert_eq!(verdict, (vec!["/c:3:5: no".into()], None));
}

#[test]
fn a_file_in_use_that_is_empty_is_a_problem_for_ten_seconds_also_beside_others() {
    let active = sources(&["/c", "/k"], &["/never"]);
    let error = Err(refused(&["no"], sources(&["/c"], &["/k", "/never"])));
    let mut absences = Absences::default();
    let (problems, again) = judge(&error, &active, &mut absences, secs(1));
    assert_eq!(again, Some(secs(11)));
    insta::assert_snapshot!(problems.join("\n"), @r"
    /c:3:5: no
    /k: is empty or missing; what it defined stays in use for 10 seconds
    ");
    let (problems, again) = judge(&error, &active, &mut absences, secs(11));
    assert_eq!((problems.len(), again), (1, None));
}

#[test]
fn a_file_that_is_no_longer_named_is_not_missed() {
    let error = Err(refused(&["no"], sources(&["/c"], &[])));
    let verdict = judge(&error, &sources(&["/c", "/k"], &[]), &mut Absences::default(), secs(1));
    assert_eq!(verdict, (vec!["/c:3:5: no".into()], None));
}

#[test]
fn problems_are_limited_in_number_and_length() {
    let long = "x".repeat(10_000);
    let error = Err(refused(&[long.as_str(); 50], Sources::default()));
    let (problems, _) = judge(&error, &Sources::default(), &mut Absences::default(), secs(1));
    assert_eq!(problems.len(), 21);
    assert!(problems.iter().all(|problem| problem.chars().count() <= LONGEST));
    assert_eq!(problems[20], "and 30 more; `credbroker validate` prints all");
}

#[test]
fn a_reading_follows_what_the_configuration_names_and_is_repeated_for_new_files() {
    let dir = private_directory();
    let (config, users) = (dir.path().join("config.yaml"), dir.path().join("users"));
    let text = format!(
        "apiVersion: credbroker.io/v1alpha1\nkind: BrokerConfig\nkubeconfigs: [{}]\n",
        users.display()
    );
    private_file(&config, &text);
    let place = ConfigPlace { flag: Some(config.clone()), environment: Arc::default() };
    let read = |followed: &[PathBuf]| Reading::new(&place, &Providers::default(), followed, None);
    let first = read(std::slice::from_ref(&config));
    assert!(first.is_torn, "it names a file that was not followed yet");
    assert_eq!(super::sources(&first.result).followed, [config.clone(), users.clone()]);
    assert_eq!(super::sources(&first.result).filled, std::slice::from_ref(&config));
    assert!(first.result.is_ok(), "a kubeconfig that does not exist is only a warning");
    let second = read(&super::sources(&first.result).followed);
    assert!(!second.is_torn && !second.watches.is_complete);
}
