//! The hub is the API server whose ClusterProfiles are the inventory of the fleet. This module reads them into the
//! [`Fleet`] while the broker runs, and fetches credentials ahead where the configuration asks for it.
//!
//! When the hub fails, the profiles that were read stay in use.

mod client;
mod error;
mod inventory;
mod prewarm;
mod session;
#[cfg(test)]
mod tests;

use std::{pin::pin, sync::Arc, time::Duration};

use tokio::{
    sync::{Notify, watch},
    time::sleep,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{debug, info, warn};

use self::{
    client::{HubConnection, HubConnector},
    error::HubError,
    inventory::Inventory,
    prewarm::Prewarmer,
    session::{Scopes, SessionEnd},
};
use crate::{
    fleet::{Fleet, HubState},
    resolver::Resolver,
};
use credbroker_cache::CredentialCache;
use credbroker_config::{ClusterProfiles, HubAccess};
use credbroker_observe::clock::full_jitter;
use credbroker_plugin::{Provider, ProviderUpdate, Providers};
use credbroker_runner::PluginRunner;

/// A session that lasts this long ends the back-off.
const STEADY: Duration = Duration::from_secs(30);
/// The first wait after a failure is at most this long. It doubles with each failure in a row.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// No wait is longer.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// No wait is shorter: a hub that fails at once is not asked in a loop.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);

/// Reads the hub until the broker stops or the section changes.
#[derive(Debug)]
pub struct Hub<R> {
    section: ClusterProfiles,
    /// The plugin of the hub's user, if it has one.
    plugins: Arc<Providers>,
    access: HubConnector<R>,
    scopes: Scopes,
    inventory: Inventory<R>,
    jitter: fn() -> f64,
}

/// What a [`Hub`] needs.
#[derive(Debug)]
pub struct HubParts<R> {
    /// Receives the profiles.
    pub fleet: Arc<Fleet>,
    /// Resolves profiles, for fetching ahead.
    pub resolver: Arc<Resolver>,
    /// Holds the credentials: the hub's own, if a plugin issues it, and those of the fleet.
    pub cache: CredentialCache<R>,
    /// Uniform in [0, 1): spreads retries.
    pub jitter: fn() -> f64,
    /// Owns the tasks.
    pub tasks: TaskTracker,
    /// Cancelled when the broker stops.
    pub draining: CancellationToken,
}

impl<R> Clone for HubParts<R> {
    fn clone(&self) -> Self {
        let Self { fleet, resolver, cache, jitter, tasks, draining } = self;
        let (fleet, resolver) = (Arc::clone(fleet), Arc::clone(resolver));
        let (tasks, draining) = (tasks.clone(), draining.clone());
        Self { fleet, resolver, cache: cache.clone(), jitter: *jitter, tasks, draining }
    }
}

impl<R: PluginRunner> Hub<R> {
    /// A reader of the hub that `section` names, whose plugin is the only one of `plugins`. It does not connect yet.
    pub fn new(section: ClusterProfiles, plugins: Arc<Providers>, parts: HubParts<R>) -> Self {
        let ClusterProfiles { hub, namespaces, label_selector, prewarm, .. } = section.clone();
        let HubParts { fleet, resolver, cache, jitter, tasks, draining } = parts;
        let prewarmer = Prewarmer::new(prewarm, resolver, cache.clone(), tasks, draining);
        Self {
            access: HubConnector::new(hub, Arc::clone(&plugins), cache.clone()),
            section,
            plugins,
            scopes: Scopes::new(namespaces, label_selector),
            inventory: Inventory::new(fleet, cache, prewarmer),
            jitter,
        }
    }

    /// The fleet that it writes.
    pub fn fleet(&self) -> &Fleet {
        self.inventory.fleet()
    }

    /// Reads and watches the hub. After a failure it starts again, with back-off. Returns only if a task that fetches
    /// ahead has ended.
    pub async fn run(&self) {
        self.inventory.keep_only(&self.section.namespaces);
        self.inventory.offer_known();
        tokio::select! {
            () = self.read() => {}
            () = self.inventory.prewarmer().ended() => {}
        }
    }

    async fn read(&self) {
        let mut failures = 0;
        loop {
            self.fleet().begin_read();
            let error = match self.access.connect().await {
                Ok(mut connection) => match self.follow(&mut connection, &mut failures).await {
                    SessionEnd::Moved => {
                        debug!("the hub's kubeconfig leads to another server or user: listing again");
                        continue;
                    }
                    SessionEnd::Failed(error) => {
                        connection.report(&error).await;
                        error
                    }
                },
                Err(error) => error,
            };
            self.access.learn_from(&error);
            failures = u32::saturating_add(failures, 1);
            let pause =
                full_jitter(failures, FIRST_PAUSE, LONGEST_PAUSE, (self.jitter)()).max(SHORTEST_PAUSE);
            if error.is_expired() && failures == 1 {
                debug!("the hub no longer has the events since the last read: listing again");
            } else {
                self.is_lost(&error, failures, pause);
            }
            self.fleet().end_read(Some(pause));
            sleep(pause).await;
        }
    }

    /// Follows the session to its end. The back-off ends only after a steady session, so that a hub that answers and then
    /// fails is listed less and less often.
    async fn follow(&self, connection: &mut HubConnection<R>, failures: &mut u32) -> SessionEnd {
        let read = Notify::new();
        let is_read = || {
            self.is_read();
            read.notify_one();
        };
        let session = session::follow(connection, &self.access, &self.scopes, &self.inventory, is_read);
        watched_over(session, &read, || *failures = 0).await
    }

    /// Every profile was read once, and the watches run.
    fn is_read(&self) {
        let HubState { synced, problem } = self.fleet().hub();
        if !synced || problem.is_some() {
            info!(profiles = self.fleet().list(None).len(), "watching the hub");
        }
        self.fleet().set_hub(HubState { synced: true, problem: None });
        self.fleet().end_read(None);
    }

    /// Records the failure. The known profiles stay in use.
    fn is_lost(&self, error: &HubError, failures: u32, pause: Duration) {
        let HubState { synced, .. } = self.fleet().hub();
        let problem = error.line();
        // Repeated failures are logged at debug level; the recovery is logged.
        if failures <= 3 {
            warn!(retry = ?pause, known = self.fleet().list(None).len(), "the hub cannot be read: {problem}");
        } else {
            debug!(retry = ?pause, "the hub still cannot be read: {problem}");
        }
        self.fleet().set_hub(HubState { synced, problem: Some(problem.into()) });
    }
}

/// Waits for the end of `session`. Calls `is_steady` if it goes on for [`STEADY`] after `read`.
async fn watched_over<T>(session: impl Future<Output = T>, read: &Notify, is_steady: impl FnOnce()) -> T {
    let mut session = pin!(session);
    let steady = async {
        read.notified().await;
        sleep(STEADY).await;
    };
    tokio::select! {
        end = &mut session => return end,
        () = steady => is_steady(),
    }
    session.await
}

/// Reads the hub of the configuration in force, if it has one. A reload may replace the hub.
#[derive(Debug)]
pub struct HubReader<R> {
    parts: HubParts<R>,
    current: watch::Sender<Option<Arc<Hub<R>>>>,
}

impl<R: PluginRunner> HubReader<R> {
    /// A reader of the hub that `section` names. It does not connect yet.
    pub fn new(section: Option<ClusterProfiles>, parts: HubParts<R>) -> Self {
        let hub = section.map(|section| {
            let plugins = Arc::new(Providers::new(plugin(&section)));
            Arc::new(Hub::new(section, plugins, parts.clone()))
        });
        Self { parts, current: watch::Sender::new(hub) }
    }

    /// Reads the newest hub until the future is dropped. Returns only if a task that fetches ahead has ended.
    pub async fn run(&self) {
        let (mut hubs, mut before) = (self.current.subscribe(), None::<Arc<Hub<R>>>);
        loop {
            let hub = hubs.borrow_and_update().clone();
            let is_same = |before: &Arc<Hub<R>>| {
                hub.as_ref().is_some_and(|hub| before.section.is_same_hub(&hub.section))
            };
            // Not earlier: the reader before has ended by now, so that it adds no profile afterwards.
            if let Some(before) = before.take().filter(|before| !is_same(before)) {
                before.inventory.clear();
            }
            before.clone_from(&hub);
            let mut reading = pin!(async {
                match &hub {
                    Some(hub) => hub.run().await,
                    None => std::future::pending().await,
                }
            });
            tokio::select! {
                () = &mut reading => return,
                // Never an error: `self` holds the sender.
                changed = hubs.changed() => drop(changed),
            }
        }
    }

    /// Continues with `section` of a newer configuration, whose providers are `providers`. A reader that is not affected
    /// goes on. The profiles of another hub are removed; those of the same one stay while it is read again.
    ///
    /// Returns whether the section has changed.
    pub fn replace(&self, section: Option<ClusterProfiles>, providers: &Arc<Providers>) -> bool {
        let before = self.current.borrow().clone();
        let Some(section) = section else {
            let Some(hub) = before else { return false };
            self.current.send_replace(None);
            self.plugins(&hub.plugins, None);
            return true;
        };
        let is_rebased = self.parts.fleet.rebase(Arc::clone(providers), section.rules);
        let Some(hub) = before else {
            let plugins = self.plugins(&Providers::default(), plugin(&section));
            self.start(section, plugins);
            return true;
        };
        if is_rebased {
            hub.inventory.resolve_again();
        }
        if hub.section.is_read_alike(&section) {
            return false;
        }
        let plugins = self.plugins(&hub.plugins, plugin(&section));
        self.start(section, plugins);
        true
    }

    fn start(&self, section: ClusterProfiles, plugins: Arc<Providers>) {
        info!("reading the hub with the changed configuration");
        let hub = Hub::new(section, plugins, self.parts.clone());
        self.current.send_replace(Some(Arc::new(hub)));
    }

    /// The plugin of the hub's user, of which `old` is the earlier one. A changed one starts cold.
    fn plugins(&self, old: &Providers, new: Option<Provider>) -> Arc<Providers> {
        let succession = ProviderUpdate::of(Providers::new(new), old);
        succession.commit();
        self.parts.cache.forget_retired();
        succession.providers
    }
}

fn plugin(section: &ClusterProfiles) -> Option<Provider> {
    match &section.hub {
        HubAccess::Kubeconfig { plugin, .. } => plugin.as_deref().cloned(),
        HubAccess::InCluster => None,
    }
}
