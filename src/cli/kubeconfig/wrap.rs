//! `credbroker kubeconfig wrap`: a copy of a kubeconfig whose users request credentials from the broker.

use std::{
    collections::{HashMap, HashSet},
    ffi::OsString,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use super::{
    keep::{is_unchanged, keep},
    known::advice,
    nodes::{Entries, merged, yaml},
    output::{Output, carried_over, nothing, summarise, warn},
    record::Record,
    shim::{BareArg, Shim},
};
use crate::cli::broker::{EX_CONFIG, SocketArg, TimeoutArg};
use credbroker_config as config;
use credbroker_config::kubeconfig::{Kubeconfig, Mode, is_shim};
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
    warn(&definitions, err)?;
    let runs_shim = || kubeconfig.users().iter().any(|user| user.body.get("exec").is_some_and(is_shim));
    if definitions.served.is_empty() && !runs_shim() {
        writeln!(err, "credbroker: {}", nothing(&paths, &kubeconfig))?;
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
        out.write_all(yaml(&document)?.as_bytes())?;
        writeln!(err, "credbroker: {}", advice(&socket, &args.timeout, environment, &definitions.served)?)?;
        return Ok(0);
    };
    let mut earlier = None;
    let output = Output::open(path, &paths, "wrap", || {
        earlier = earlier_copy(path);
        earlier.is_some() || args.force
    })?;
    let kept = earlier.map(|(record, old)| keep(&mut document, &old, &record)).unwrap_or_default();
    record.attach(&mut document);
    let note = output.write(&yaml(&document)?)?;
    summarise(path, definitions.served.iter().map(|(name, _)| name.as_str()), out)?;
    note.map(|note| writeln!(out, "{note}")).transpose()?;
    carried_over(&kept, path, out, err)?;
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

/// Writes the copy to `path`.
pub(in crate::cli) fn wrap_to(
    path: &Path,
    environment: &Environment,
    shim: &Path,
    out: &mut dyn Write,
) -> anyhow::Result<u8> {
    run(&WrapArgs::to(path), environment, shim, out, &mut io::stderr())
}

/// The files of `KUBECONFIG` that exist, if one of their users runs a plugin or the shim; a copy counts as the files that
/// it was written from.
pub(in crate::cli) fn originals_with_plugins(environment: &Environment) -> anyhow::Result<Vec<PathBuf>> {
    let kubeconfig =
        config::read_kubeconfig(&originals(Kubeconfig::default_paths(environment)), Mode::Ambient)?;
    let served = config::definitions(&kubeconfig, environment).served;
    let runs_shim = kubeconfig.users().iter().any(|user| user.body.get("exec").is_some_and(is_shim));
    let files = kubeconfig.files().iter().map(|file| file.path.clone());
    Ok(if served.is_empty() && !runs_shim { Vec::new() } else { files.collect() })
}

/// Whether there is nothing but a copy at `path`, so that another copy may replace it.
pub(in crate::cli) fn is_place_for_copy(path: &Path) -> bool {
    match fs::read(path) {
        Ok(contents) => contents.trim_ascii().is_empty() || earlier_copy(path).is_some(),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// Whether the copy at `path` has nothing that a person added or changed, except for the current context.
pub(in crate::cli) fn is_unchanged_copy(path: &Path) -> bool {
    earlier_copy(path).is_some_and(|(record, copy)| is_unchanged(&copy, &record))
}

/// What `kubeconfig wrap` wrote to `path`, and the file as it is now, with absolute paths; `None`: another program wrote it.
pub(super) fn earlier_copy(path: &Path) -> Option<(Record, Node)> {
    let kubeconfig = config::read_kubeconfig(&[std::path::absolute(path).ok()?], Mode::Named).ok()?;
    let record = Record::read(&kubeconfig.files().first()?.root)?;
    Some((record, merged(&kubeconfig, |_, _| {})))
}

/// The files of `paths`, and instead of a copy those that it was written from.
pub(super) fn originals(paths: Vec<PathBuf>) -> Vec<PathBuf> {
    let sources = |path: &PathBuf| {
        let read = config::read_kubeconfig(std::slice::from_ref(path), Mode::Ambient).ok()?;
        Some(Record::read(&read.files().first()?.root)?.sources).filter(|sources| !sources.is_empty())
    };
    let mut seen = HashSet::new();
    let all = paths.into_iter().flat_map(|path| sources(&path).unwrap_or_else(|| vec![path]));
    all.filter(|path| seen.insert(path.clone())).collect()
}

#[cfg(test)]
mod tests;
