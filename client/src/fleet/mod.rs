//! The clusters of a fleet, always as the broker knows them now.

mod state;
#[cfg(test)]
mod tests;

use std::{collections::VecDeque, fmt, future::Future, sync::Arc};

use futures_util::Stream;
use tokio::{
    sync::watch,
    time::{Duration, sleep},
};
use tokio_util::task::AbortOnDropHandle;

use self::state::{Keeper, Known, View, differences};
use crate::{Connections, Error, source::supervisor};

pub use credbroker_proto::v1::{
    ClusterProfileRef, ClusterState, HubState, ListClustersResponse, WatchClustersResponse,
};

/// For a broker that is just starting.
const FOR_BROKER: Duration = Duration::from_secs(5);

/// The clusters of the fleet, for as long as the last clone of this lives.
///
/// A task watches the broker and comes back after a restart; what is known stays meanwhile, and until a restarted broker
/// has read its hub nothing counts as gone. Each clone is told of every cluster by itself.
///
/// ```no_run
/// # async fn example() -> Result<(), credbroker_client::Error> {
/// use credbroker_client::{ClusterEvent, Connections, Socket};
///
/// let broker = Connections::to(Socket::at(Socket::SYSTEM));
/// let mut clusters = broker.clusters("fleet");
/// loop {
///     match clusters.event().await {
///         ClusterEvent::Appeared(cluster) => println!("{} is new", cluster.display_name),
///         ClusterEvent::Changed(cluster) => println!("{} is another", cluster.display_name),
///         ClusterEvent::Gone(cluster) => println!("{} is gone", cluster.display_name),
///         _ => {}
///     }
/// }
/// # }
/// ```
#[derive(Clone)]
pub struct Clusters {
    shared: Arc<Following>,
    progress: watch::Receiver<View>,
    /// What this handle was told of, and what it is about to be.
    told: Known,
    pending: VecDeque<ClusterEvent>,
}

struct Following {
    namespace: String,
    view: watch::Sender<View>,
    /// Ends with the last handle.
    _task: AbortOnDropHandle<()>,
}

/// What happened to a cluster since a handle was told of it last.
///
/// ```no_run
/// # fn example(event: credbroker_client::ClusterEvent) {
/// use credbroker_client::ClusterEvent;
///
/// let is_over = matches!(event, ClusterEvent::Gone(_));
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ClusterEvent {
    /// It is new.
    Appeared(Arc<ClusterState>),
    /// It is another than before: its endpoint, its readiness, or what is said of it. Changes that came together are one.
    Changed(Arc<ClusterState>),
    /// It is no longer in the fleet; as it was last.
    Gone(Arc<ClusterState>),
}

impl Clusters {
    /// All of them now, sorted by namespace and name. Empty before [`Self::ready`].
    ///
    /// ```no_run
    /// # fn example(clusters: &credbroker_client::Clusters) {
    /// for cluster in clusters.current() {
    ///     println!("{} {:?}", cluster.display_name, cluster.readiness());
    /// }
    /// # }
    /// ```
    pub fn current(&self) -> Vec<Arc<ClusterState>> {
        self.shared.view.borrow().known.values().cloned().collect()
    }

