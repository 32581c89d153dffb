//! `credbroker kubeconfig wrap`.

use std::{
    collections::HashMap,
    ffi::OsString,
    io::Write,
    path::{Path, PathBuf},
};

use super::{
    copy::{self, originals},
    emit,
    keep::keep,
    merge::{Entries, merged},
    output::Output,
    record::Record,
    report,
    running::advice,
    shim::{BareArg, Shim},
};
use crate::cli::broker::{EX_CONFIG, SocketArg, TimeoutArg};
use credbroker_config as config;
use credbroker_config::kubeconfig::{Kubeconfig, is_shim};
use credbroker_credential::document::{Node, Value};
use credbroker_plugin::{Definition, Environment};

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
///
/// Run it again after your kubeconfig has changed. What you changed in the copy is kept: the current
/// context, and contexts, clusters and users that you added or changed. A copy among the files of
/// KUBECONFIG counts as the kubeconfigs that it was written from.
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
    /// `setup` says how the copy is used.
    #[arg(skip)]
    of_setup: bool,
}

impl WrapArgs {
    /// From the default kubeconfig to `path`.
    pub(super) fn to(path: &Path) -> Self {
        Self { output: Some(path.to_owned()), of_setup: true, ..Self::default() }
    }
}

pub(super) fn run(
    args: &WrapArgs,
    environment: &Environment,
    shim: &Path,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> anyhow::Result<u8> {
    let (paths, mode) = Kubeconfig::chosen(args.kubeconfig.as_deref(), environment);
    let paths = originals(paths);
    let kubeconfig = match config::read_kubeconfig(&paths, mode) {
        Ok(kubeconfig) => kubeconfig,
        Err(error) => {
            writeln!(err, "{error}")?;
            return Ok(EX_CONFIG);
        }
    };
    let definitions = config::definitions(&kubeconfig, environment);
    report::warn(&definitions, err)?;
    let runs_shim = || kubeconfig.users().iter().any(|user| user.body.get("exec").is_some_and(is_shim));
    if definitions.served.is_empty() && !runs_shim() {
        writeln!(err, "credbroker: {}", report::nothing(&paths, &kubeconfig))?;
        return Ok(EX_CONFIG);
    }
    let socket = SocketArg {
        path: args.socket.clone().map(OsString::from),
        server_uid: args.server_uid.clone().map(OsString::from),
    };
    let shim = Shim::find(environment, shim, &socket, args.bare)?;
    let mut document = wrapped(&kubeconfig, &definitions.served, &shim);
    let record = Record::of(&document, &paths);
    let Some(path) = Output::named(args.output.as_deref()) else {
        record.attach(&mut document);
        out.write_all(emit::yaml(&document)?.as_bytes())?;
        writeln!(err, "credbroker: {}", advice(&socket, &args.timeout, environment, &definitions.served)?)?;
        return Ok(0);
    };
    let mut earlier = None;
    let output = Output::open(path, &paths, "wrap", || {
        earlier = copy::earlier(path);
        earlier.is_some() || args.force
    })?;
    let kept = earlier.map(|(record, old)| keep(&mut document, &old, &record)).unwrap_or_default();
    record.attach(&mut document);
    let note = output.write(&emit::yaml(&document)?)?;
    report::summarise(path, definitions.served.iter().map(|(name, _)| name.as_str()), out)?;
    note.map(|note| writeln!(out, "{note}")).transpose()?;
    report::carried_over(&kept, path, out, err)?;
    if !args.of_setup {
        writeln!(out, "Use it with `KUBECONFIG={} kubectl …`.", path.display())?;
        writeln!(out, "{}", advice(&socket, &args.timeout, environment, &definitions.served)?)?;
    }
    Ok(0)
}

fn wrapped(kubeconfig: &Kubeconfig, served: &[(String, Definition)], shim: &Shim) -> Node {
    let by_name: HashMap<_, _> =
        served.iter().map(|(name, definition)| (name.as_str(), definition)).collect();
    merged(kubeconfig, |name, user| {
        if let Some(definition) = by_name.get(name) {
            replace(shim, name, definition, user);
        }
    })
}

/// Replaces the plugin of `user` with the shim.
fn replace(shim: &Shim, name: &str, definition: &Definition, user: &mut Entries) {
    let Some((_, exec)) = user.iter_mut().find(|(key, _)| key.name == "exec") else { return };
    *exec = replaced_exec(shim, name, definition, exec);
}

/// The stanza that runs the shim in the place of `exec`. The apiVersion stays, because the client understands that one,
/// and so do unknown keys.
pub(super) fn replaced_exec(shim: &Shim, name: &str, definition: &Definition, exec: &Node) -> Node {
    let mut entries = exec.as_mapping().unwrap_or_default().to_vec();
    let version = exec.get("apiVersion").and_then(|version| version.as_str()?.rsplit('/').next());
    let source = ["--provider", name, "--definition", definition.digest()];
    let may_read_stdin = exec.get("interactiveMode").and_then(Node::as_str) != Some("Never");
    let ours = shim.stanza(&source, version.unwrap_or("v1"), may_read_stdin);
    let is_ours = |key: &str| key == "env" || ours.iter().any(|(ours, _)| ours.name == key);
    entries.retain(|(key, _)| !is_ours(&key.name));
    entries.extend(ours);
    Node { at: exec.at, value: Value::Mapping(entries) }
}

#[cfg(test)]
mod tests;
