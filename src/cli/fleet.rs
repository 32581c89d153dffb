//! The list of clusters of a running broker, for the commands that need it.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Write},
};

use credbroker_client::{Client, ClusterState, HubState};
use credbroker_exec::Failure;

use super::{
    broker::{SocketArg, TimeoutArg, ask},
    clusters::reason,
};
use credbroker_credential::text::one_line;
use credbroker_plugin::Environment;

/// The clusters to list, and the broker to ask.
#[derive(Debug, Default, clap::Args)]
pub(super) struct ClusterQuery {
    /// Only clusters of this namespace; can be repeated [default: all namespaces that the broker reads]
    #[arg(short, long = "namespace", value_name = "NAMESPACE")]
    pub(super) namespaces: Vec<String>,
    #[command(flatten)]
    pub(super) socket: SocketArg,
    #[command(flatten)]
    pub(super) timeout: TimeoutArg,
}

/// The requested clusters, sorted, and the state of the hub.
#[derive(Debug, Default)]
pub(super) struct ClusterList {
    pub(super) clusters: BTreeMap<ClusterName, ClusterState>,
    /// `None`: the broker reads no ClusterProfiles.
    pub(super) hub: Option<HubState>,
}

/// Namespace and name of a ClusterProfile.
pub(super) use credbroker_client::ClusterProfileRef as ClusterName;

impl ClusterQuery {
    /// Requests all pages. The fleet may change between two pages; if a cluster is in both, its later state counts.
    pub(super) fn ask(&self, environment: &Environment) -> anyhow::Result<Result<ClusterList, Failure>> {
        let mut namespaces: BTreeSet<Option<&str>> =
            self.namespaces.iter().map(|name| Some(name.as_str())).collect();
        if namespaces.is_empty() {
            namespaces.insert(None);
        }
        ask(&self.socket, self.timeout.limit, environment, async |client: Client| {
            let mut list = ClusterList::default();
            for namespace in namespaces {
                let answer = client.clusters(namespace).await?;
                list.add(answer.clusters);
                list.hub = answer.hub;
            }
            Ok(list)
        })
    }
}

impl ClusterList {
    pub(super) fn add(&mut self, clusters: Vec<ClusterState>) {
        for cluster in clusters {
            self.clusters.insert(cluster.profile.clone(), cluster);
        }
    }

    /// Writes one line to `err` if the list may be incomplete or out of date.
    pub(super) fn warn(&self, err: &mut dyn Write) -> io::Result<()> {
        match self.caveat() {
            Some(caveat) => writeln!(err, "credbroker: {caveat}"),
            None => Ok(()),
        }
    }

    fn caveat(&self) -> Option<String> {
        let is_empty = self.clusters.is_empty();
        let Some(hub) = &self.hub else {
            return is_empty.then(|| NOT_CONFIGURED.to_owned());
        };
        let problem = hub.failure.as_ref().map(|failure| one_line(&failure.message)).unwrap_or_default();
        match (hub.synced, problem.as_str(), is_empty) {
            (true, "", false) => None,
            (true, "", true) => Some(NONE_SELECTED.to_owned()),
            (true, problem, false) => {
                Some(format!("this list may be out of date, because the hub cannot be read: {problem}"))
            }
            (false, "", true) => {
                Some("the broker has not read the ClusterProfiles yet; try again in a few seconds".to_owned())
            }
            (false, "", false) => Some(
                "clusters may be missing, because the broker has not read all ClusterProfiles yet".to_owned(),
            ),
            (false, problem, false) => {
                Some(format!("clusters may be missing, because the hub cannot be read: {problem}"))
            }
            (_, problem, true) => {
                Some(format!("the broker has no ClusterProfiles, because the hub cannot be read: {problem}"))
            }
        }
    }
}

const NOT_CONFIGURED: &str = "the broker reads no ClusterProfiles; name the hub in its configuration: \
                              `clusterProfiles: {kubeconfig: FILE or in-cluster, namespaces: [NAMESPACE]}`";

const NONE_SELECTED: &str = "the hub has no matching ClusterProfile; check --namespace, and `namespaces` and \
                             `labelSelector` of `clusterProfiles` in the broker's configuration";

/// Why a cluster cannot be used; empty if it can.
pub(super) fn problem(cluster: &ClusterState) -> String {
    let Some(failure) = &cluster.failure else { return String::new() };
    match (one_line(&failure.message), reason(failure)) {
        (message, reason) if message.is_empty() => reason.to_owned(),
        (message, reason) => format!("{message} ({reason})"),
    }
}

#[cfg(test)]
pub(super) mod tests;
