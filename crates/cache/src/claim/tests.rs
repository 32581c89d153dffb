use std::{io, time::Duration};

use super::*;
use credbroker_credential::{DecodeError, ExecInfoError};
use credbroker_observe::metrics::Exposition;
use credbroker_plugin::Refusal;

fn written(metrics: &Metrics) -> String {
    let mut text = Exposition::default();
    metrics.calls.write(&mut text, f64::INFINITY);
    text.into_text()
}

#[test]
fn a_call_is_counted_as_client_go_counts_it_and_a_run_by_its_outcome() {
    let (command, stderr) = (|| Arc::<str>::from("p"), || Arc::<str>::from(""));
    let io = || Arc::new(io::Error::from(io::ErrorKind::PermissionDenied));
    let seconds = Duration::from_secs;
    let table = [
        (
            RunError { stderr: stderr(), ..RunError::new(command(), RunErrorKind::Exit(7)) },
            "7",
            "plugin_execution_error",
            "exit",
        ),
        (
            RunError { stderr: stderr(), ..RunError::new(command(), RunErrorKind::Signal(9)) },
            "-1",
            "plugin_execution_error",
            "signal",
        ),
        (
            RunError {
                stderr: stderr(),
                ..RunError::new(command(), RunErrorKind::Timeout(seconds(1), "timeout"))
            },
            "-1",
            "plugin_execution_error",
            "timeout",
        ),
        (
            RunError::new(command(), RunErrorKind::OutputTooLarge(1)),
            "-1",
            "plugin_execution_error",
            "output_too_large",
        ),
        (
            RunError { stderr: stderr(), ..RunError::new(command(), RunErrorKind::NeedsTerminal) },
            "-1",
            "plugin_execution_error",
            "interaction_required",
        ),
        (RunError::new(command(), RunErrorKind::Recursion), "-1", "plugin_execution_error", "recursion"),
        (
            RunError::new(command(), RunErrorKind::Decode(DecodeError::Empty)),
            "0",
            "no_error",
            "invalid_output",
        ),
        (
            RunError::new(command(), RunErrorKind::NotFound(String::new())),
            "1",
            "plugin_not_found_error",
            "not_found",
        ),
        (RunError::new(command(), RunErrorKind::Spawn(io())), "1", "plugin_not_found_error", "not_started"),
        (
            RunError::new(command(), RunErrorKind::ArgumentsTooLong(1)),
            "1",
            "client_internal_error",
            "not_started",
        ),
        (
            RunError::new(command(), RunErrorKind::NotAllowed(Refusal::Digest(String::new()))),
            "1",
            "client_internal_error",
            "not_started",
        ),
        (RunError::new(command(), RunErrorKind::Panicked), "1", "client_internal_error", "panicked"),
    ];
    for (error, code, status, expected) in table {
        assert_eq!(failed_run(&error).0.name(), expected, "{error}");
        let metrics = Metrics::default();
        called(&metrics, &Err(error));
        let line =
            format!("rest_client_exec_plugin_call_total{{code=\"{code}\",call_status=\"{status}\"}} 1\n");
        let text = written(&metrics);
        assert!(text.contains(&line), "{line}{text}");
        assert!(text.contains("policy_call_total{status=\"allowed\"} 1\n"), "{text}");
        assert!(text.contains("rest_client_exec_plugin_ttl_seconds inf\n"), "{text}");
    }
}

#[test]
fn a_plugin_that_the_policy_denies_is_not_called() {
    let command = || Arc::<str>::from("p");
    let metrics = Metrics::default();
    for refusal in [Refusal::DenyAll, Refusal::NotListed("p".into())] {
        let error = RunError::new(command(), RunErrorKind::NotAllowed(refusal));
        assert_eq!(failed_run(&error).0.name(), "policy_denied");
        called(&metrics, &Err(error));
    }
    let unasked = RunError::new(command(), RunErrorKind::ExecInfo(ExecInfoError::Config(1, 1)));
    called(&metrics, &Err(unasked));
    let text = written(&metrics);
    assert!(text.contains("policy_call_total{status=\"denied\"} 2\n"), "{text}");
    assert!(text.contains("policy_call_total{status=\"allowed\"} 0\n"), "{text}");
    assert!(!text.contains("rest_client_exec_plugin_call_total{"), "{text}");
}
