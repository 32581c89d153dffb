//! What the shim is and what it asks of the kernel.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Result, bail};
use credbroker_lab::{
    broker::{PROVIDER, Running},
    report::{Report, figure, section},
};

const SIZE: u64 = 1_640_000;
const SYSTEM_CALLS: usize = 45;

pub(crate) fn measure(report: &mut Report, shim: &Path, broker: &Running) -> Result<()> {
    section("The static shim");
    let size = fs::metadata(shim)?.len();
    report.limited("size", &format!("{size} bytes"), &format!("{SIZE} bytes"), size <= SIZE);
    match system_calls(shim, broker)? {
        Some(calls) => {
            let (value, limit) = (calls.to_string(), SYSTEM_CALLS.to_string());
            report.limited("system calls, answer in one piece", &value, &limit, calls <= SYSTEM_CALLS);
        }
        None => figure("system calls", "NOT COUNTED: there is no strace"),
    }
    Ok(())
}

/// Without the end of the process, and without the two calls that each further piece of an answer takes.
fn system_calls(shim: &Path, broker: &Running) -> Result<Option<usize>> {
    let trace = broker.directory.join("trace");
    let mut strace = Command::new("strace");
    strace.arg("-o").arg(&trace).arg(shim).args(["--provider", PROVIDER, "--socket"]).arg(&broker.socket);
    // In a terminal's environment it would look for one, which takes one call more.
    strace.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    let Ok(output) = strace.stdin(Stdio::null()).output() else { return Ok(None) };
    if !output.status.success() {
        bail!("{strace:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let trace = fs::read_to_string(trace)?;
    let count = |name| trace.lines().filter(|line| line.starts_with(name)).count();
    let pieces = count("ppoll(").saturating_sub(1);
    Ok(Some(trace.lines().count() - count("exit_group(") - count("+++ ") - 2 * pieces))
}
