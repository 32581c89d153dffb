//! The kubeconfigs that a command reads, the file that it writes, and the shim that it names there.

use std::{
    ffi::OsString,
    io::{self, Write},
    path::{Path, PathBuf},
};

use anyhow::Context as _;

use crate::cli::{
    broker::SocketArg,
    console::Console,
    files::{Locked, is_same, joined},
    programs,
};
use credbroker_config::{
    self as config, Definitions,
    kubeconfig::{Kubeconfig, Mode, Shim},
};
use credbroker_credential::document::Node;
use credbroker_plugin::Environment;

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
        match (list.as_str(), self.kubeconfig.files.as_slice()) {
            ("", _) => {
                "no kubeconfig: neither KUBECONFIG nor HOME is set; name one with --kubeconfig".to_owned()
            }
            (_, []) => format!("no kubeconfig: {list} not found; name one with --kubeconfig or KUBECONFIG"),
            _ => format!("nothing to wrap: no user of {list} runs an exec plugin that the broker can serve"),
        }
    }
}

/// The file to write. `-` is standard output: `None`.
pub(super) fn output(path: Option<&Path>) -> Option<&Path> {
    path.filter(|path| *path != Path::new("-"))
}

/// Locks `path`, which must not be one of `inputs`. A file that is not empty is only replaced if `may_replace` says so:
/// `command` wrote it, or a person wants it. It is asked when no other program can change the file, with the kubeconfig that
/// is there and has no problem, which is returned too.
pub(super) fn open(
    path: &Path,
    inputs: &[PathBuf],
    command: &str,
    may_replace: impl FnOnce(Option<&Node>) -> bool,
) -> anyhow::Result<(Locked, Option<Node>)> {
    if let Some(input) = inputs.iter().find(|input| is_same(path, input)) {
        let (shown, input) = (path.display(), input.display());
        anyhow::bail!(
            "{shown} is one of the kubeconfigs that were read ({input}), which are never written; name another file"
        );
    }
    let file = Locked::take(path)?;
    let contents = file.read()?.unwrap_or_default();
    let found = config::read_kubeconfig(&[std::path::absolute(path)?], Mode::Named).ok();
    let earlier = found.and_then(|found| Some(found.files.first()?.root.clone()));
    anyhow::ensure!(
        contents.trim_ascii().is_empty() || may_replace(earlier.as_ref()),
        "{} has contents that `credbroker kubeconfig {command}` did not write; name another file, or overwrite it with --force",
        path.display()
    );
    Ok((file, earlier))
}

/// Names the users of `path` that use the broker now.
pub(super) fn summarise(path: &Path, names: &[String], out: &mut dyn Write) -> io::Result<()> {
    let users =
        if names.len() == 1 { "user requests its credential" } else { "users request their credentials" };
    writeln!(out, "{}: {} {users} from the broker: {}", path.display(), names.len(), names.join(", "))
}

/// How a kubeconfig runs the shim: the one that `PATH` leads to, else that of the console, by its absolute path; with `bare`
/// by its name. It uses the flags of `socket` that are set, else its defaults.
pub(super) fn shim(console: &Console<'_>, socket: &SocketArg, bare: bool) -> anyhow::Result<Shim> {
    let flags = flags(socket)?;
    if bare {
        return Ok(Shim { command: "credbroker-exec".to_owned(), is_subcommand: false, flags });
    }
    let (path, is_subcommand) = programs::shim(console.shim, console.environment);
    let command = path.to_str().context("the path of credbroker-exec is not UTF-8")?.to_owned();
    anyhow::ensure!(
        path.is_absolute() && path.exists(),
        "credbroker-exec is neither on PATH nor at {command}; install it"
    );
    Ok(Shim { command, is_subcommand, flags })
}

/// `--socket` and `--server-uid`, checked. The path is absolute, because a kubeconfig can be used in any directory.
fn flags(socket: &SocketArg) -> anyhow::Result<Vec<(String, String)>> {
    socket.locate(&Environment::default())?;
    let absolute = |path: &OsString| {
        let is_url = path.as_encoded_bytes().starts_with(b"unix:");
        if is_url { Ok(path.clone()) } else { std::path::absolute(path).map(OsString::from) }
    };
    let path = socket.path.as_ref().map(absolute).transpose()?;
    let mut flags = Vec::new();
    for (flag, value) in [("--socket", path), ("--server-uid", socket.server_uid.clone())] {
        let text = value.map(OsString::into_string).transpose();
        let text = text.ok().context("the path of the socket is not UTF-8")?;
        flags.extend(text.map(|text| (flag.to_owned(), text)));
    }
    Ok(flags)
}

#[cfg(test)]
mod tests;
