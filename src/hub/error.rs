//! Why the hub cannot be read.

use std::{error::Error, fmt::Write as _};

use crate::{cache::Failed, exec::sanitize, plugin::ResolveError};

/// Letters of a problem; more say nothing more.
const LONGEST: usize = 400;

/// Why the hub cannot be read. It may heal by itself: everything is tried again.
#[derive(Debug, thiserror::Error)]
pub(super) enum HubError {
    /// Of the pod's service account.
    #[error("the service account of this pod cannot be used")]
    InCluster(#[source] kube::config::InClusterError),
    /// Of a kubeconfig.
    #[error("the hub's kubeconfig cannot be used")]
    Kubeconfig(#[source] kube::config::KubeconfigError),
    /// The kubeconfig was changed while the broker ran.
    #[error("the user of the hub's kubeconfig runs a plugin since it was changed; start the broker again")]
    NewPlugin,
    /// The hub's own plugin cannot be run.
    #[error("the plugin of the hub's user cannot be run")]
    Plugin(#[source] ResolveError),
    /// The hub's own plugin gave nothing.
    #[error("the plugin of the hub's user gave no credential")]
    Credential(#[source] Failed),
    /// Address, authorities or credential are of no use.
    #[error("the hub cannot be connected to")]
    Client(#[source] kube::Error),
    /// The hub's answer, or none.
    #[error("the ClusterProfiles cannot be read")]
    Watch(#[source] kube::runtime::watcher::Error),
    /// A stream of the library's that never ends has ended.
    #[error("the ClusterProfiles are no longer followed")]
    Ended,
}

impl HubError {
    /// The error and its causes in one line that may stand in a log and at a terminal.
    pub(super) fn line(&self) -> String {
        let mut line = self.to_string();
        let mut cause = self.source();
        while let Some(error) = cause {
            let text = error.to_string();
            // kube's errors repeat their sources.
            if !line.contains(&text) {
                let _infallible = write!(line, ": {text}");
            }
            cause = error.source();
        }
        sanitize(&line).chars().take(LONGEST).collect()
    }

    /// Whether the hub says that the credential is none.
    pub(super) fn is_unauthorized(&self) -> bool {
        use kube::runtime::watcher::Error as Watch;
        let Self::Watch(error) = self else { return false };
        match error {
            Watch::InitialListFailed(error) | Watch::WatchStartFailed(error) | Watch::WatchFailed(error) => {
                matches!(error, kube::Error::Api(status) if status.code == 401)
            }
            Watch::WatchError(status) => status.code == 401,
            Watch::NoResourceVersion => false,
        }
    }
}
