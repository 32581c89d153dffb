//! From the messages of one watch after the other to the clusters that there are.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use credbroker_proto::v1::{ClusterProfileRef, ClusterState, HubState, WatchClustersResponse};
use tokio::sync::watch;

use super::ClusterEvent;
use crate::{Error, source::supervisor::Keeps};

/// Namespace and name; shared, because each message may copy the map under readers that hold the one before.
type Key = Arc<(String, String)>;

/// A cluster that did not change is the same `Arc`.
pub(super) type Known = Arc<BTreeMap<Key, Arc<ClusterState>>>;

/// What the readers see.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    pub(super) known: Known,
    pub(super) hub: HubState,
    /// A broker has sent all that it knew, once.
    pub(super) complete: bool,
    /// Why there is nothing newer; gone with the next message.
    pub(super) failure: Option<Error>,
}

/// The one writer.
#[derive(Debug)]
pub(super) struct Keeper {
    view: watch::Sender<View>,
    /// What this watch named, until it is known what it does not name.
    named: Option<BTreeSet<Key>>,
    complete: bool,
}

impl Keeper {
    pub(super) fn of(view: watch::Sender<View>) -> Self {
        Self { view, named: None, complete: false }
    }
}

impl Keeps<WatchClustersResponse> for Keeper {
    fn begin(&mut self) {
        self.named = Some(BTreeSet::new());
        self.complete = false;
    }

    fn keep(&mut self, message: WatchClustersResponse) -> bool {
        self.complete |= message.complete;
        let (named, is_complete) = (&mut self.named, self.complete);
        let mut is_news = false;
        self.view.send_modify(|view| {
            view.failure = None;
            view.complete |= is_complete;
            view.hub = message.hub.unwrap_or_default();
            for cluster in message.changed {
                let Some(key) = cluster.cluster_profile.clone().map(key) else { continue };
                if let Some(named) = named.as_mut() {
                    named.insert(Arc::clone(&key));
                }
                if view.known.get(&key).is_none_or(|known| **known != cluster) {
                    is_news = true;
                    Arc::make_mut(&mut view.known).insert(key, Arc::new(cluster));
                }
            }
            for removed in message.removed {
                let key = key(removed);
                if let Some(named) = named.as_mut() {
                    named.remove(&key);
                }
                if view.known.contains_key(&key) {
                    is_news = true;
                    Arc::make_mut(&mut view.known).remove(&key);
                }
            }
            // A broker that has just started may know nothing yet: that takes nobody's cluster away.
            if is_complete
                && view.hub.synced
                && let Some(named) = named.take()
                && view.known.keys().any(|key| !named.contains(key))
            {
                is_news = true;
                Arc::make_mut(&mut view.known).retain(|key, _| named.contains(key));
            }
        });
        is_news
    }

    fn fail(&mut self, error: Error) {
        self.view.send_modify(|view| view.failure = Some(error));
    }
}

/// What to tell somebody who knows `before`.
pub(super) fn differences(before: &Known, after: &Known) -> VecDeque<ClusterEvent> {
    if Arc::ptr_eq(before, after) {
        return VecDeque::new();
    }
    let gone = before.iter().filter(|(key, _)| !after.contains_key(*key));
    let gone = gone.map(|(_, cluster)| ClusterEvent::Gone(Arc::clone(cluster)));
    let others = after.iter().filter_map(|(key, cluster)| match before.get(key) {
        None => Some(ClusterEvent::Appeared(Arc::clone(cluster))),
        Some(known) if Arc::ptr_eq(known, cluster) || known == cluster => None,
        Some(_) => Some(ClusterEvent::Changed(Arc::clone(cluster))),
    });
    gone.chain(others).collect()
}

fn key(profile: ClusterProfileRef) -> Key {
    Arc::new((profile.namespace, profile.name))
}
