//! The shim's whole life, beside that of the least program that could do its job.

use std::{
    io::Write,
    os::unix::net::UnixListener,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};

use crate::{
    broker::PROVIDER,
    daemon::{self, Subject},
    report::{Report, figure, percentile, section},
};

const RUNS: usize = 1000;
const WARM_UP: usize = 50;
const LIMIT: f64 = 2.0;

pub(crate) fn measure(
    report: &mut Report,
    directory: &Path,
    shim: &Path,
    baseline: &Path,
    subject: Subject,
) -> Result<()> {
    let broker = daemon::start(directory, subject)?;
    let mut shim = quiet(shim);
    shim.args(["--provider", PROVIDER, "--socket"]).arg(&broker.socket);
    let document = shim.output()?.stdout;

    let socket = directory.join("baseline.sock");
    serve(UnixListener::bind(&socket)?, document.clone());
    let mut baseline = quiet(baseline);
    baseline.arg(&socket);

    let (mut shim_times, mut baseline_times) = (Vec::new(), Vec::new());
    for run in 0..RUNS + WARM_UP {
        let (shim_took, baseline_took) = (timed(&mut shim, &document)?, timed(&mut baseline, &document)?);
        if run >= WARM_UP {
            shim_times.push(shim_took);
            baseline_times.push(baseline_took);
        }
    }
    shim_times.sort_unstable();
    baseline_times.sort_unstable();

    section(&format!("Warm: whole process, {RUNS} runs each, in turns, {} bytes printed", document.len()));
    for (name, times) in [("credbroker-exec", &shim_times), ("static C", &baseline_times)] {
        figure(&format!("{name}, p50"), &micros(percentile(times, 50)));
        figure(&format!("{name}, p99"), &micros(percentile(times, 99)));
    }
    let ratio = percentile(&shim_times, 50).as_secs_f64() / percentile(&baseline_times, 50).as_secs_f64();
    report.limited("ratio of the p50", &format!("{ratio:.2}"), "2.00", ratio <= LIMIT);
    Ok(())
}

fn micros(duration: Duration) -> String {
    format!("{} µs", duration.as_micros())
}

fn quiet(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).stderr(Stdio::null());
    command
}

/// From before it is started until it is gone and its output is read.
fn timed(command: &mut Command, expected: &[u8]) -> Result<Duration> {
    let start = Instant::now();
    let output = command.output()?;
    let took = start.elapsed();
    ensure!(output.status.success() && same_but_for_the_time(&output.stdout, expected), "{command:?}");
    Ok(took)
}

/// A document near its end may say another time; its length is the same.
fn same_but_for_the_time(found: &[u8], expected: &[u8]) -> bool {
    found.len() == expected.len()
}

fn serve(listener: UnixListener, document: Vec<u8>) {
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            drop({ stream }.write_all(&document));
        }
    });
}
