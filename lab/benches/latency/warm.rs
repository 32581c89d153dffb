//! The shim's whole life, beside those of the least programs that could do its job.

use std::{
    io::Write,
    os::unix::net::UnixListener,
    path::Path,
    process::{Command, Stdio},
    thread,
};

use anyhow::Result;
use credbroker_lab::{
    broker::PROVIDER,
    daemon::{self, Subject},
    programs,
    report::{Report, figure, median, percentile, section},
};

use crate::{
    shim,
    timer::{ROUNDS, RUNS, lives},
};

const PROGRAMS: [&str; 4] = [
    "a C program that does nothing",
    "baseline.c, trivial server",
    "recorded.c, the broker",
    "credbroker-exec",
];
/// The shim beside the C program that sends what it sends.
const LIMIT: f64 = 1.35;
const FAULTS: u64 = 50;

pub(crate) fn measure(report: &mut Report, directory: &Path, shim: &Path, subject: Subject) -> Result<()> {
    let broker = daemon::start(directory, subject)?;
    let mut first = Command::new(shim);
    first.args(["--provider", PROVIDER, "--socket"]).arg(&broker.socket).stdin(Stdio::null());
    let document = first.output()?.stdout;
    let length = document.len();
    shim::measure(report, shim, &broker)?;

    let socket = directory.join("baseline.sock");
    serve(UnixListener::bind(&socket)?, document);
    let c_program = |name| programs::c_program(name, directory, None);
    let with_socket = |program: &Path, socket: &Path| {
        let mut command = Command::new(program);
        command.arg(socket);
        command
    };
    let mut last = Command::new(shim);
    last.args(["--provider", PROVIDER, "--socket"]).arg(&broker.socket);
    let programs = [
        Command::new(c_program("nothing")?),
        with_socket(&c_program("baseline")?, &socket),
        with_socket(&programs::recorded(directory, shim)?, &broker.socket),
        last,
    ];
    let rounds = lives(directory, &programs)?;

    section(&format!(
        "Warm: whole processes, {RUNS} runs in each of {ROUNDS} rounds, in turns, {length} bytes printed"
    ));
    for (index, name) in PROGRAMS.into_iter().enumerate() {
        let mut p50s: Vec<_> = rounds.iter().filter_map(|round| Some(round.get(index)?.time)).collect();
        let each = p50s.iter().map(|time| time.as_micros().to_string()).collect::<Vec<_>>().join(" ");
        p50s.sort_unstable();
        figure(&format!("{name}, p50"), &format!("{} µs ({each})", percentile(&p50s, 50).as_micros()));
    }
    let ratio = |above: usize, below: usize| {
        median(rounds.iter().filter_map(|round| Some(round.get(above)?.over(round.get(below)?))))
    };
    figure("recorded.c / baseline.c, 1.30 on a quiet machine", &format!("{:.2}", ratio(2, 1)));
    figure("credbroker-exec / baseline.c", &format!("{:.2}", ratio(3, 1)));
    report.ratio("credbroker-exec / recorded.c", ratio(3, 2), LIMIT);
    let faults =
        rounds.iter().filter_map(|round| round.get(3)).map(|shim| shim.faults).max().unwrap_or(u64::MAX);
    let (value, limit) = (faults.to_string(), FAULTS.to_string());
    report.limited("page faults of credbroker-exec", &value, &limit, faults <= FAULTS);
    Ok(())
}

fn serve(listener: UnixListener, document: Vec<u8>) {
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            drop({ stream }.write_all(&document));
        }
    });
}
