//! Where a kubeconfig is written, and what a person reads about it.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use crate::cli::files::{Locked, is_same};
use credbroker_config::{Definitions, kubeconfig::Kubeconfig};

/// A file that is not an input, locked.
#[derive(Debug)]
pub(super) struct Output {
    name: PathBuf,
    file: Locked,
}

impl Output {
    /// `-` is standard output: `None`.
    pub(super) fn named(path: Option<&Path>) -> Option<&Path> {
        path.filter(|path| *path != Path::new("-"))
    }

    /// Locks `path`, which must not be one of `inputs`. A file that is not empty is only replaced if `may_replace` says
    /// so: `command` wrote it, or a person wants it. It is asked when no other program can change the file.
    pub(super) fn open(
        path: &Path,
        inputs: &[PathBuf],
        command: &str,
        may_replace: impl FnOnce() -> bool,
    ) -> anyhow::Result<Self> {
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
        Ok(Self { name: path.to_owned(), file })
    }

    /// Replaces the file by one with `text` and mode 0600. Returns what a person should know about it.
    pub(super) fn write(&self, text: &str) -> anyhow::Result<Option<String>> {
        self.file.write_private(text)?;
        let target = self.file.target_of_link();
        Ok(target.map(|real| {
            let name = self.name.display();
            format!("{name} is a symbolic link; the file that it leads to was written: {}", real.display())
        }))
    }
}

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

#[cfg(test)]
mod tests;
