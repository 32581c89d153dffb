//! Many shims in parallel, and nothing in the cache.

use std::{
    collections::HashSet,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use credbroker_lab::{
    broker::PROVIDER,
    daemon::{self, Subject},
    report::{Report, section},
};

const SHIMS: usize = 200;
const LIMIT: Duration = Duration::from_secs(2);

pub(crate) fn measure(report: &mut Report, directory: &Path, shim: &Path, subject: Subject) -> Result<()> {
    let broker = daemon::start(directory, subject)?;
    let mut command = Command::new(shim);
    command.args(["--provider", PROVIDER, "--socket"]).arg(&broker.socket);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());

    let start = Instant::now();
    let children: Vec<_> = (0..SHIMS).map(|_| command.spawn()).collect::<Result<_, _>>().context("a shim")?;
    let mut answers = HashSet::new();
    for child in children {
        let output = child.wait_with_output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        answers.insert(output.stdout);
    }
    let took = start.elapsed();

    section(&format!("Cold: {SHIMS} shims in parallel, plugin takes 200 ms"));
    if matches!(subject, Subject::Daemon) {
        report.limited("plugin runs", &broker.runs().to_string(), "1", broker.runs() == 1);
    }
    report.limited("different answers", &answers.len().to_string(), "1", answers.len() == 1);
    let value = format!("{} ms", took.as_millis());
    report.limited("from the first start to the last exit", &value, "2000 ms", took < LIMIT);
    Ok(())
}
