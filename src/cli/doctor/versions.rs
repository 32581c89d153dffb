//! Whether the broker, the shim and this program are of one version.

use std::{ffi::OsStr, path::Path};

use super::{broker::RunningBroker, finding::Finding};
use crate::cli::programs;
use credbroker_plugin::Environment;
use credbroker_runner::find_in_path;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A finding for each difference.
pub(super) fn check(
    running: Option<&RunningBroker>,
    beside: &Path,
    environment: &Environment,
) -> Vec<Finding> {
    const CHECK: &str = "versions";
    let mut findings = Vec::new();
    if let Some(version) =
        running.map(|running| running.info.version.as_str()).filter(|other| *other != VERSION)
    {
        let text = format!("the running broker has version {version}, this program {VERSION}");
        let remedy = "restart the broker, for example with `systemctl --user restart credbroker.service`";
        findings.push(Finding::warning(CHECK, text, remedy));
    }
    match shim(beside, environment) {
        None => findings.push(
            Finding::error(CHECK, 1, "credbroker-exec is neither on PATH nor beside this program")
                .remedy("install it"),
        ),
        Some((path, None)) => findings.push(
            Finding::error(CHECK, 1, format!("{path} does not run")).remedy("install credbroker-exec again"),
        ),
        Some((path, Some(version))) if version != VERSION => findings.push(Finding::warning(
            CHECK,
            format!("{path} has version {version}, this program {VERSION}"),
            "install both from one release",
        )),
        Some(_) => {}
    }
    if findings.is_empty() {
        findings.push(Finding::ok(CHECK, format!("the programs have version {VERSION}")));
    }
    findings
}

/// The shim, and the version that it prints.
fn shim(beside: &Path, environment: &Environment) -> Option<(String, Option<String>)> {
    let found = find_in_path("credbroker-exec", environment.get("PATH").unwrap_or_default());
    let path = found.unwrap_or_else(|| beside.to_owned());
    let name = path.to_str().filter(|_| path.is_file())?.to_owned();
    let is_shim = path.file_name() == Some(OsStr::new("credbroker-exec"));
    let args: &[&str] = if is_shim { &["--version"] } else { &["shim", "--version"] };
    let ran = programs::run(&name, args, environment).filter(|ran| ran.succeeded);
    let version = ran.and_then(|ran| Some(ran.stdout.split_whitespace().nth(1)?.to_owned()));
    Some((name, version))
}
