//! The shim's whole life, beside those of the least programs that could do its job.

use std::{
    fs,
    io::Write,
    os::unix::net::UnixListener,
    path::Path,
    process::{Command, Stdio},
    thread,
};

use anyhow::Result;
use credbroker_lab::{
    broker::PROVIDER,
    daemon::{self, KUBECTL, Subject},
    programs,
    report::{Report, figure, median, percentile, section},
};

use crate::{
    kubectl, shim,
    timer::{Life, ROUNDS, RUNS, lives},
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
    let asking = |provider| {
        let mut command = Command::new(shim);
        command.args(["--provider", provider, "--socket"]).arg(&broker.socket).stdin(Stdio::null());
        command
    };
    let document = asking(PROVIDER).output()?.stdout;
    let length = document.len();
    shim::measure(report, shim, &broker)?;

    let socket = directory.join("baseline.sock");
    serve(UnixListener::bind(&socket)?, document);
    let programs = [
        Command::new(programs::c_program("nothing", directory, None)?),
        with_socket(&programs::c_program("baseline", directory, None)?, &socket),
        with_socket(&programs::recorded(directory, shim, PROVIDER, &[])?, &broker.socket),
        asking(PROVIDER),
    ];
    section(&format!(
        "Warm: whole processes, {RUNS} runs in each of {ROUNDS} rounds, in turns, {length} bytes printed"
    ));
    let rounds = lives(directory, &programs, &[])?;
    times(&PROGRAMS, &rounds);
    figure("recorded.c / baseline.c, 1.30 on a quiet machine", &format!("{:.2}", ratio(&rounds, 2, 1)));
    figure("credbroker-exec / baseline.c", &format!("{:.2}", ratio(&rounds, 3, 1)));
    report.ratio("credbroker-exec / recorded.c", ratio(&rounds, 3, 2), LIMIT);
    let most = faults(&rounds, 3);
    report.limited("page faults of credbroker-exec", &most.to_string(), &FAULTS.to_string(), most <= FAULTS);

    let environment = kubectl::environment();
    let directory = directory.join("kubectl");
    fs::create_dir(&directory)?;
    let recorded = programs::recorded(&directory, shim, KUBECTL, &environment)?;
    let programs = [with_socket(&recorded, &broker.socket), asking(KUBECTL)];
    section(&format!("Warm: the same in an environment of kubectl, {} variables", environment.len()));
    let rounds = lives(&directory, &programs, &environment)?;
    times(&PROGRAMS[2..], &rounds);
    report.ratio("credbroker-exec / recorded.c", ratio(&rounds, 1, 0), LIMIT);
    figure("page faults of credbroker-exec", &faults(&rounds, 1).to_string());
    Ok(())
}

fn with_socket(program: &Path, socket: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg(socket);
    command
}

fn times(programs: &[&str], rounds: &[Vec<Life>]) {
    for (index, name) in programs.iter().enumerate() {
        let mut p50s: Vec<_> = rounds.iter().filter_map(|round| Some(round.get(index)?.time)).collect();
        let each = p50s.iter().map(|time| time.as_micros().to_string()).collect::<Vec<_>>().join(" ");
        p50s.sort_unstable();
        figure(&format!("{name}, p50"), &format!("{} µs ({each})", percentile(&p50s, 50).as_micros()));
    }
}

/// The median of the rounds.
fn ratio(rounds: &[Vec<Life>], above: usize, below: usize) -> f64 {
    median(rounds.iter().filter_map(|round| Some(round.get(above)?.over(round.get(below)?))))
}

/// The most of any round.
fn faults(rounds: &[Vec<Life>], program: usize) -> u64 {
    rounds.iter().filter_map(|round| Some(round.get(program)?.faults)).max().unwrap_or(u64::MAX)
}

fn serve(listener: UnixListener, document: Vec<u8>) {
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            drop({ stream }.write_all(&document));
        }
    });
}
