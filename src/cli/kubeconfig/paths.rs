//! The kubeconfigs that a command reads, and the file that it writes.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use crate::cli::{
    console::Console,
    files::{Locked, is_same, joined},
};
use credbroker_config::{
    self as config, Definitions,
    kubeconfig::{Kubeconfig, Mode},
};

/// What a command reads.
pub(super) struct Input {
    pub(super) paths: Vec<PathBuf>,
    pub(super) kubeconfig: Kubeconfig,
    pub(super) definitions: Definitions,
}

impl Input {
    /// Reads the kubeconfig at `named`, else those of the environment, and warns of users that stay as they are. `None`:
    /// they have problems, which were printed.
    pub(super) fn read(named: Option<&Path>, console: &mut Console<'_>) -> io::Result<Option<Self>> {
        let (paths, mode) = Kubeconfig::chosen(named, console.environment);
        let kubeconfig = match config::read_kubeconfig(&paths, mode) {
            Ok(kubeconfig) => kubeconfig,
            Err(error) => return writeln!(console.err, "{error}").map(|()| None),
        };
        let definitions = config::definitions(&kubeconfig, console.environment);
        for problem in &definitions.warnings {
            writeln!(console.err, "{}: warning: {}", problem.place(), problem.message)?;
        }
        Ok(Some(Self { paths, kubeconfig, definitions }))
    }

    /// Why nothing can be wrapped.
    pub(super) fn nothing(&self) -> String {
        let list = joined(&self.paths, ":");
        match (list.as_str(), self.kubeconfig.files()) {
            ("", _) => {
                "no kubeconfig: neither KUBECONFIG nor HOME is set; name one with --kubeconfig".to_owned()
            }
            (_, []) => format!("no kubeconfig: {list} not found; name one with --kubeconfig or KUBECONFIG"),
            _ => format!("nothing to wrap: no user of {list} runs an exec plugin that the broker can serve"),
        }
    }
}

/// The kubeconfig at `path`, if it is there and has no problem.
pub(super) fn existing(path: &Path) -> Option<Kubeconfig> {
    config::read_kubeconfig(&[std::path::absolute(path).ok()?], Mode::Named).ok()
}

/// The file to write. `-` is standard output: `None`.
pub(super) fn output(path: Option<&Path>) -> Option<&Path> {
    path.filter(|path| *path != Path::new("-"))
}

/// Locks `path`, which must not be one of `inputs`. A file that is not empty is only replaced if `may_replace` says so:
/// `command` wrote it, or a person wants it. It is asked when no other program can change the file.
pub(super) fn open(
    path: &Path,
    inputs: &[PathBuf],
    command: &str,
    may_replace: impl FnOnce() -> bool,
) -> anyhow::Result<Locked> {
    if let Some(input) = inputs.iter().find(|input| is_same(path, input)) {
        let (shown, input) = (path.display(), input.display());
        anyhow::bail!(
            "{shown} is one of the kubeconfigs that were read ({input}), which are never written; name another file"
        );
    }
    let file = Locked::take(path)?;
    let contents = file.read()?.unwrap_or_default();
    anyhow::ensure!(
        contents.trim_ascii().is_empty() || may_replace(),
        "{} has contents that `credbroker kubeconfig {command}` did not write; name another file, or overwrite it with --force",
        path.display()
    );
    Ok(file)
}

/// Names the users of `path` that use the broker now.
pub(super) fn summarise(path: &Path, names: &[&str], out: &mut dyn Write) -> io::Result<()> {
    let users =
        if names.len() == 1 { "user requests its credential" } else { "users request their credentials" };
    writeln!(out, "{}: {} {users} from the broker: {}", path.display(), names.len(), names.join(", "))
}

#[cfg(test)]
mod tests;
