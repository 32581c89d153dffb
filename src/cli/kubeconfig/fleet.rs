//! `credbroker kubeconfig fleet`.

mod contexts;

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

use self::contexts::{ExecVersion, endpoint, kubeconfig, reachable};
use super::{
    emit,
    output::Output,
    record::Record,
    shim::{BareArg, Shim},
};
use crate::{
    cli::{
        broker::fail,
        fleet::{ClusterList, ClusterQuery, problem},
    },
    config::{
        self,
        kubeconfig::{Mode, is_shim},
    },
    plugin::Environment,
    text::one_line,
};

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
    /// Write to this file, with mode 0600; it must not be a kubeconfig with users of other plugins. - is standard output
    /// [default: -]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
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
    let shim = Shim::find(environment, shim, &args.query.socket, args.bare)?;
    let path = Output::named(args.output.as_deref());
    path.map(check_replaceable).transpose()?;
    let fleet = match args.query.ask(environment)? {
        Ok(fleet) => fleet,
        Err(failure) => return Ok(fail(&failure, err)?),
    };
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
    // Its users are credbroker's.
    if let Some(note) = Output::open(path, &[], true)?.write(&text)? {
        writeln!(out, "{note}")?;
    }
    let path = path.display();
    writeln!(out, "{path}: {contexts}")?;
    writeln!(out, "Use it with `kubectl --kubeconfig {path} --context {} …`.", one_line(&first))?;
    Ok(0)
}

/// Refuses to overwrite a file with users that this command did not write.
fn check_replaceable(path: &Path) -> anyhow::Result<()> {
    let existing =
        config::read_kubeconfig(&[std::path::absolute(path)?], Mode::Ambient).with_context(|| {
            format!("{} is not a kubeconfig of credbroker; name another file", path.display())
        })?;
    anyhow::ensure!(
        !existing.files().iter().any(|file| Record::read(&file.root).is_some()),
        "{} was written by `credbroker kubeconfig wrap`; name another file",
        path.display()
    );
    let foreign = existing
        .users()
        .into_iter()
        .find(|user| !user.body.get("exec").is_some_and(is_shim))
        .map(|user| user.name);
    anyhow::ensure!(
        foreign.is_none(),
        "{} has a user that is not credbroker's, {:?}, which would be lost; name another file",
        path.display(),
        foreign.unwrap_or_default()
    );
    Ok(())
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
