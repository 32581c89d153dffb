use credbroker_proto::v1alpha1;
use prost_types::Timestamp;

use super::super::*;

fn state(problems: &[&str], restart_needed: &[&str]) -> ConfigurationState {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let at = |seconds| Some(Timestamp { seconds, nanos: 0 });
    let message = v1alpha1::ConfigurationState {
        read_time: at(1_800_000_000),
        reloads: 3,
        problems: texts(problems),
        problems_since_time: at(1_800_000_060).filter(|_| !problems.is_empty()),
        restart_needed: texts(restart_needed),
    };
    message.into()
}

#[test]
fn an_active_configuration_needs_no_words() {
    assert!(configuration_lines(&state(&[], &[])).is_empty());
}

#[test]
fn each_problem_and_each_key_that_needs_a_restart_has_a_line() {
    let state = state(&["/c:3:5: unknown key `x`", "/k: is \x1b[31mempty\n"], &["listen"]);
    insta::assert_snapshot!(configuration_lines(&state).join("\n"), @r"
    The files of the configuration have problems since 2027-01-15T08:01:00Z. The broker continues with those of 2027-01-15T08:00:00Z:
      /c:3:5: unknown key `x`
      /k: is U+001B[31mempty
    `listen` has changed. Restart the broker to use the new value.
    ");
}

#[test]
fn json_has_every_field() {
    let expected = json!({
        "readTime": "2027-01-15T08:00:00Z",
        "reloads": 3,
        "problems": ["a"],
        "problemsSinceTime": "2027-01-15T08:01:00Z",
        "restartNeeded": ["listen"],
    });
    let mut overview = super::overview();
    overview.broker.configuration = Some(state(&["a"], &["listen"]));
    assert_eq!(document(&overview)["configuration"], expected);
}
