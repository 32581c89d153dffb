//! The cluster of one context, for a command that requests a credential for it.

use super::{Kubeconfig, Mode, cluster::ContextClusters};
use crate::problem::{Problem, Report};
use credbroker_credential::{Cluster, document::Node, text::listed};

/// Why a context leads to no cluster.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ContextError {
    /// No file has a context of that name.
    #[error("the kubeconfig has no context `{context}`; its contexts are: {}", listed(.known))]
    Unknown {
        /// The name.
        context: String,
        /// The names that it has.
        known: Vec<String>,
    },
    /// The context names a cluster that is not in the files, or none.
    #[error("context `{context}` of the kubeconfig names no cluster that it has")]
    NoCluster {
        /// The name of the context.
        context: String,
    },
    /// The cluster is not valid.
    #[error("{}", .problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Invalid {
        /// At least one.
        problems: Vec<Problem>,
    },
}

impl Kubeconfig {
    /// The names of the contexts; of one name the first.
    pub fn context_names(&self) -> Vec<String> {
        self.contexts().iter().map(|context| context.name.to_owned()).collect()
    }

    /// The cluster of `context`, as client-go gives it to a plugin.
    ///
    /// # Errors
    ///
    /// There is no such context, or it has no valid cluster.
    pub fn cluster_of(&self, context: &str) -> Result<Cluster, ContextError> {
        let contexts = self.contexts();
        let Some(found) = contexts.iter().find(|found| found.name == context) else {
            return Err(ContextError::Unknown { context: context.to_owned(), known: self.context_names() });
        };
        let cluster = found.body.get("cluster").and_then(Node::as_str).unwrap_or_default();
        let mut report = Report::default();
        match ContextClusters::of(self, Mode::Ambient).named(cluster, &mut report) {
            Ok(Some(cluster)) => Ok(cluster),
            Ok(None) => Err(ContextError::NoCluster { context: context.to_owned() }),
            Err(_reported) => {
                let Report { warnings, refused, .. } = report;
                Err(ContextError::Invalid { problems: [refused, warnings].concat() })
            }
        }
    }
}

#[cfg(test)]
mod tests;
