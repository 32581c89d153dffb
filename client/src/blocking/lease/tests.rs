use std::thread::yield_now;

use super::*;

/// What a shell script prints, and how it ends.
fn ran(script: &str) -> DepositOutputRequest {
    let command = ["/bin/sh", "-c", script, "name"].map(|word| word.as_bytes().to_vec()).to_vec();
    let environment = vec![b"A=b=c".to_vec(), b"EMPTY=".to_vec()];
    ended(LeasedRun::start(Lease { id: 7, command, environment }))
}

fn ended(mut run: LeasedRun) -> DepositOutputRequest {
    loop {
        match run.output() {
            Some(output) => return output,
            None => yield_now(),
        }
    }
}

fn text(output: &DepositOutputRequest) -> &str {
    str::from_utf8(&output.stdout).unwrap()
}

#[test]
fn a_plugin_has_the_brokers_variables_and_no_others_and_its_output_is_whole() {
    let output = ran("env | sort; pwd; printf %s \"$0\"");
    let lines: Vec<_> = text(&output).lines().filter(|line| !line.starts_with(['_', 'O', 'S'])).collect();
    assert_eq!(lines, ["A=b=c", "EMPTY=", "PWD=/", "/", "name"]);
    assert_eq!((output.lease_id, output.exit_code), (7, 0));
    let output = ran("head -c 100000 /dev/zero | tr '\\0' x; exit 3");
    assert_eq!((output.stdout.len(), output.exit_code), (100_000, 3));
}

#[test]
fn a_signal_and_a_plugin_that_cannot_be_started_have_the_exit_codes_of_shells() {
    assert_eq!(ran("kill -9 $$").exit_code, 128 + 9);
    let command = vec![b"/nonexistent".to_vec()];
    let output = ended(LeasedRun::start(Lease { id: 7, command, environment: Vec::new() }));
    assert_eq!((output.exit_code, output.stdout.len()), (NOT_STARTED, 0));
}

#[test]
fn a_plugin_that_prints_without_end_is_asked_to_end() {
    let output = ran("yes");
    assert!(output.exit_code > 128, "SIGTERM or SIGPIPE: {}", output.exit_code);
    assert!(output.stdout.len() > LEASED_OUTPUT && output.stdout.len() < 2 * LEASED_OUTPUT);
}

#[test]
fn a_run_that_is_not_needed_is_asked_to_end_and_cleans_up() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("cleaned");
    let script =
        format!("trap 'touch {}; exit' TERM; echo ready; while :; do sleep 0.01; done", file.display());
    let command = ["/bin/sh", "-c", &script].map(|word| word.as_bytes().to_vec()).to_vec();
    let mut run = LeasedRun::start(Lease { id: 7, command, environment: Vec::new() });
    while run.stdout.is_empty() {
        assert!(run.output().is_none());
    }
    drop(run);
    assert!(file.exists());
}

#[test]
fn a_process_that_is_left_behind_delays_the_output_by_some_looks() {
    let output = ran("echo out; sleep 5 &");
    assert_eq!((text(&output), output.exit_code), ("out\n", 0));
}
