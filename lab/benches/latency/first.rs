//! The first request for a credential: what the broker adds to its plugin.

use std::{
    path::Path,
    process::{Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use credbroker_lab::{
    broker, programs,
    report::{Report, figure, percentile, section},
};

const RUNS: usize = 200;
const PROVIDER: &str = "first";
/// Beyond the plugin.
const P50: Duration = Duration::from_millis(4);
const P90: Duration = Duration::from_millis(6);
/// So that one run is over when the next one begins.
const PAUSE: Duration = Duration::from_millis(10);

pub(crate) fn measure(report: &mut Report, directory: &Path, shim: &Path) -> Result<()> {
    broker::private(directory)?;
    let plugin = programs::c_program("plugin", directory, None)?;
    // The rate of the issuer is not what is measured.
    let more = format!(
        "- name: {PROVIDER}\n  callerEnv: [AWS_PROFILE]\n  \
         execConfig: {{apiVersion: client.authentication.k8s.io/v1, command: {}, interactiveMode: Never}}\n\
         issuers: [{{name: {PROVIDER}, runsPerSecond: 1000, concurrency: 8}}]\n",
        plugin.display()
    );
    // The script of the other provider has its own directory: a plugin is a file of that name.
    let other = directory.join("broker");
    broker::private(&other)?;
    let broker = broker::start(&other, "#!/bin/sh\n", &more)?;

    let (mut alone, mut first, mut again) = (Vec::new(), Vec::new(), Vec::new());
    for run in 0..RUNS {
        alone.push(life(&mut Command::new(&plugin))?);
        let mut asking = Command::new(shim);
        asking.args(["--provider", PROVIDER, "--socket"]).arg(&broker.socket);
        asking.env("AWS_PROFILE", format!("profile-{run}"));
        first.push(life(&mut asking)?);
        again.push(life(&mut asking)?);
        sleep(PAUSE);
    }
    for times in [&mut alone, &mut first, &mut again] {
        times.sort_unstable();
    }
    section(&format!("First get: {RUNS} credentials, whole processes, in turns; the plugin takes 2 ms"));
    let millis = |time: Duration| format!("{:.2} ms", time.as_secs_f64() * 1e3);
    let plugin = percentile(&alone, 50);
    figure("the plugin alone, p50", &millis(plugin));
    figure("the shim, p50", &millis(percentile(&first, 50)));
    for (percent, limit) in [(50, P50), (90, P90)] {
        let beyond = percentile(&first, percent).saturating_sub(plugin);
        let name = format!("beyond the plugin, p{percent}");
        report.limited(&name, &millis(beyond), &millis(limit), beyond <= limit);
    }
    let warm = percentile(&again, 50);
    figure("of it the shim's life, as in a second get", &millis(warm));
    let run = percentile(&first, 50).saturating_sub(plugin).saturating_sub(warm);
    figure("of it the run: launcher, directory, threads", &millis(run));
    Ok(())
}

fn life(program: &mut Command) -> Result<Duration> {
    program.env_remove("PATH").stdin(Stdio::null()).stdout(Stdio::null());
    let start = Instant::now();
    let status = program.status()?;
    let life = start.elapsed();
    ensure!(status.success(), "{program:?}: {status}");
    Ok(life)
}
