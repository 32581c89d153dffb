//! The hub is the API server whose ClusterProfiles are the inventory of the fleet. This module reads them into the
//! [`Fleet`](crate::Fleet), and fetches credentials ahead. When the hub fails, the profiles that were read stay in use.

mod client;
mod error;
mod inventory;
mod prewarm;
mod session;

use std::{future::pending, sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    time::{sleep, timeout},
};
use tracing::{debug, info, warn};

use self::{
    client::{HubConnector, HubTimeouts},
    error::{Excess, HubError},
    inventory::Inventory,
};
use crate::fleet::HubState;
use credbroker_config::ClusterProfiles;
use credbroker_observe::clock::full_jitter;
use credbroker_plugin::{ProviderUpdate, Providers};
use credbroker_runner::PluginRunner;

pub use prewarm::HubParts;

/// The first wait after a failure is at most this long. It doubles with each failure in a row.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);

/// A session that lasts this long after everything was read is steady.
const STEADY: Duration = Duration::from_secs(30);

/// Profiles per page: kube's default, and a number so small that a page of the largest objects fits the limit.
const PAGES: (u32, u32) = (500, 8);

/// Reads one hub until the broker stops or the section changes.
#[derive(Debug)]
struct Hub<R> {
    section: ClusterProfiles,
    access: HubConnector<R>,
    inventory: Inventory<R>,
    parts: Arc<HubParts<R>>,
}

impl<R: PluginRunner> Hub<R> {
    /// A reader of the hub that `section` names, whose plugin is the only one of `plugins`. It does not connect yet.
    fn new(section: ClusterProfiles, plugins: Arc<Providers>, parts: Arc<HubParts<R>>) -> Self {
        let (hub, timeouts, cache) = (section.hub.clone(), HubTimeouts::default(), parts.cache.clone());
        let access = HubConnector { hub, timeouts, plugins, cache };
        let inventory = Inventory::new(section.prewarm.clone(), Arc::clone(&parts));
        Self { section, access, inventory, parts }
    }

    /// Reads and watches the hub. After a failure it starts again, with back-off.
    async fn run(&self) {
        self.inventory.take_over(&self.section.namespaces);
        let (mut failures, mut page) = (0, PAGES.0);
        loop {
            let error = match self.access.connect().await {
                Ok(mut connection) => {
                    let (access, section, inventory) = (&self.access, &self.section, &self.inventory);
                    let unread = watch::Sender::new(section.namespaces.len().max(1));
                    let ended = tokio::select! {
                        ended = session::follow(&mut connection, access, section, page, inventory, &unread) => ended,
                        excess = self.watch_over(unread.subscribe(), &mut failures) => Some(excess.into()),
                    };
                    let Some(error) = ended else {
                        debug!("the hub's kubeconfig names another server or user: listing again");
                        continue;
                    };
                    access.report(connection, &error).await;
                    error
                }
                Err(error) => error,
            };
            if error.excess() == Some(Excess::Page) {
                page = PAGES.1;
            }
            failures = u32::saturating_add(failures, 1);
            let pause = full_jitter(failures, FIRST_PAUSE, LONGEST_PAUSE, (self.parts.jitter)());
            let pause = pause.max(SHORTEST_PAUSE);
            if error.code() == Some(410) && failures == 1 {
                // This is normal.
                debug!("the hub no longer has the events since the last read: listing again");
            } else {
                self.is_lost(&error, failures, pause);
            }
            self.parts.fleet.end_read(Some(pause));
            sleep(pause).await;
        }
    }

    /// Notes how far a session comes, of whose scopes `unread` were not listed yet. The back-off ends only when it is steady,
    /// so that a hub that answers and then fails is listed less and less often.
    async fn watch_over(&self, mut unread: watch::Receiver<usize>, failures: &mut u32) -> Excess {
        let limit = self.access.timeouts.list;
        if timeout(limit, unread.wait_for(|unread| *unread == 0)).await.is_err() {
            return Excess::Time(limit);
        }
        self.is_read();
        sleep(STEADY).await;
        *failures = 0;
        pending().await
    }

    fn is_read(&self) {
        let fleet = &self.parts.fleet;
        let HubState { synced, problem, .. } = fleet.hub();
        if !synced || problem.is_some() {
            info!(profiles = fleet.list(None).len(), "watching the hub");
        }
        fleet.set_hub(true, None);
        fleet.end_read(None);
    }

    /// Records the failure. The known profiles stay in use.
    fn is_lost(&self, error: &HubError, failures: u32, pause: Duration) {
        let (fleet, problem) = (&self.parts.fleet, error.line());
        // Repeated failures are logged at debug level; the recovery is logged.
        if failures <= 3 {
            warn!(retry = ?pause, known = fleet.list(None).len(), "the hub cannot be read: {problem}");
        } else {
            debug!(retry = ?pause, "the hub still cannot be read: {problem}");
        }
        fleet.set_hub(fleet.hub().synced, Some(problem.into()));
    }
}

/// Reads the hub of the active configuration, if it has one. A reload may replace the hub.
#[derive(Debug)]
pub struct HubReader<R> {
    parts: Arc<HubParts<R>>,
    current: watch::Sender<Option<Arc<Hub<R>>>>,
}

impl<R: PluginRunner> HubReader<R> {
    /// A reader of the hub that `section` names. It does not connect yet.
    pub fn new(section: Option<ClusterProfiles>, parts: HubParts<R>) -> Self {
        let parts = Arc::new(parts);
        let hub = section.map(|section| {
            let plugins = Arc::new(Providers::new(section.plugin().cloned()));
            Arc::new(Hub::new(section, plugins, Arc::clone(&parts)))
        });
        Self { parts, current: watch::Sender::new(hub) }
    }

    /// Reads the newest hub until the future is dropped.
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
            let reading = async {
                match &hub {
                    Some(hub) => hub.run().await,
                    None => pending().await,
                }
            };
            tokio::select! {
                () = reading => {}
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
        let rules = section.as_ref().map(|section| section.rules);
        let is_rebased = rules.is_some_and(|rules| self.parts.fleet.rebase(Arc::clone(providers), rules));
        match (&before, &section) {
            (None, None) => return false,
            (Some(hub), Some(section)) => {
                if is_rebased {
                    hub.inventory.resolve_again();
                }
                if hub.section.is_read_alike(section) {
                    return false;
                }
            }
            (Some(_), None) => drop(self.current.send_replace(None)),
            (None, Some(_)) => {}
        }
        // A changed plugin of the hub's user starts cold.
        let old = before.map(|hub| Arc::clone(&hub.access.plugins)).unwrap_or_default();
        let update = ProviderUpdate::of(
            Providers::new(section.as_ref().and_then(ClusterProfiles::plugin).cloned()),
            &old,
        );
        update.commit();
        self.parts.cache.forget_retired();
        if let Some(section) = section {
            info!("reading the hub with the changed configuration");
            let hub = Hub::new(section, update.providers, Arc::clone(&self.parts));
            self.current.send_replace(Some(Arc::new(hub)));
        }
        true
    }
}

#[cfg(test)]
mod tests;
