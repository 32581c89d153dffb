//! What `credbroker status` says about the configuration of a broker.

use std::{fmt::Write as _, time::SystemTime};

use credbroker_client::admin::ConfigurationState;
use serde_json::{Value, json};

use super::time::rfc3339;
use credbroker_credential::text::one_line;

/// Why the files are not in force as they are; empty: they are.
pub(super) fn text(state: &ConfigurationState) -> String {
    let mut text = String::new();
    if !state.problems.is_empty() {
        let _infallible = writeln!(
            text,
            "The files of the configuration have problems since {}. The broker continues with those of {}:",
            shown(state.problems_since),
            shown(state.read_at)
        );
    }
    for problem in &state.problems {
        let _infallible = writeln!(text, "  {}", one_line(problem));
    }
    for key in &state.restart_needed {
        let _infallible =
            writeln!(text, "`{}` has changed. Restart the broker to use the new value.", one_line(key));
    }
    text
}

/// The same for programs.
pub(super) fn json(state: &ConfigurationState) -> Value {
    json!({
        "readTime": state.read_at.map(rfc3339),
        "reloads": state.reloads,
        "problems": state.problems,
        "problemsSinceTime": state.problems_since.map(rfc3339),
        "restartNeeded": state.restart_needed,
    })
}

fn shown(at: Option<SystemTime>) -> String {
    at.map_or_else(|| "an unknown time".to_owned(), rfc3339)
}

#[cfg(test)]
mod tests {
    use credbroker_proto::v1;
    use prost_types::Timestamp;

    use super::*;

    fn state(problems: &[&str], restart_needed: &[&str]) -> ConfigurationState {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let at = |seconds| Some(Timestamp { seconds, nanos: 0 });
        let message = v1::ConfigurationState {
            read_time: at(1_800_000_000),
            reloads: 3,
            problems: texts(problems),
            problems_since_time: at(1_800_000_060).filter(|_| !problems.is_empty()),
            restart_needed: texts(restart_needed),
        };
        message.into()
    }

    #[test]
    fn a_configuration_in_force_needs_no_words() {
        assert_eq!(text(&state(&[], &[])), "");
    }

    #[test]
    fn each_problem_and_each_key_that_needs_a_restart_has_a_line() {
        let state = state(&["/c:3:5: unknown key `x`", "/k: is \x1b[31mempty\n"], &["listen"]);
        insta::assert_snapshot!(text(&state), @r"
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
        assert_eq!(json(&state(&["a"], &["listen"])), expected);
    }
}
