//! The clusters of the fleet from the messages of successive watches.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use tokio::sync::watch;

use super::event::ClusterEvent;
use crate::{
    cluster_state::{ClusterChanges, ClusterState, ContextState, HubState},
    error::Error,
    reference::ClusterProfileRef,
    supervisor::Follower,
};

/// Shared, because a message copies the map while readers hold the previous one.
type Key = Arc<ClusterProfileRef>;

/// An unchanged cluster is the same `Arc`.
pub(super) type ClusterMap = Arc<BTreeMap<Key, Arc<ClusterState>>>;

/// The contexts by their digests.
pub type ContextMap = Arc<BTreeMap<String, Arc<ContextState>>>;

/// What readers see.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    pub(super) clusters: ClusterMap,
    pub(super) contexts: ContextMap,
    pub(super) hub: HubState,
    /// Whether the broker reads `ClusterProfile`s at all.
    pub(super) reads_hub: bool,
    /// A broker has sent all its clusters at least once.
    pub(super) complete: bool,
    /// Why there is nothing newer. Cleared by the next message.
    pub(super) failure: Option<Error>,
}

/// The one writer of a view.
#[derive(Debug)]
pub(super) struct ViewWriter {
    view: watch::Sender<View>,
    /// The clusters that this watch has sent, until the initial list is complete and the others have been removed.
    listed: Option<BTreeSet<Key>>,
    /// The same of contexts.
    listed_contexts: Option<BTreeSet<String>>,
    complete: bool,
}

impl ViewWriter {
    pub(super) fn new(view: watch::Sender<View>) -> Self {
        Self { view, listed: None, listed_contexts: None, complete: false }
    }
}

impl Follower<ClusterChanges> for ViewWriter {
    fn begin(&mut self) {
        self.listed = Some(BTreeSet::new());
        self.listed_contexts = Some(BTreeSet::new());
        self.complete = false;
    }

    fn apply(&mut self, message: ClusterChanges) -> bool {
        self.complete |= message.complete;
        let (listed, listed_contexts, is_complete) =
            (&mut self.listed, &mut self.listed_contexts, self.complete);
        let mut is_new = false;
        self.view.send_modify(|view| {
            view.failure = None;
            view.complete |= is_complete;
            view.reads_hub = message.hub.is_some();
            view.hub = message.hub.unwrap_or_default();
            is_new |= apply_contexts(
                &mut view.contexts,
                message.contexts,
                &message.removed_contexts,
                listed_contexts,
                is_complete,
            );
            for cluster in message.changed {
                let key = Arc::new(cluster.profile.clone());
                if let Some(listed) = listed.as_mut() {
                    listed.insert(Arc::clone(&key));
                }
                if view.clusters.get(&key).is_none_or(|known| **known != cluster) {
                    is_new = true;
                    Arc::make_mut(&mut view.clusters).insert(key, Arc::new(cluster));
                }
            }
            for removed in message.removed {
                let key = Arc::new(removed);
                if let Some(listed) = listed.as_mut() {
                    listed.remove(&key);
                }
                if view.clusters.contains_key(&key) {
                    is_new = true;
                    Arc::make_mut(&mut view.clusters).remove(&key);
                }
            }
            // A broker that has just started may not have read its hub: then a missing cluster is not a removed one.
            if is_complete
                && view.hub.synced
                && let Some(listed) = listed.take()
                && view.clusters.keys().any(|key| !listed.contains(key))
            {
                is_new = true;
                Arc::make_mut(&mut view.clusters).retain(|key, _| listed.contains(key));
            }
        });
        is_new
    }

    fn fail(&mut self, error: Error) {
        self.view.send_modify(|view| view.failure = Some(error));
    }
}

/// Applies what a message says of contexts. Returns whether it changed anything.
fn apply_contexts(
    known: &mut ContextMap,
    changed: Vec<ContextState>,
    removed: &[String],
    listed: &mut Option<BTreeSet<String>>,
    is_complete: bool,
) -> bool {
    let mut is_new = false;
    for context in changed {
        if let Some(listed) = listed.as_mut() {
            listed.insert(context.digest.clone());
        }
        if known.get(&context.digest).is_none_or(|known| **known != context) {
            is_new = true;
            Arc::make_mut(known).insert(context.digest.clone(), Arc::new(context));
        }
    }
    for digest in removed {
        if let Some(listed) = listed.as_mut() {
            listed.remove(digest);
        }
        is_new |= known.contains_key(digest) && Arc::make_mut(known).remove(digest).is_some();
    }
    // A broker reads its kubeconfigs before it serves.
    if is_complete
        && let Some(listed) = listed.take()
        && known.keys().any(|digest| !listed.contains(digest))
    {
        is_new = true;
        Arc::make_mut(known).retain(|digest, _| listed.contains(digest));
    }
    is_new
}

/// The events that lead from `before` to `after`.
pub(super) fn differences(before: &ClusterMap, after: &ClusterMap) -> VecDeque<ClusterEvent> {
    if Arc::ptr_eq(before, after) {
        return VecDeque::new();
    }
    let gone = before.iter().filter(|(key, _)| !after.contains_key(*key));
    let gone = gone.map(|(_, cluster)| ClusterEvent::Removed(Arc::clone(cluster)));
    let others = after.iter().filter_map(|(key, cluster)| match before.get(key) {
        None => Some(ClusterEvent::Added(Arc::clone(cluster))),
        Some(known) if Arc::ptr_eq(known, cluster) || known == cluster => None,
        Some(_) => Some(ClusterEvent::Changed(Arc::clone(cluster))),
    });
    gone.chain(others).collect()
}
