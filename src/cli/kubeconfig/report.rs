//! What the commands say about the users of a kubeconfig.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use super::keep::Kept;
use credbroker_config::{Definitions, kubeconfig::Kubeconfig};
use credbroker_credential::text::listed_all;

/// Warns of users that stay as they are.
pub(super) fn warn(definitions: &Definitions, err: &mut dyn Write) -> io::Result<()> {
    for problem in &definitions.warnings {
        writeln!(err, "{}: warning: {}", problem.place(), problem.message)?;
    }
    Ok(())
}

/// Names the users of `path` that use the broker now.
pub(super) fn summarise<'a>(
    path: &Path,
    names: impl Iterator<Item = &'a str>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let names: Vec<_> = names.collect();
    let users =
        if names.len() == 1 { "user requests its credential" } else { "users request their credentials" };
    writeln!(out, "{}: {} {users} from the broker: {}", path.display(), names.len(), names.join(", "))
}

/// Why nothing can be wrapped.
pub(super) fn nothing(paths: &[PathBuf], kubeconfig: &Kubeconfig) -> String {
    let list = paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(":");
    match (paths.is_empty(), kubeconfig.files().is_empty()) {
        (true, _) => {
            "no kubeconfig: neither KUBECONFIG nor HOME is set; name one with --kubeconfig".to_owned()
        }
        (false, true) => format!("no kubeconfig: {list} not found; name one with --kubeconfig or KUBECONFIG"),
        (false, false) => {
            format!("nothing to wrap: no user of {list} runs an exec plugin that the broker can serve")
        }
    }
}

/// What of the earlier file at `path` was carried over, and what was not.
pub(super) fn carried_over(
    kept: &Kept,
    path: &Path,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<()> {
    let path = path.display();
    if !kept.carried_over.is_empty() {
        writeln!(out, "Kept what was changed in {path}: {}.", listed_all(kept.carried_over.iter().cloned()))?;
    }
    for what in &kept.left_out {
        writeln!(
            err,
            "credbroker: warning: {what} was changed in {path}, but is no longer in your kubeconfig; it was left out"
        )?;
    }
    for what in &kept.written_again {
        writeln!(
            err,
            "credbroker: warning: {what} was changed in {path}, but runs credbroker-exec; it was written again without the change"
        )?;
    }
    for name in &kept.with_plugin {
        let name = name.escape_debug();
        writeln!(
            err,
            "credbroker: warning: user `{name}` of {path} runs its plugin itself; to use the broker for it, add it to your own kubeconfig, remove it from {path}, and run this command again"
        )?;
    }
    Ok(())
}