    /// One of them, if it is there.
    ///
    /// ```no_run
    /// # fn example(clusters: &credbroker_client::Clusters) {
    /// let server = clusters.get("fleet", "paris").and_then(|paris| Some(paris.cluster.clone()?.server));
    /// # }
    /// ```
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<ClusterState>> {
        self.shared.view.borrow().known.get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    /// How well the broker knows the fleet: until it is `synced` some clusters may be missing.
    ///
    /// ```no_run
    /// # fn example(clusters: &credbroker_client::Clusters) {
    /// let is_whole = clusters.hub().synced;
    /// # }
    /// ```
    pub fn hub(&self) -> HubState {
        self.shared.view.borrow().hub.clone()
    }

    /// Why there is nothing newer, if the last attempt to follow failed. For logs and health checks.
    ///
    /// ```no_run
    /// # fn example(clusters: &credbroker_client::Clusters) {
    /// let degraded = clusters.failure().is_some();
    /// # }
    /// ```
    pub fn failure(&self) -> Option<Error> {
        self.shared.view.borrow().failure.clone()
    }

    /// Waits until the broker has sent all clusters that it knows. Dropping the future changes nothing.
    ///
    /// ```no_run
    /// # async fn example(clusters: &credbroker_client::Clusters) -> Result<(), credbroker_client::Error> {
    /// clusters.ready().await?;
    /// println!("{} clusters", clusters.current().len());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Whatever the last attempt met. The following goes on: ask again later.
    ///
    /// - [`Error::Failed`]: the broker has no fleet; its text says why.
    /// - [`Error::Unreachable`]: no broker came within five seconds.
    /// - [`Error::Untrusted`]: whoever listens may be an impostor.
    pub async fn ready(&self) -> Result<(), Error> {
        let mut progress = self.shared.view.subscribe();
        let mut patience = std::pin::pin!(sleep(FOR_BROKER));
        loop {
            let failure = {
                let view = progress.borrow_and_update();
                if view.complete {
                    return Ok(());
                }
                view.failure.clone()
            };
            if let Some(error) = failure
                && (patience.is_elapsed() || !error.may_be_starting())
            {
                return Err(error);
            }
            tokio::select! {
                () = &mut patience, if !patience.is_elapsed() => {}
                // The sender is our own: this never is an error.
                changed = progress.changed() => drop(changed),
            }
        }
    }

    /// Waits for the next thing that this handle was not told of; the clusters that there are come first, as new. Dropping
    /// the future loses nothing.
    ///
    /// ```no_run
    /// # async fn example(mut clusters: credbroker_client::Clusters) {
    /// use credbroker_client::ClusterEvent;
    ///
    /// while let ClusterEvent::Appeared(cluster) = clusters.event().await {
    ///     println!("{}", cluster.display_name);
    /// }
    /// # }
    /// ```
    pub async fn event(&mut self) -> ClusterEvent {
        loop {
            if let Some(event) = self.pending.pop_front() {
                return event;
            }
            let known = Arc::clone(&self.progress.borrow_and_update().known);
            self.pending = differences(&self.told, &known);
            self.told = known;
            if self.pending.is_empty() {
                // The sender is our own: this never is an error.
                drop(self.progress.changed().await);
            }
        }
    }

    pub(crate) fn follow(connections: &Connections, namespace: String) -> Self {
        let (place, watched) = (connections.place(), namespace.clone());
        let watch = move || {
            let (place, namespace) = (Arc::clone(&place), watched.clone());
            async move { place.watch_clusters(&namespace).await }
        };
        Self::start(namespace, watch)
    }

    fn start<W, WF, S>(namespace: String, watch: W) -> Self
    where
        W: FnMut() -> WF + Send + 'static,
        WF: Future<Output = Result<S, Error>> + Send,
        S: Stream<Item = Result<WatchClustersResponse, Error>> + Send + Unpin,
    {
        let (view, progress) = watch::channel(View::default());
        let keeper = Keeper::of(view.clone());
        let work = async move { supervisor::follow(keeper, watch).await };
        #[expect(clippy::disallowed_methods, reason = "ends with the last handle of the clusters")]
        let task = AbortOnDropHandle::new(tokio::spawn(work));
        let shared = Arc::new(Following { namespace, view, _task: task });
        Self { shared, progress, told: Known::default(), pending: VecDeque::new() }
    }
}

impl fmt::Debug for Clusters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clusters")
            .field("namespace", &self.shared.namespace)
            .field("known", &self.shared.view.borrow().known.len())
            .field("hub", &self.hub())
            .field("failure", &self.failure())
            .finish_non_exhaustive()
    }
}
