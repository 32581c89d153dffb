//! How a kubeconfig's users run the shim.

use std::ffi::OsStr;

use anyhow::Context as _;
use credbroker_client::{Socket, SocketSources};

use crate::cli::{broker::SocketArg, console::Console};
use credbroker_config::kubeconfig::Shim;
use credbroker_runner::find_in_path;

/// How a kubeconfig names the shim.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(super) struct BareArg {
    /// Write the name of the shim instead of its path, for clients that have credbroker-exec in their PATH
    #[arg(long)]
    pub(super) bare: bool,
}

/// How a kubeconfig runs the shim: the one that `PATH` leads to, else that of the console, by its absolute path; with `bare`
/// by its name. It uses the flags of `socket` that are set, else its defaults.
pub(super) fn find(console: &Console<'_>, socket: &SocketArg, bare: BareArg) -> anyhow::Result<Shim> {
    const NAME: &str = "credbroker-exec";
    let flags = flags(socket)?;
    if bare.bare {
        return Ok(Shim { command: NAME.to_owned(), is_subcommand: false, flags });
    }
    let found = find_in_path(NAME, console.environment.get("PATH").unwrap_or_default());
    let path = found.as_deref().unwrap_or(console.shim);
    let command = path.to_str().context("the path of credbroker-exec is not UTF-8")?.to_owned();
    anyhow::ensure!(
        path.is_absolute() && path.exists(),
        "credbroker-exec is neither on PATH nor at {command}; install it"
    );
    let is_subcommand = path.file_name().is_none_or(|name| name != NAME);
    Ok(Shim { command, is_subcommand, flags })
}

/// `--socket` and `--server-uid`, checked. The path is absolute, because a kubeconfig can be used in any directory.
fn flags(socket: &SocketArg) -> anyhow::Result<Vec<(String, String)>> {
    let text =
        |value: &OsStr| value.to_str().map(str::to_owned).context("the path of the socket is not UTF-8");
    let mut flags = Vec::new();
    if let Some(path) = &socket.path {
        let mut value = text(path)?;
        if value.is_empty() || value.starts_with("unix:") {
            Socket::locate(&SocketSources::new().flag(Some(path)))?;
        } else {
            value = text(std::path::absolute(path).context("--socket must be a path")?.as_os_str())?;
        }
        flags.push(("--socket".to_owned(), value));
    }
    if let Some(uid) = socket.server_uid.as_deref() {
        Socket::locate(&SocketSources::new().server_uid_flag(Some(uid)))?;
        flags.push(("--server-uid".to_owned(), text(uid)?));
    }
    Ok(flags)
}
