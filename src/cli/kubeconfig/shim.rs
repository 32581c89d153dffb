//! How a kubeconfig's users run the shim.

use std::{ffi::OsStr, path::Path};

use anyhow::Context as _;
use credbroker_client::{Socket, SocketSources};

use super::{
    super::broker::SocketArg,
    merge::{entry, string},
};
use credbroker_config::kubeconfig::Shim;
use credbroker_credential::document::{Key, Node, Value};
use credbroker_plugin::Environment;
use credbroker_runner::find_in_path;

/// What a client prints if it does not find the shim.
const INSTALL_HINT: &str = "The user of this kubeconfig requests its credential from credbroker, through credbroker-exec. \
                            Install credbroker, or if it is installed at another place now, write the kubeconfig again.";

/// How a kubeconfig names the shim.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(super) struct BareArg {
    /// Write the name of the shim instead of its path, for clients that have credbroker-exec in their PATH
    #[arg(long)]
    pub(super) bare: bool,
}

/// How a kubeconfig runs the shim: the one that `PATH` leads to, else `beside`, by its absolute path; with `bare` by its
/// name. It uses the flags of `socket` that are set, else its defaults.
pub(super) fn find(
    environment: &Environment,
    beside: &Path,
    socket: &SocketArg,
    bare: BareArg,
) -> anyhow::Result<Shim> {
    const NAME: &str = "credbroker-exec";
    let flags = flags(socket)?;
    if bare.bare {
        return Ok(Shim { command: NAME.to_owned(), is_subcommand: false, flags });
    }
    let found = find_in_path(NAME, environment.get("PATH").unwrap_or_default());
    let path = found.as_deref().unwrap_or(beside);
    let command = path.to_str().context("the path of credbroker-exec is not UTF-8")?.to_owned();
    anyhow::ensure!(
        path.is_absolute() && path.exists(),
        "credbroker-exec is neither on PATH nor at {command}; install it"
    );
    let is_subcommand = path.file_name().is_none_or(|name| name != NAME);
    Ok(Shim { command, is_subcommand, flags })
}

/// The `exec` stanza, without its apiVersion, of a user whose shim requests the credential of `source`. `version` is the
/// last part of the apiVersion.
pub(super) fn stanza(shim: &Shim, source: &[&str], version: &str) -> [(Key, Node); 5] {
    let first = shim.is_subcommand.then_some("shim").into_iter();
    let own = source.iter().copied().chain(["--api-version", version]);
    let flags = shim.flags.iter().flat_map(|(flag, value)| [flag.as_str(), value]);
    let args = first.chain(own).chain(flags).map(|arg| string(arg).into());
    [
        entry("command", string(shim.command.as_str())),
        entry("args", Value::Sequence(args.collect())),
        entry("provideClusterInfo", Value::Bool(true)),
        entry("interactiveMode", string("Never")),
        entry("installHint", string(INSTALL_HINT)),
    ]
}

/// `--socket` and `--server-uid`, checked.
fn flags(socket: &SocketArg) -> anyhow::Result<Vec<(String, String)>> {
    let text =
        |value: &OsStr| value.to_str().map(str::to_owned).context("the path of the socket is not UTF-8");
    let mut flags = Vec::new();
    if let Some(path) = &socket.path {
        flags.push(("--socket".to_owned(), absolute_socket(&text(path)?)?));
    }
    if let Some(uid) = socket.server_uid.as_deref() {
        Socket::locate(&SocketSources::new().server_uid_flag(Some(uid)))?;
        flags.push(("--server-uid".to_owned(), text(uid)?));
    }
    Ok(flags)
}

/// The absolute path, because a kubeconfig can be used in any directory.
fn absolute_socket(socket: &str) -> anyhow::Result<String> {
    if socket.is_empty() || socket.starts_with("unix:") {
        Socket::locate(&SocketSources::new().flag(Some(socket.as_ref())))?;
        return Ok(socket.to_owned());
    }
    let path = std::path::absolute(socket).context("--socket must be a path")?;
    path.into_os_string().into_string().ok().context("the path of the socket is not UTF-8")
}
