//! What the launcher adds to a plugin run.

use std::{fs, path::Path, process::Command};

use anyhow::Result;
use credbroker_lab::{
    programs,
    report::{Report, figure, median, section},
};

use crate::timer::{ROUNDS, RUNS, lives};

/// In milliseconds.
const LIMIT: f64 = 1.5;

pub(crate) fn measure(report: &mut Report, directory: &Path) -> Result<()> {
    fs::create_dir(directory)?;
    let plugin = programs::c_program("nothing", directory, None)?;
    let broker = programs::credbroker()?;
    let launched = |sandbox| {
        let mut launcher = Command::new(&broker);
        launcher.args(["launch", sandbox, "120"]).arg(&plugin);
        launcher
    };
    let programs = [Command::new(&plugin), launched("Strict"), launched("Compatible")];
    let rounds = lives(directory, &programs, &[])?;

    section(&format!(
        "Launcher: a plugin that does nothing, {RUNS} runs in each of {ROUNDS} rounds, in turns"
    ));
    let time =
        |of: usize| median(rounds.iter().filter_map(|round| Some(round.get(of)?.time.as_secs_f64() * 1e3)));
    figure("started thinly, p50", &format!("{:.2} ms", time(0)));
    for (index, sandbox) in [(1, "Strict"), (2, "Compatible")] {
        figure(&format!("under the launcher, {sandbox}, p50"), &format!("{:.2} ms", time(index)));
        let more = median(rounds.iter().filter_map(|round| {
            let (launched, thin) = (round.get(index)?.time, round.first()?.time);
            Some((launched.as_secs_f64() - thin.as_secs_f64()) * 1e3)
        }));
        report.limited(&format!("more, {sandbox}"), &format!("{more:.2} ms"), "1.50 ms", more <= LIMIT);
    }
    Ok(())
}
