//! Contexts of kubeconfigs: a cluster, and what issues the credentials for it.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use tokio::sync::watch;

use super::error::ResolveError;
use credbroker_credential::Cluster;

/// A context as a request names it. The digest covers everything that the context means, so no answer to a request is
/// for another cluster or another identity than the caller knows.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct ContextId {
    /// Name of the context.
    pub name: Arc<str>,
    /// Digest of its definition.
    pub digest: Arc<str>,
}

/// A context of a kubeconfig.
#[derive(Clone, Debug)]
pub struct Context {
    /// Its name and digest.
    pub id: ContextId,
    /// The kubeconfig that defines it.
    pub file: PathBuf,
    /// The name of its user. For access rules, it is the name of a provider.
    pub user: Arc<str>,
    /// Its cluster and what issues its credential, or why the context cannot be used.
    pub outcome: Result<ContextTarget, Arc<str>>,
    /// The value is whether the context has ended.
    ended: watch::Sender<bool>,
}

/// The cluster and the user of a context.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ContextTarget {
    /// The cluster, which each answer has.
    pub cluster: Arc<Cluster>,
    /// The kubeconfig that defines the user, and the name of the user there.
    pub user: (PathBuf, Arc<str>),
    /// Whether the user runs a plugin, so that it is a provider.
    pub has_plugin: bool,
    /// Whether the credential comes with the cluster, because the plugin receives it.
    pub gives_cluster: bool,
}

impl Context {
    /// A context that is in use.
    pub fn new(
        id: ContextId,
        file: PathBuf,
        user: impl Into<Arc<str>>,
        outcome: Result<ContextTarget, Arc<str>>,
    ) -> Self {
        Self { id, file, user: user.into(), outcome, ended: watch::Sender::new(false) }
    }

    /// The kubeconfig that defines it.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Its cluster and user.
    ///
    /// # Errors
    ///
    /// The context cannot be used.
    pub fn target(&self) -> Result<&ContextTarget, ResolveError> {
        let unusable =
            |why: &Arc<str>| ResolveError::UnusableContext(self.id.name.to_string(), Arc::clone(why));
        self.outcome.as_ref().map_err(unusable)
    }

    /// Returns when no kubeconfig has this context any longer, or when it means something else.
    pub async fn ended(&self) {
        // Never an error: `self` has the sender.
        drop(self.ended.subscribe().wait_for(|ended| *ended).await);
    }

    pub(super) fn end(&self) {
        self.ended.send_replace(true);
    }

    /// Whether `newer`, of the same name and digest, has the same cluster and user.
    pub(super) fn is_same(&self, newer: &Self) -> bool {
        self.outcome == newer.outcome
    }
}
