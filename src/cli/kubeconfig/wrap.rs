//! `credbroker kubeconfig wrap`.

use std::{
    collections::HashSet,
    ffi::OsString,
    io::Write,
    path::{Path, PathBuf},
};

use super::{
    merge::{entry, merged, name, string},
    output::{self, Output},
    running::advice,
    shim::{self, BareArg},
};
use crate::cli::broker::{EX_CONFIG, SocketArg, TimeoutArg};
use credbroker_config as config;
use credbroker_config::kubeconfig::{Kubeconfig, Mode, Shim, is_shim, with_shim, yaml};
use credbroker_credential::document::{Node, Value};
use credbroker_plugin::Environment;

/// Write a copy of your kubeconfig whose exec users request credentials from the broker
///
/// Contexts, clusters and other users stay the same; relative paths become absolute. The command
/// only reads your kubeconfig: all files of KUBECONFIG, or ~/.kube/config. In the copy, each user
/// with an exec plugin has credbroker's shim in front of its command. The broker must read your
/// kubeconfig too:
///
///   credbroker serve &
///   credbroker kubeconfig wrap -o ~/.kube/broker
///   KUBECONFIG=~/.kube/broker kubectl get pods
///
/// Run it again after your kubeconfig has changed. The current context of the copy is kept; a copy with
/// other contexts, clusters or users is only overwritten with --force.
#[derive(Debug, Default, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct WrapArgs {
    /// Read this file only [default: all files of $KUBECONFIG, else ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Write to this file, with mode 0600; it must not be one of the files read. - is standard output [default: -]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Overwrite a file that this command did not write
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    bare: BareArg,
    /// Socket for the shim to use [default: see `credbroker-exec --help`]
    #[arg(long, value_name = "PATH")]
    socket: Option<String>,
    /// The only user whose process the shim trusts on that socket [default: see `credbroker-exec --help`]
    #[arg(long, value_name = "UID")]
    server_uid: Option<String>,
    #[command(flatten)]
    timeout: TimeoutArg,
}

pub(super) fn run(
    args: &WrapArgs,
    environment: &Environment,
    shim: &Path,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> anyhow::Result<u8> {
    let (paths, mode) = Kubeconfig::chosen(args.kubeconfig.as_deref(), environment);
    let kubeconfig = match config::read_kubeconfig(&paths, mode) {
        Ok(kubeconfig) => kubeconfig,
        Err(error) => {
            writeln!(err, "{error}")?;
            return Ok(EX_CONFIG);
        }
    };
    let definitions = config::definitions(&kubeconfig, environment);
    output::warn(&definitions, err)?;
    if definitions.served.is_empty() {
        writeln!(err, "credbroker: {}", output::nothing(&paths, &kubeconfig))?;
        return Ok(EX_CONFIG);
    }
    let socket = SocketArg {
        path: args.socket.clone().map(OsString::from),
        server_uid: args.server_uid.clone().map(OsString::from),
    };
    let shim = shim::find(environment, shim, &socket, args.bare)?;
    let served: HashSet<_> = definitions.served.iter().map(|(name, _)| name.as_str()).collect();
    let mut document = wrapped(&kubeconfig, &served, &shim);
    let advice = || advice(&definitions.served, &socket, args.timeout.limit, environment);
    let Some(path) = Output::named(args.output.as_deref()) else {
        out.write_all(yaml(&document)?.as_bytes())?;
        writeln!(err, "credbroker: {}", advice()?)?;
        return Ok(0);
    };
    let output = Output::open(path, &paths, "wrap", || {
        args.force || earlier(path).is_some_and(|earlier| is_copy(&earlier, &document))
    })?;
    if let Some(earlier) = earlier(path) {
        keep_current_context(&mut document, &earlier);
    }
    let note = output.write(&yaml(&document)?)?;
    output::summarise(path, definitions.served.iter().map(|(name, _)| name.as_str()), out)?;
    note.map(|note| writeln!(out, "{note}")).transpose()?;
    writeln!(out, "Use it with `KUBECONFIG={} kubectl …`.", path.display())?;
    writeln!(out, "{}", advice()?)?;
    Ok(0)
}

/// The merged kubeconfig, with the shim in front of the commands of the users that are `served`.
fn wrapped(kubeconfig: &Kubeconfig, served: &HashSet<&str>, shim: &Shim) -> Node {
    merged(kubeconfig, |name, user| {
        let exec = user.iter_mut().find(|(key, _)| key.name == "exec" && served.contains(name));
        // Its paths are absolute already.
        if let Some((_, exec)) = exec
            && let Some(new) = with_shim(name, exec, Path::new("/"), shim)
        {
            *exec = new;
        }
    })
}

/// The kubeconfig at `path`, with absolute paths.
fn earlier(path: &Path) -> Option<Node> {
    let kubeconfig = config::read_kubeconfig(&[std::path::absolute(path).ok()?], Mode::Named).ok()?;
    Some(merged(&kubeconfig, |_, _| {}))
}

/// Whether `old` is an earlier copy and nothing more: all of its plugins run the shim, and `new` has all of its
/// contexts, clusters and users.
fn is_copy(old: &Node, new: &Node) -> bool {
    let list =
        |of: &'_ Node, list: &str| of.get(list).and_then(Node::as_sequence).unwrap_or_default().to_vec();
    let names = |of: &Node, key: &str| -> HashSet<String> {
        list(of, key).iter().filter_map(|item| name(item).map(str::to_owned)).collect()
    };
    let mut execs =
        list(old, "users").into_iter().filter_map(|user| user.get("user")?.get("exec").cloned()).peekable();
    execs.peek().is_some()
        && execs.all(|exec| is_shim(&exec))
        && ["contexts", "clusters", "users"].iter().all(|key| names(old, key).is_subset(&names(new, key)))
}

/// A person chooses the current context in the copy.
fn keep_current_context(new: &mut Node, old: &Node) {
    const KEY: &str = "current-context";
    let Some(current) = old.get(KEY).and_then(Node::as_str) else { return };
    let contexts = new.get("contexts").and_then(Node::as_sequence).unwrap_or_default();
    if !contexts.iter().any(|context| name(context) == Some(current)) {
        return;
    }
    let Value::Mapping(entries) = &mut new.value else { return };
    entries.retain(|(key, _)| key.name != KEY);
    entries.push(entry(KEY, string(current)));
}

#[cfg(test)]
mod tests;
