//! The report.

use credbroker_lab::oracle::{Counts, Oracle};

use crate::{
    broker::Rest,
    load::Sent,
    process::{Samples, Usage},
};

/// How much the broker may use more at the end than after the start. Threads that read files come and go with the load; one
/// that each run or each change of the configuration left behind would exceed this within minutes.
const GROWTH: Usage = Usage { resident: 2 * 1024, descriptors: 16, threads: 16 };

/// Everything that was measured.
#[derive(Debug)]
pub(crate) struct Figures<'a> {
    pub(crate) load: Sent,
    pub(crate) watches: u64,
    pub(crate) reloads: usize,
    pub(crate) samples: Samples,
    pub(crate) rest: Rest,
    pub(crate) oracle: &'a Oracle,
}

/// Prints the table. Returns whether there was no violation.
pub(crate) fn print(figures: &Figures<'_>) -> bool {
    let Figures { load, watches, reloads, samples, rest, oracle } = figures;
    let counts = oracle.counts();
    println!("| What | Count |\n|---|---|");
    for (what, count) in [
        ("requests", load.requests),
        ("answers", counts.answers),
        ("abandoned calls", load.abandoned),
        ("reports of rejections", load.reports),
        ("watches opened", *watches),
        ("messages of watches", counts.messages),
        ("evictions of ten credentials", load.evictions),
        ("changes to the configuration", u64::try_from(*reloads).unwrap_or(u64::MAX)),
        ("plugin runs", rest.runs),
        ("plugin runs with a fault", rest.faults),
        ("failures without a valid credential", counts.failures.values().sum()),
        ("**wrong answers**", counts.wrong),
        ("**failures with a valid credential**", counts.failed_while_valid),
    ] {
        println!("| {what} | {count} |");
    }
    println!("\n| The broker | Start | Middle | End |\n|---|---|---|---|");
    row("resident memory, KiB", samples, |usage| usage.resident);
    row("file descriptors", samples, |usage| usage.descriptors);
    row("threads", samples, |usage| usage.threads);
    println!("| zombies | | | {} |", rest.zombies);
    println!("| processes after the stop | | | {} |", rest.processes);
    println!("| temporary files after the stop | | | {} |", rest.files);
    for (reason, count) in &counts.failures {
        println!("\n{count} failures without a valid credential: {reason}");
    }
    let violations = violations(&counts, samples, rest);
    for violation in counts.violations.values().chain(&violations) {
        println!("\nVIOLATION: {violation}");
    }
    counts.wrong == 0 && counts.failed_while_valid == 0 && violations.is_empty()
}

fn row(what: &str, samples: &Samples, value: fn(&Usage) -> u64) {
    let [start, middle, end] = [&samples.start, &samples.middle, &samples.end].map(value);
    println!("| {what} | {start} | {middle} | {end} |");
}

/// Everything that is wrong besides answers.
fn violations(counts: &Counts, samples: &Samples, rest: &Rest) -> Vec<String> {
    let mut violations = Vec::new();
    let mut check = |holds: bool, text: String| {
        if !holds {
            violations.push(text);
        }
    };
    check(counts.answers > 0 && counts.messages > 0, "there were no answers".to_owned());
    for (what, value) in [
        ("resident memory in KiB", (|usage| usage.resident) as fn(&Usage) -> u64),
        ("file descriptors", |usage| usage.descriptors),
        ("threads", |usage| usage.threads),
    ] {
        let (start, end, growth) = (value(&samples.start), value(&samples.end), value(&GROWTH));
        check(end <= start + growth, format!("{what}: {start} at the start and {end} at the end"));
    }
    check(rest.status.success(), format!("the broker exited with {}", rest.status));
    check(rest.zombies == 0, format!("{} zombies", rest.zombies));
    check(rest.processes == 0, format!("{} processes are left", rest.processes));
    check(rest.files == 0, format!("{} temporary files are left", rest.files));
    violations
}
