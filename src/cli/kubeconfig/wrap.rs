//! `credbroker kubeconfig wrap`.

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use super::{
    emit,
    merge::{Entries, map, merged},
    output,
    shim::Shim,
};
use crate::{
    cli::EX_CONFIG,
    config::{
        self, ConfigError,
        kubeconfig::{Kubeconfig, Mode, is_shim},
    },
    plugin::Environment,
};

/// Write your kubeconfig anew with every exec user replaced by credbroker's shim
///
/// Contexts, clusters and other users stay as they are; relative paths become absolute. The files
/// that are read, all of KUBECONFIG or ~/.kube/config, are not touched. Each exec user becomes one
/// that asks the broker for the provider of the user's name:
///
///   credbroker serve &
///   credbroker kubeconfig wrap -o ~/.kube/broker
///   KUBECONFIG=~/.kube/broker kubectl get pods
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// Read this file only [default: all files of $KUBECONFIG, else ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Write to this file, with mode 0600; not one of those that are read [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Socket that the shim is to use [default: it looks for itself, see `credbroker-exec --help`]
    #[arg(long, value_name = "PATH")]
    socket: Option<String>,
}

pub(super) fn run(
    args: &Args,
    environment: &Environment,
    shim: &Path,
    out: &mut dyn Write,
) -> anyhow::Result<u8> {
    let (paths, mode) = match &args.kubeconfig {
        Some(path) => (vec![std::path::absolute(path)?], Mode::Named),
        None => (Kubeconfig::default_paths(environment), Mode::Ambient),
    };
    let kubeconfig = match config::read_kubeconfig(&paths, mode) {
        Ok(kubeconfig) => kubeconfig,
        Err(ConfigError { problems, .. }) => return Ok(bad(&problems)),
    };
    let (names, left) = config::provider_names(&kubeconfig, environment);
    if names.is_empty() && !kubeconfig.users().iter().any(|user| user.body.get("exec").is_some_and(is_shim)) {
        let list = paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(":");
        bad(&left);
        let cause = match (paths.is_empty(), kubeconfig.files().is_empty()) {
            (true, _) => "neither KUBECONFIG nor HOME is set: name a kubeconfig with --kubeconfig".to_owned(),
            (false, true) => {
                format!("there is no file {list}: name a kubeconfig with --kubeconfig or KUBECONFIG")
            }
            (false, false) => format!("no user of {list} runs an exec plugin: there is nothing to wrap"),
        };
        return Ok(bad(&[format!("credbroker: {cause}")]));
    }
    bad(&left); // these users stay as they are
    let shim = Shim::find(environment, shim, args.socket.as_deref())?;
    let document = merged(&kubeconfig, |name, user| {
        if names.iter().any(|wrapped| wrapped == name) {
            replace(&shim, name, user);
        }
    });
    let text = emit::yaml(&document)?;
    let Some(path) = &args.output else {
        out.write_all(text.as_bytes())?;
        return Ok(0);
    };
    output::write(path, &text, &paths)?;
    let users = if names.len() == 1 { "user asks" } else { "users ask" };
    writeln!(out, "{}: {} {users} credbroker: {}", path.display(), names.len(), names.join(", "))?;
    writeln!(out, "Use it with `KUBECONFIG={} kubectl …`; the broker reads the original.", path.display())?;
    Ok(0)
}

/// Makes the plugin of `user` the shim. Its apiVersion stays, for it is what the client understands, and so does what we
/// do not know.
fn replace(shim: &Shim, name: &str, user: &mut Entries) {
    let Some(exec) = map(user, "exec") else { return };
    let version = exec.iter().find(|(key, _)| key.name == "apiVersion");
    let version = version.and_then(|(_, node)| node.as_str()?.rsplit('/').next().map(str::to_owned));
    exec.retain(|(key, _)| {
        !["command", "args", "env", "provideClusterInfo", "interactiveMode"].contains(&key.name.as_str())
    });
    exec.extend(shim.stanza(&["--provider", name], version.as_deref().unwrap_or("v1")));
}

/// Tells a person; standard output is for the kubeconfig.
fn bad<T: ToString>(problems: &[T]) -> u8 {
    for problem in problems {
        // Where stderr is gone there is nobody to tell.
        let _unheard = writeln!(std::io::stderr(), "{}", problem.to_string());
    }
    EX_CONFIG
}

#[cfg(test)]
mod tests;
