//! The checks of the machine and of the programs on it.

use std::{collections::BTreeSet, ffi::OsStr, path::Path};

use super::{broker::Running, finding::Finding};
use crate::{
    cli::programs,
    config,
    plugin::{Command, Environment, find_in_path},
    text::listed,
};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Whether the broker, the shim and this program are of one version.
pub(super) fn versions(running: Option<&Running>, beside: &Path, environment: &Environment) -> Vec<Finding> {
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

/// Whether programs that a desktop starts find what a shell finds: they have the environment of the user manager.
pub(super) fn graphical_path(file: Option<&Path>, environment: &Environment) -> Finding {
    const CHECK: &str = "desktop PATH";
    let shown = programs::systemctl(&["show-environment"], environment);
    let Some(shown) = shown.filter(|ran| ran.succeeded) else {
        return Finding::note(CHECK, "there is no systemd user manager here");
    };
    let path = shown.stdout.lines().find_map(|line| line.strip_prefix("PATH=")).unwrap_or_default();
    let own = environment.get("PATH").unwrap_or_default();
    let mut names: BTreeSet<String> = ["credbroker-exec".to_owned()].into();
    if let Ok(loaded) = config::load(file, environment) {
        names.extend(loaded.config.providers.iter().filter_map(|provider| match &provider.command {
            Command::Name(name) => Some(name.clone()),
            Command::Path(_) => None,
        }));
    }
    let is_missing =
        |name: &String| find_in_path(name, own).is_some() && find_in_path(name, path.as_ref()).is_none();
    let missing: Vec<_> = names.into_iter().filter(is_missing).collect();
    if missing.is_empty() {
        Finding::ok(CHECK, "programs that the desktop or systemd starts find the plugins too")
    } else {
        Finding::warning(
            CHECK,
            format!(
                "programs that the desktop or systemd starts do not find {}, which your shell does",
                listed(&missing)
            ),
            "run `systemctl --user import-environment PATH`, or set PATH in ~/.config/environment.d/, and restart the broker",
        )
    }
}

/// Whether the wall clock is synchronised: with a wrong one, every credential looks expired or lives too long.
pub(super) fn clock(environment: &Environment) -> Finding {
    const CHECK: &str = "clock";
    let args = ["show", "--property=NTPSynchronized", "--value"];
    let ran = programs::run("timedatectl", &args, environment).filter(|ran| ran.succeeded);
    match ran.as_ref().map(|ran| ran.stdout.trim()) {
        Some("yes") => Finding::ok(CHECK, "synchronised"),
        Some("no") => Finding::warning(
            CHECK,
            "not synchronised; with a wrong clock, credentials seem to be expired or live too long",
            "start a time service, for example with `timedatectl set-ntp true`",
        ),
        _ => Finding::note(CHECK, "it cannot be seen here whether it is synchronised"),
    }
}
