//! The whole lives of programs, measured in turns by `timer.c`.

use std::{
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use credbroker_lab::programs;

pub(crate) const ROUNDS: usize = 7;
pub(crate) const RUNS: usize = 800;

/// Medians of one program in one round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Life {
    pub(crate) time: Duration,
    pub(crate) faults: u64,
}

impl Life {
    pub(crate) fn over(self, other: &Self) -> f64 {
        self.time.as_secs_f64() / other.time.as_secs_f64()
    }
}

/// The lives of `programs` in each round, all of them with `environment`: variables cost a process time and memory.
pub(crate) fn lives(
    directory: &Path,
    programs: &[Command],
    environment: &[(String, String)],
) -> Result<Vec<Vec<Life>>> {
    let mut timer = Command::new(programs::c_program("timer", directory, None)?);
    timer.args([ROUNDS.to_string(), RUNS.to_string()]);
    for (index, program) in programs.iter().enumerate() {
        timer.args((index > 0).then_some("--")).arg(program.get_program()).args(program.get_args());
    }
    let output = timer
        .env_clear()
        .envs(environment.iter().cloned())
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()?;
    ensure!(output.status.success(), "{timer:?}: {}", output.status);
    let round = |line| round(line, programs.len());
    String::from_utf8(output.stdout)?.lines().map(round).collect()
}

/// A line of the timer: `NANOSECONDS/FAULTS` for each program.
fn round(line: &str, programs: usize) -> Result<Vec<Life>> {
    let lives = line.split(' ').map(|column| {
        let (nanos, faults) = column.split_once('/').with_context(|| format!("{line:?}"))?;
        Ok(Life { time: Duration::from_nanos(nanos.parse()?), faults: faults.parse()? })
    });
    let lives = lives.collect::<Result<Vec<_>>>()?;
    ensure!(lives.len() == programs, "{line:?}");
    Ok(lives)
}
