//! API clients start the shim each time that they need a credential, so its system calls are counted.

use std::{
    fs,
    process::{Command, Stdio},
};

use crate::{
    broker::Broker,
    shim::{asking, text},
};

/// From the first call of the shim's own code. The released shim makes 31 before it: std and a static libc need them to
/// start. `lab/benches/latency` counts all of them. `geteuid` is included, which only users other than root need.
const SYSTEM_CALLS: usize = 14;
/// Each further part of an answer takes two: to wait, and to read.
const FOR_A_PIECE: usize = 2;

#[test]
fn it_makes_few_system_calls_and_one_write() {
    if Command::new("strace").arg("--version").stdout(Stdio::null()).status().is_err() {
        println!("SKIPPED: strace not found, so system calls are not counted");
        return;
    }
    let broker = Broker::with_token("t");
    let trace = broker.directory.path().join("trace");
    let mut strace = Command::new("strace");
    let shim = asking(&broker);
    strace.arg("-f").arg("-o").arg(&trace).arg(shim.get_program()).args(shim.get_args());
    strace.env_clear().env("CREDBROKER_SOCKET", broker.socket()).env("PATH", "/usr/bin:/bin");
    let output = strace.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));

    let trace = fs::read_to_string(trace).unwrap();
    let own: Vec<_> = trace.lines().skip_while(|line| !line.contains(" getppid(")).collect();
    let count = |name: &str| own.iter().filter(|line| line.contains(name)).count();
    assert_eq!(count(" sendto("), 1, "the whole request in one write:\n{trace}");
    // Neither the call of exit_group nor the exit itself counts.
    let whole = own.len() - count(" exit_group(") - count(" +++ ");
    let pieces = count(" ppoll(") - 1;
    assert!((2..=SYSTEM_CALLS).contains(&(whole - pieces * FOR_A_PIECE)), "{whole} system calls:\n{trace}");
}
