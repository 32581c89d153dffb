//! The handle of the followed clusters.

use std::{collections::VecDeque, fmt, future::Future, sync::Arc};

use futures_core::Stream;
use futures_util::{StreamExt as _, stream};
use tokio::{
    sync::watch,
    time::{Duration, sleep},
};
use tokio_util::task::AbortOnDropHandle;

use super::{
    event::ClusterEvent,
    view::{ClusterMap, ContextMap, View, ViewWriter, differences},
};
use crate::{
    cluster_state::{ClusterChanges, ClusterState, HubState},
    deadline::{BROKER_START, within},
    error::Error,
    link::Link,
    reference::ClusterProfileRef,
    supervisor,
};

/// The clusters of the fleet, until the last clone is dropped: [`Broker::clusters`](crate::Broker::clusters).
///
/// A task watches the broker and reconnects after a restart. Known clusters stay meanwhile, and are removed only after the
/// broker has read its hub. Each clone gets every event.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use credbroker_client::{Broker, ClusterEvent};
///
/// let mut clusters = Broker::from_env()?.clusters_in("fleet");
/// loop {
///     match clusters.event().await {
///         ClusterEvent::Added(cluster) => println!("{} was added", cluster.profile),
///         ClusterEvent::Changed(cluster) => println!("{} has changed", cluster.profile),
///         ClusterEvent::Removed(cluster) => println!("{} was removed", cluster.profile),
///         _ => {}
///     }
/// }
/// # }
/// ```
#[derive(Clone)]
pub struct Clusters {
    shared: Arc<SharedClusters>,
    progress: watch::Receiver<View>,
    /// The clusters of the events that this handle has made.
    seen: ClusterMap,
    pending: VecDeque<ClusterEvent>,
    limit: Option<Duration>,
}

struct SharedClusters {
    namespace: Option<String>,
    view: watch::Sender<View>,
    /// Ends with the last handle.
    _task: AbortOnDropHandle<()>,
}

impl Clusters {
    /// All clusters now, sorted by namespace and name. Empty before [`Self::ready`].
    pub fn current(&self) -> Vec<Arc<ClusterState>> {
        self.shared.view.borrow().clusters.values().cloned().collect()
    }

    /// The cluster of this `ClusterProfile`, if it is known.
    pub fn get(&self, profile: &ClusterProfileRef) -> Option<Arc<ClusterState>> {
        self.shared.view.borrow().clusters.get(profile).cloned()
    }

    /// How complete the broker's own knowledge is. Until it is `synced`, some clusters may be missing.
    pub fn hub(&self) -> HubState {
        self.shared.view.borrow().hub.clone()
    }

    /// Why there is nothing newer, if the last watch failed. For logs and health checks.
    pub fn failure(&self) -> Option<Error> {
        self.shared.view.borrow().failure.clone()
    }

    /// Waits until the broker has sent all clusters that it knows, or as [`Broker::timeout`](crate::Broker::timeout) says.
    /// Cancel safe.
    ///
    /// # Errors
    ///
    /// The error of the last attempt. The task continues to try: call this again later.
    ///
    /// - [`Error::Failed`]: the broker has no fleet; [`Error::reason`] says why.
    /// - [`Error::Timeout`]: they were not there in time. Its `source()` is the last failure, if there was one.
    /// - [`Error::Unreachable`]: no broker answered within five seconds.
    /// - [`Error::Untrusted`]: what listens there may be an impostor.
    pub async fn ready(&self) -> Result<(), Error> {
        self.wait(self.limit).await
    }

    /// As [`Self::ready`], for up to `limit`.
    ///
    /// # Errors
    ///
    /// As [`Self::ready`].
    pub async fn ready_within(&self, limit: Duration) -> Result<(), Error> {
        self.wait(Some(limit)).await
    }

    async fn wait(&self, limit: Option<Duration>) -> Result<(), Error> {
        let complete = within(limit, self.complete()).await;
        complete.map_err(|error| error.waited_for("the clusters", || self.failure()))
    }

