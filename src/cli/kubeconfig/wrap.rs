//! `credbroker kubeconfig wrap`.

use std::{
    collections::HashMap,
    ffi::OsString,
    io::Write,
    path::{Path, PathBuf},
};

use super::{
    emit,
    merge::{Entries, map, merged},
    output,
    running::advice,
    shim::Shim,
};
use crate::{
    cli::{EX_CONFIG, broker::SocketArg},
    config::{
        self, ConfigError,
        kubeconfig::{Kubeconfig, Mode, is_shim},
    },
    plugin::{Definition, Environment},
};

/// Write a copy of your kubeconfig whose exec users request credentials from the broker
///
/// Contexts, clusters and other users stay the same; relative paths become absolute. The command
/// only reads your kubeconfig: all files of KUBECONFIG, or ~/.kube/config. In the copy, each user
/// with an exec plugin runs credbroker's shim instead, with the user's name and the digest of the
/// file that defines it. The broker answers only with that definition:
///
///   credbroker serve &
///   credbroker kubeconfig wrap -o ~/.kube/broker
///   KUBECONFIG=~/.kube/broker kubectl get pods
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct WrapArgs {
    /// Read this file only [default: all files of $KUBECONFIG, else ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Write to this file, with mode 0600; it must not be one of the files read [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Socket for the shim to use [default: see `credbroker-exec --help`]
    #[arg(long, value_name = "PATH")]
    socket: Option<String>,
    /// The only user whose process the shim trusts on that socket [default: see `credbroker-exec --help`]
    #[arg(long, value_name = "UID")]
    server_uid: Option<String>,
}

pub(super) fn run(
    args: &WrapArgs,
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
    let (definitions, left) = config::definitions(&kubeconfig, environment);
    if definitions.is_empty()
        && !kubeconfig.users().iter().any(|user| user.body.get("exec").is_some_and(is_shim))
    {
        let list = paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(":");
        bad(&left);
        let cause = match (paths.is_empty(), kubeconfig.files().is_empty()) {
            (true, _) => {
                "no kubeconfig: neither KUBECONFIG nor HOME is set; name one with --kubeconfig".to_owned()
            }
            (false, true) => {
                format!("no kubeconfig: {list} not found; name one with --kubeconfig or KUBECONFIG")
            }
            (false, false) => format!("nothing to wrap: no user of {list} runs an exec plugin"),
        };
        return Ok(bad(&[format!("credbroker: {cause}")]));
    }
    bad(&left); // these users stay the same
    let socket = SocketArg {
        path: args.socket.clone().map(OsString::from),
        server_uid: args.server_uid.clone().map(OsString::from),
    };
    let shim = Shim::find(environment, shim, &socket)?;
    let by_name: HashMap<_, _> =
        definitions.iter().map(|(name, definition)| (name.as_str(), definition)).collect();
    let document = merged(&kubeconfig, |name, user| {
        if let Some(definition) = by_name.get(name) {
            replace(&shim, name, definition, user);
        }
    });
    let text = emit::yaml(&document)?;
    let Some(path) = &args.output else {
        out.write_all(text.as_bytes())?;
        bad(&[format!("credbroker: {}", advice(&socket, environment, &definitions)?)]);
        return Ok(0);
    };
    output::write(path, &text, &paths)?;
    let names: Vec<_> = definitions.iter().map(|(name, _)| name.as_str()).collect();
    let users =
        if names.len() == 1 { "user requests its credential" } else { "users request their credentials" };
    writeln!(out, "{}: {} {users} from the broker: {}", path.display(), names.len(), names.join(", "))?;
    writeln!(out, "Use it with `KUBECONFIG={} kubectl …`.", path.display())?;
    writeln!(out, "{}", advice(&socket, environment, &definitions)?)?;
    Ok(0)
}

/// Replaces the plugin of `user` with the shim. The apiVersion stays, because the client understands that one, and so
/// do unknown keys.
fn replace(shim: &Shim, name: &str, definition: &Definition, user: &mut Entries) {
    let Some(exec) = map(user, "exec") else { return };
    let version = exec.iter().find(|(key, _)| key.name == "apiVersion");
    let version = version.and_then(|(_, node)| node.as_str()?.rsplit('/').next().map(str::to_owned));
    exec.retain(|(key, _)| {
        !["command", "args", "env", "provideClusterInfo", "interactiveMode"].contains(&key.name.as_str())
    });
    let source = ["--provider", name, "--definition", definition.digest()];
    exec.extend(shim.stanza(&source, version.as_deref().unwrap_or("v1")));
}

/// Prints to stderr; standard output is for the kubeconfig.
fn bad<T: ToString>(problems: &[T]) -> u8 {
    for problem in problems {
        // Nothing can be reported where stderr is closed.
        let _closed = writeln!(std::io::stderr(), "{}", problem.to_string());
    }
    EX_CONFIG
}

#[cfg(test)]
mod tests;
