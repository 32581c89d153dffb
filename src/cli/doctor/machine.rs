//! The programs of credbroker, and the clock of the machine.

use std::path::Path;

use credbroker_plugin::Environment;

use super::{
    Checks, RESTART,
    findings::{BAD, GOOD, NOTE, WARNING},
};
use crate::cli::{programs, recorded};

const VERSION: &str = env!("CARGO_PKG_VERSION");

impl Checks<'_> {
    /// Whether the broker, this program and the shim, which may be the one at `beside`, are of one version.
    pub(super) fn versions(&mut self, beside: &Path) {
        const CHECK: &str = "versions";
        let (shim, findings) = (shim(beside, self.environment), &mut self.findings);
        let running = self.running.as_ref().map(|running| &running.broker.version);
        if let Some(version) = running.filter(|version| *version != VERSION) {
            let text = format!("the running broker has version {version}, this program {VERSION}");
            findings.add(CHECK, WARNING, text, RESTART);
        }
        let started = self.running.as_ref().and_then(|running| running.broker.started_at);
        if let Some(path) = recorded::changed_since(started, self.environment) {
            let text = format!("{} has changed since the running broker started", path.display());
            findings.add(CHECK, WARNING, text, RESTART);
        }
        match shim {
            None => {
                let text = "credbroker-exec is neither on PATH nor next to this program";
                findings.add(CHECK, BAD, text, "install it");
            }
            Some((path, None)) => {
                findings.add(CHECK, BAD, format!("{path} does not run"), "install credbroker-exec again");
            }
            Some((path, Some(version))) if version != VERSION => {
                let text = format!("{path} has version {version}, this program {VERSION}");
                findings.add(CHECK, WARNING, text, "install both from one release");
            }
            Some(_) => {}
        }
        findings.or(CHECK, GOOD, || format!("the programs have version {VERSION}"));
    }

    /// Whether the wall clock is synchronized: with a wrong one, every credential looks expired or lives too long.
    pub(super) fn clock(&mut self) {
        const CHECK: &str = "clock";
        let args = ["show", "--property=NTPSynchronized", "--value"];
        let ran = programs::run("timedatectl", &args, self.environment).filter(|ran| ran.succeeded);
        let wrong = "not synchronized; with a wrong clock, credentials seem to be expired or live too long";
        let remedy = "start a time service, for example with `timedatectl set-ntp true`";
        let (level, text, remedy) = match ran.as_ref().map(|ran| ran.stdout.trim()) {
            Some("yes") => (GOOD, "synchronized", ""),
            Some("no") => (WARNING, wrong, remedy),
            _ => (NOTE, "cannot determine whether the clock is synchronized", ""),
        };
        self.findings.add(CHECK, level, text, remedy);
    }
}

fn shim(beside: &Path, environment: &Environment) -> Option<(String, Option<String>)> {
    let (path, is_subcommand) = programs::shim(beside, environment);
    let name = path.to_str().filter(|_| path.is_file())?.to_owned();
    let args: &[&str] = if is_subcommand { &["shim", "--version"] } else { &["--version"] };
    let ran = programs::run(&name, args, environment).filter(|ran| ran.succeeded);
    let version = ran.and_then(|ran| Some(ran.stdout.split_whitespace().nth(1)?.to_owned()));
    Some((name, version))
}
