//! How the broker of this user is started, as `credbroker setup` recorded it.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use credbroker_exec::OnDemand;
use credbroker_plugin::Environment;
use serde_json::json;

/// Where units of a user are, below `~/.config`.
pub(super) const UNITS: &str = "systemd/user";

/// The unit that `setup` writes, and the mark for the shim. `None`: there is no home.
pub(super) fn places(environment: &Environment) -> Option<[PathBuf; 2]> {
    let variable = |name| environment.set(name).map(Path::new);
    let home = variable("HOME")?;
    let mark = OnDemand::path(variable("XDG_CONFIG_HOME"), Some(home))?;
    Some([home.join(".config").join(UNITS).join("credbroker.service"), mark])
}

/// A variable of a unit, as systemd reads it: the escapes of JSON, and no specifiers.
pub(super) fn assignment(name: &str, value: &str) -> String {
    format!("Environment={}\n", json!(format!("{name}={value}")).to_string().replace('%', "%%"))
}

/// The `PATH` that the broker gets. `None`: none was recorded.
pub(super) fn path(environment: &Environment) -> Option<String> {
    let [unit, mark] = places(environment)?.map(|path| fs::read_to_string(path).unwrap_or_default());
    let of_line = |line: &str| {
        let text: String =
            serde_json::from_str(&line.strip_prefix("Environment=")?.replace("%%", "%")).ok()?;
        text.strip_prefix("PATH=").map(str::to_owned)
    };
    let of_mark = || serde_json::from_str::<OnDemand>(&mark).ok()?.environment.remove("PATH");
    unit.lines().find_map(of_line).or_else(of_mark)
}

/// What has changed since the broker started: this program, or what was recorded.
pub(super) fn changed_since(started: Option<SystemTime>, environment: &Environment) -> Option<PathBuf> {
    let program = std::env::current_exe().and_then(fs::canonicalize).ok();
    let is_newer = |path: &PathBuf| {
        // The time of the contents can be older: archives keep it.
        let found = fs::metadata(path).ok()?;
        let changed = Duration::new(found.ctime().try_into().ok()?, found.ctime_nsec().try_into().ok()?);
        Some(SystemTime::UNIX_EPOCH + changed > started?)
    };
    let files = program.into_iter().chain(places(environment).into_iter().flatten());
    files.into_iter().find(|path| is_newer(path) == Some(true))
}

/// The file in which the user's shell sets its variables.
pub(super) fn profile(environment: &Environment) -> String {
    let home = Path::new(environment.set("HOME").unwrap_or_default());
    let shell = environment.set("SHELL").and_then(|path| Path::new(path).file_name()?.to_str());
    let file = match shell {
        Some("zsh") => environment.set("ZDOTDIR").map_or(home, Path::new).join(".zshrc"),
        Some("bash") => home.join(".bashrc"),
        Some("fish") => home.join(".config/fish/config.fish"),
        _ => return "the profile of your shell".to_owned(),
    };
    file.display().to_string()
}
