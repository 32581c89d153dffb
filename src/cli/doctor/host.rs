//! The checks of the machine.

use std::{collections::BTreeSet, path::Path};

use super::finding::Finding;
use crate::cli::programs;
use credbroker_config as config;
use credbroker_credential::text::listed;
use credbroker_plugin::{Command, Environment};
use credbroker_runner::find_in_path;

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
        _ => Finding::note(CHECK, "cannot determine whether the clock is synchronised"),
    }
}
