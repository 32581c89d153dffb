//! `credbroker kubeconfig fleet`.

mod contexts;

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

use self::contexts::{ExecVersion, endpoint, kubeconfig, reachable};
use super::{emit, output, shim::Shim};
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
/// whose user asks the broker for that cluster's credential, so every client can walk the fleet:
///
///   credbroker kubeconfig fleet -o ~/.kube/fleet
///   kubectl --kubeconfig ~/.kube/fleet --context fleet/paris get pods
///   for c in $(kubectl --kubeconfig ~/.kube/fleet config get-contexts -o name); do
///     kubectl --kubeconfig ~/.kube/fleet --context "$c" get nodes
///   done
///
/// No context is current, so no command reaches a cluster by accident: name one with --context. There
/// are no secrets in it. Clusters that no provider of the broker can reach are left out, and named on
/// stderr. Write it again when clusters come, go or move: the broker gives no credential for a cluster
/// that is no longer where the kubeconfig says. --socket and --server-uid are written into it too if
/// they are given.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct FleetArgs {
    /// Write to this file, with mode 0600; never over a kubeconfig with users that are not credbroker's
    /// [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Version of the exec protocol (client.authentication.k8s.io) for the clients that will use it
    #[arg(long, value_enum, default_value_t)]
    api_version: ExecVersion,
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
    let shim = Shim::find(environment, shim, &args.query.socket)?;
    if let Some(path) = &args.output {
        spare(path)?;
    }
    let fleet = match args.query.ask(environment)? {
        Ok(fleet) => fleet,
        Err(failure) => return Ok(fail(&failure, err)?),
    };
    fleet.warn(err)?;
    for (name, why) in left_out(&fleet) {
        writeln!(err, "credbroker: {name} is left out: {why}")?;
    }
    let Some(first) = reachable(&fleet).next().map(|(name, _)| name) else {
        if !fleet.clusters.is_empty() {
            writeln!(err, "credbroker: none is left to write a kubeconfig for; see `credbroker clusters`")?;
        }
        return Ok(1);
    };
    let text = emit::yaml(&kubeconfig(&fleet, &shim, args.api_version))?;
    let contexts = match reachable(&fleet).count() {
        1 => "1 context, which is not current".to_owned(),
        count => format!("{count} contexts, none of them current"),
    };
    let Some(path) = &args.output else {
        out.write_all(text.as_bytes())?;
        out.flush()?;
        writeln!(err, "credbroker: {contexts}: use `kubectl --context {} …`", one_line(&first))?;
        return Ok(0);
    };
    output::write(path, &text, &[])?;
    let path = path.display();
    writeln!(out, "{path}: {contexts}")?;
    writeln!(out, "Use it with `kubectl --kubeconfig {path} --context {} …`.", one_line(&first))?;
    Ok(0)
}

/// Refuses to write over a file that has something in it which this command could not write again.
fn spare(path: &Path) -> anyhow::Result<()> {
    let there = config::read_kubeconfig(&[std::path::absolute(path)?], Mode::Ambient).with_context(|| {
        format!("{} is not a kubeconfig of credbroker; name another file", path.display())
    })?;
    let foreign = there
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

/// Each of the others, and why.
fn left_out(fleet: &ClusterList) -> impl Iterator<Item = (String, String)> {
    let others = fleet.clusters.iter().filter(|(_, state)| endpoint(state.cluster.as_ref()).is_none());
    others.map(|(name, state)| {
        let why = Some(problem(state)).filter(|why| !why.is_empty());
        (one_line(&name.to_string()), why.unwrap_or_else(|| "its ClusterProfile names no server".to_owned()))
    })
}

#[cfg(test)]
mod tests;
