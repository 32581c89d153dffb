//! The clusters of the fleet, as a running broker knows them.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Write},
};

use credbroker_client::{Client, Code, Error};
use credbroker_exec::Failure;
use credbroker_proto::v1::{ClusterProfileRef, ClusterState, HubState};

use super::broker::{Patience, Place, ask};
use crate::{plugin::Environment, text::sanitize};

/// Which clusters, and whom to ask.
#[derive(Debug, Default, clap::Args)]
pub(super) struct Question {
    /// Only ClusterProfiles of this namespace; may be given more than once [default: all that the broker reads]
    #[arg(short, long = "namespace", value_name = "NS")]
    pub(super) namespaces: Vec<String>,
    #[command(flatten)]
    pub(super) place: Place,
    #[command(flatten)]
    pub(super) patience: Patience,
}

/// Every cluster that was asked for, sorted, and how well the broker knows them.
#[derive(Debug, Default)]
pub(super) struct Fleet {
    pub(super) clusters: BTreeMap<Name, ClusterState>,
    /// `None`: the broker reads no ClusterProfiles.
    pub(super) hub: Option<HubState>,
}

/// The namespace and name of a ClusterProfile, in the order in which they sort.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Name {
    namespace: String,
    name: String,
}

impl Question {
    /// Asks for all pages. The fleet may change between two of them: of a cluster that comes twice the later state
    /// counts.
    pub(super) fn ask(&self, environment: &Environment) -> anyhow::Result<Result<Fleet, Failure>> {
        let all = String::new();
        let mut namespaces: BTreeSet<&String> = self.namespaces.iter().collect();
        if namespaces.is_empty() {
            namespaces.insert(&all);
        }
        ask(&self.place, self.patience.limit(), environment, async |mut client: Client| {
            let mut fleet = Fleet::default();
            for namespace in namespaces {
                let answer = client.clusters(namespace).await.map_err(of_an_older_broker)?;
                fleet.add(answer.clusters);
                fleet.hub = answer.hub;
            }
            Ok(fleet)
        })
    }
}

impl Fleet {
    pub(super) fn add(&mut self, clusters: Vec<ClusterState>) {
        for mut cluster in clusters {
            let profile = cluster.cluster_profile.take().unwrap_or_default();
            let name = Name { namespace: profile.namespace, name: profile.name };
            self.clusters.insert(name, cluster);
        }
    }

    /// Tells a person on `err` what may be wrong with the list as a whole: one line, or none.
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
        match (hub.synced, one_line(&hub.problem).as_str(), is_empty) {
            (true, "", false) => None,
            (true, "", true) => Some(NONE_SELECTED.to_owned()),
            (true, problem, false) => {
                Some(format!("the hub of the ClusterProfiles cannot be read, so this may be old: {problem}"))
            }
            (false, "", true) => Some(
                "the broker has not yet read the hub of the ClusterProfiles; try again in a moment"
                    .to_owned(),
            ),
            (false, "", false) => {
                Some("the broker has not yet read all ClusterProfiles: some may be missing".to_owned())
            }
            (false, problem, false) => Some(format!(
                "the hub of the ClusterProfiles cannot be read, and some may be missing: {problem}"
            )),
            (_, problem, true) => {
                Some(format!("no ClusterProfile is known, because the hub cannot be read: {problem}"))
            }
        }
    }
}

impl Name {
    /// As the proto has it.
    pub(super) fn profile(&self) -> ClusterProfileRef {
        ClusterProfileRef { namespace: self.namespace.clone(), name: self.name.clone() }
    }
}

/// `NAMESPACE/NAME`, as the shim takes it.
impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

const NOT_CONFIGURED: &str = "the broker reads no ClusterProfiles: name their hub in its config, `clusterProfiles: \
                              {kubeconfig: FILE or in-cluster, namespaces: [NS]}`";

const NONE_SELECTED: &str = "the broker's hub is read and has no ClusterProfile among those that were asked for: look \
                             at --namespace, and at namespaces and labelSelector of clusterProfiles in its config";

/// A text from the hub or a plugin, safe to show in one line of a terminal.
pub(super) fn one_line(text: &str) -> String {
    sanitize(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Why there is no way to a cluster, or no credential for it; empty: nothing is known to be wrong.
pub(super) fn trouble(cluster: &ClusterState) -> String {
    match (one_line(&cluster.message), one_line(&cluster.reason)) {
        (message, reason) if reason.is_empty() => message,
        (message, reason) if message.is_empty() => reason,
        (message, reason) => format!("{message} ({reason})"),
    }
}

fn of_an_older_broker(error: Error) -> Error {
    match error {
        Error::Failed { code: Code::Unimplemented, reason, limit, retry_after, .. } => Error::Failed {
            code: Code::Unimplemented,
            reason,
            limit,
            message: "this broker is of a release that knows no ClusterProfiles; update and restart it"
                .to_owned(),
            retry_after,
        },
        error => error,
    }
}

#[cfg(test)]
pub(super) mod tests;
