//! `credbroker setup --undo`.

use std::{
    fs, io,
    io::Write,
    os::unix::{ffi::OsStrExt as _, net::UnixStream},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::{apply::systemctl, manifest::Manifest};
use crate::cli::kubeconfig::{self, BrokerConfig};
use credbroker_plugin::Environment;

/// For a person, one line each.
pub(super) fn lines(manifest: &Manifest) -> Vec<String> {
    let mut lines = Vec::new();
    if manifest.units {
        lines.push("the user units of systemd, which are stopped and disabled".to_owned());
    }
    lines.extend(
        manifest
            .on_demand
            .iter()
            .map(|program| format!("the broker that was started on demand: {}", program.display())),
    );
    if let Some((config, added)) = &manifest.added {
        lines.extend(
            added.iter().map(|path| format!("{} from `kubeconfigs` of {}", path.display(), config.display())),
        );
    }
    lines.extend(manifest.files().chain(&manifest.copy).map(|path| path.display().to_string()));
    lines
}

pub(super) fn undo(
    manifest: &Manifest,
    own: &Path,
    environment: &Environment,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    // This step can need a person; until it is done, nothing is gone.
    if let Some((path, added)) = &manifest.added {
        let config = BrokerConfig { path: path.clone(), exists: path.exists() };
        for kubeconfig in added {
            config.remove(kubeconfig, environment)?;
        }
    }
    // The units may be gone already, or the user manager.
    let mut manage = |args: &[&str]| match manifest.units.then(|| systemctl(args, environment)) {
        Some(Err(error)) => writeln!(out, "{error:#}"),
        _ => Ok(()),
    };
    manage(&["disable", "--now", "credbroker.socket", "credbroker.service"])?;
    let mut left = Vec::new();
    for path in manifest.files() {
        if manifest.may_write(path) { remove(path)? } else { left.push(path.clone()) }
    }
    if let Some(program) = &manifest.on_demand {
        stop(program, environment);
    }
    manage(&["daemon-reload"])?;
    if let Some(copy) = manifest.copy.as_ref().filter(|copy| copy.exists()) {
        if kubeconfig::is_unchanged_copy(copy) { remove(copy)? } else { left.push(copy.clone()) }
    }
    remove(&Manifest::path(own))?;
    // Only an empty directory is removed.
    drop(fs::remove_dir(own));
    for path in &left {
        writeln!(out, "{} was changed since, and stays; remove it if you do not need it", path.display())?;
    }
    let line = manifest
        .copy
        .as_ref()
        .map(|copy| format!(" Remove the line with {} from the profile of your shell.", copy.display()));
    writeln!(out, "Undone.{}", line.unwrap_or_default())?;
    Ok(())
}

fn remove(path: &PathBuf) -> anyhow::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("{} cannot be removed", path.display()))
        }
        _ => Ok(()),
    }
}

/// Stops the broker that listens on this user's own socket, if it is `program`.
fn stop(program: &Path, environment: &Environment) {
    let Some(runtime) = environment.set("XDG_RUNTIME_DIR").map(Path::new) else { return };
    let socket = runtime.join("credbroker/credbroker.sock");
    let peer = UnixStream::connect(socket)
        .ok()
        .and_then(|stream| Some(rustix::net::sockopt::socket_peercred(stream).ok()?.pid));
    // The broker hides the link to its program; its command line is what the shim gave it.
    let command = [program.as_os_str().as_bytes(), b"\0serve\0--detached\0"].concat();
    let is_it = |pid: Pid| {
        fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).is_ok_and(|found| found == command)
    };
    // Held before the look: its number may be another process's afterwards.
    let held = peer.and_then(|pid| Some((pid, pidfd_open(pid, PidfdFlags::empty()).ok()?)));
    if let Some((_, held)) = held.filter(|(pid, _)| is_it(*pid)) {
        let _gone_already = pidfd_send_signal(held, Signal::TERM);
    }
}