    async fn complete(&self) -> Result<(), Error> {
        let mut progress = self.shared.view.subscribe();
        let mut start = std::pin::pin!(sleep(BROKER_START));
        loop {
            let failure = {
                let view = progress.borrow_and_update();
                if view.complete {
                    return Ok(());
                }
                view.failure.clone()
            };
            if let Some(error) = failure
                && (start.is_elapsed() || !error.may_be_starting())
            {
                return Err(error);
            }
            tokio::select! {
                () = &mut start, if !start.is_elapsed() => {}
                // The sender lives as long as this handle.
                changed = progress.changed() => drop(changed),
            }
        }
    }

    /// Waits for the next event of this handle. The first events add the clusters that exist. Cancel safe.
    pub async fn event(&mut self) -> ClusterEvent {
        loop {
            if let Some(event) = self.pending.pop_front() {
                return event;
            }
            let clusters = Arc::clone(&self.progress.borrow_and_update().clusters);
            self.pending = differences(&self.seen, &clusters);
            self.seen = clusters;
            if self.pending.is_empty() {
                // The sender lives as long as this handle.
                drop(self.progress.changed().await);
            }
        }
    }

    /// The events of a new handle: first one for each cluster that exists, then the changes. The stream never ends.
    pub fn events(&self) -> impl Stream<Item = ClusterEvent> + Send + Unpin + use<> {
        let clusters = Self { seen: ClusterMap::default(), pending: VecDeque::new(), ..self.clone() };
        let events = stream::unfold(clusters, |mut clusters| async {
            let event = clusters.event().await;
            Some((event, clusters))
        });
        events.boxed()
    }

    /// The contexts now, by their digests.
    #[doc(hidden)]
    pub fn contexts(&self) -> ContextMap {
        Arc::clone(&self.shared.view.borrow().contexts)
    }

    /// Whether clusters may exist that are not known yet: the broker has not sent all of them, or has not read its hub.
    #[doc(hidden)]
    pub fn may_be_incomplete(&self) -> bool {
        let view = self.shared.view.borrow();
        !view.complete || (view.reads_hub && !view.hub.synced)
    }

    /// Waits until a cluster or a context, or the state of the broker's knowledge, may have changed. Cancel safe.
    #[doc(hidden)]
    pub async fn changed(&mut self) {
        // The sender lives as long as this handle.
        drop(self.progress.changed().await);
    }

    pub(crate) fn over(
        link: &Arc<Link>,
        namespace: Option<String>,
        contexts: bool,
        limit: Option<Duration>,
    ) -> Self {
        let (shared, of) = (link.subscribe(), namespace.clone());
        let watch = move || {
            let (watcher, namespace) = (Arc::clone(&shared), of.clone());
            async move { watcher.watch_clusters(namespace.as_deref(), contexts).await }
        };
        Self { limit, ..Self::start(namespace, watch) }
    }

    fn start<W, WF, S>(namespace: Option<String>, watch: W) -> Self
    where
        W: FnMut() -> WF + Send + 'static,
        WF: Future<Output = Result<S, Error>> + Send,
        S: Stream<Item = Result<ClusterChanges, Error>> + Send + Unpin,
    {
        let (view, progress) = watch::channel(View::default());
        let writer = ViewWriter::new(view.clone());
        let work = async move { supervisor::run(writer, watch).await };
        #[expect(clippy::disallowed_methods, reason = "ends with the last handle of the clusters")]
        let task = AbortOnDropHandle::new(tokio::spawn(work));
        let shared = Arc::new(SharedClusters { namespace, view, _task: task });
        Self { shared, progress, seen: ClusterMap::default(), pending: VecDeque::new(), limit: None }
    }
}

impl fmt::Debug for Clusters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clusters")
            .field("namespace", &self.shared.namespace)
            .field("known", &self.shared.view.borrow().clusters.len())
            .field("hub", &self.hub())
            .field("failure", &self.failure())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
