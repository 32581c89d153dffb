//! `credbroker kubeconfig fleet`.

mod contexts;

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use self::contexts::{ExecVersion, endpoint, kubeconfig, reachable};
use super::{
    emit,
    output::Output,
    shim::{BareArg, Shim},
};
use crate::cli::clusters::{ClusterList, ClusterQuery, problem};
use credbroker_config as config;
use credbroker_config::kubeconfig::Mode;
use credbroker_credential::text::one_line;
use credbroker_plugin::Environment;

/// Write a kubeconfig with a context for every cluster of the fleet
///
/// Asks a running broker for the ClusterProfiles that it reads. Each becomes a context NAMESPACE/NAME,
/// whose user requests the cluster's credential from the broker, so that every client can use it:
///
///   credbroker kubeconfig fleet -o ~/.kube/fleet
///   kubectl --kubeconfig ~/.kube/fleet --context fleet/paris get pods
///   for c in $(kubectl --kubeconfig ~/.kube/fleet config get-contexts -o name); do
///     kubectl --kubeconfig ~/.kube/fleet --context "$c" get nodes
///   done
///
/// No context is current, so no command reaches a cluster by accident: name one with --context. The
/// kubeconfig contains no secrets. It leaves out clusters without a provider, and names them on stderr.
/// Write it again after clusters are added, removed or moved: the broker refuses requests for a server
/// that is not the cluster's. If --socket or --server-uid are set, the shims use them too.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct FleetArgs {
    /// Write to this file, with mode 0600. - is standard output [default: -]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Overwrite a file that this command did not write, or that has other users too
    #[arg(long)]
    force: bool,
    /// Version of the exec protocol (client.authentication.k8s.io) that the clients support
    #[arg(long, value_enum, default_value_t)]
    api_version: ExecVersion,
    #[command(flatten)]
    bare: BareArg,
    #[command(flatten)]
    query: ClusterQuery,
}

pub(super) fn run(
    args: &FleetArgs,
    environment: &Environment,
    shim: &Path,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> anyhow::Result<u8> {
    let shim = Shim::find(environment, shim, &args.query.broker.socket, args.bare)?;
    let path = Output::named(args.output.as_deref());
    let fleet = args.query.ask(environment)?;
    fleet.warn(err)?;
    for (name, why) in skipped(&fleet) {
        writeln!(err, "credbroker: skipped {name}: {why}")?;
    }
    let Some(first) = reachable(&fleet).next().map(|(name, _)| name) else {
        if !fleet.clusters.is_empty() {
            writeln!(
                err,
                "credbroker: no cluster can be written to a kubeconfig; see `credbroker clusters`"
            )?;
        }
        return Ok(1);
    };
    let text = emit::yaml(&kubeconfig(&fleet, &shim, args.api_version))?;
    let contexts = match reachable(&fleet).count() {
        1 => "1 context, which is not current".to_owned(),
        count => format!("{count} contexts, none of them current"),
    };
    let Some(path) = path else {
        out.write_all(text.as_bytes())?;
        out.flush()?;
        writeln!(err, "credbroker: {contexts}: use `kubectl --context {} …`", one_line(&first))?;
        return Ok(0);
    };
    let output = Output::open(path, &[], "fleet", || args.force || is_ours(path))?;
    if let Some(note) = output.write(&text)? {
        writeln!(out, "{note}")?;
    }
    let path = path.display();
    writeln!(out, "{path}: {contexts}")?;
    writeln!(out, "Use it with `kubectl --kubeconfig {path} --context {} …`.", one_line(&first))?;
    Ok(0)
}

/// Whether this command wrote the file at `path`, and all users in it.
fn is_ours(path: &Path) -> bool {
    let read = std::path::absolute(path).ok().map(|path| config::read_kubeconfig(&[path], Mode::Named));
    let Some(Ok(kubeconfig)) = read else { return false };
    kubeconfig.files().iter().all(|file| contexts::is_ours(&file.root))
}

/// The clusters that cannot be written, and why.
fn skipped(fleet: &ClusterList) -> impl Iterator<Item = (String, String)> {
    let others = fleet.clusters.iter().filter(|(_, state)| endpoint(state.cluster.as_ref()).is_none());
    others.map(|(name, state)| {
        let why = Some(problem(state)).filter(|why| !why.is_empty());
        (one_line(&name.to_string()), why.unwrap_or_else(|| "its ClusterProfile names no server".to_owned()))
    })
}

#[cfg(test)]
mod tests;
