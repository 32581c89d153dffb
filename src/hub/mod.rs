//! The hub: the API server whose ClusterProfiles are the inventory of the fleet. Reads them into the [`Fleet`], for as
//! long as the broker lives, and fetches credentials ahead where the configuration asks for it.
//!
//! A hub that fails takes nothing away: what is known stays in use.

mod access;
mod backoff;
mod bounds;
mod error;
mod inventory;
mod prewarm;
mod session;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use tokio::{sync::Notify, time::sleep};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{debug, info, warn};

use self::{
    access::Access,
    backoff::Backoff,
    error::HubError,
    inventory::Inventory,
    prewarm::Prewarmer,
    session::{End, Scopes, Session},
};
use crate::{
    cache::CredentialCache,
    config::ClusterProfiles,
    exec::PluginRunner,
    fleet::{Fleet, HubState},
    resolver::Resolver,
};

/// A hub that was followed for so long is well again.
const STEADY: Duration = Duration::from_secs(30);

/// Reads the hub for ever.
#[derive(Debug)]
pub struct Hub<R> {
    access: Access<R>,
    scopes: Scopes,
    inventory: Inventory<R>,
    jitter: fn() -> f64,
}

/// What a hub reader is made of.
#[derive(Debug)]
pub struct HubParts<R> {
    /// Where to write what the hub says.
    pub fleet: Arc<Fleet>,
    /// Resolves profiles, for fetching ahead.
    pub resolver: Arc<Resolver>,
    /// Holds the credentials: the hub's own, if a plugin issues it, and those of the fleet.
    pub cache: CredentialCache<R>,
    /// Uniform in [0, 1): spreads retries.
    pub jitter: fn() -> f64,
    /// Owns the tasks.
    pub tasks: TaskTracker,
    /// Cancelled: everything ends.
    pub draining: CancellationToken,
}

impl<R: PluginRunner> Hub<R> {
    /// A reader of what `section` names. Nothing is connected yet.
    pub fn new(section: ClusterProfiles, parts: HubParts<R>) -> Self {
        let ClusterProfiles { hub, namespaces, label_selector, prewarm, .. } = section;
        let HubParts { fleet, resolver, cache, jitter, tasks, draining } = parts;
        let prewarmer = Prewarmer::new(prewarm, resolver, cache.clone(), tasks, draining);
        Self {
            access: Access::new(hub, cache.clone()),
            scopes: Scopes::new(namespaces, label_selector),
            inventory: Inventory::new(fleet, cache, prewarmer),
            jitter,
        }
    }

    /// What it writes.
    pub fn fleet(&self) -> &Fleet {
        self.inventory.fleet()
    }

    /// Follows the hub, and comes back for ever, with back-off.
    pub async fn run(&self) {
        let mut backoff = Backoff::new(self.jitter);
        loop {
            let error = match Session::open(&self.access, &self.scopes, &self.inventory).await {
                Ok(mut session) => match self.follow(&mut session, &mut backoff).await {
                    End::Rotated => {
                        debug!("the hub's credential rotated: connecting with the new one");
                        continue;
                    }
                    End::Failed(error) => {
                        session.report(&error).await;
                        error
                    }
                },
                Err(error) => error,
            };
            self.access.learn_from(&error);
            let pause = backoff.next();
            if error.is_expired() && backoff.failures() == 1 {
                debug!("the hub no longer knows what changed since the last look: listing anew");
            } else {
                self.is_lost(&error, &backoff, pause);
            }
            sleep(pause).await;
        }
    }

    /// To the end of the session. A hub that answers and then fails, over and over, is listed less and less often.
    async fn follow(&self, session: &mut Session<'_, R>, backoff: &mut Backoff) -> End {
        let read = Notify::new();
        let followed = session.follow(|| {
            self.is_read();
            read.notify_one();
        });
        watched_over(followed, &read, || backoff.reset()).await
    }

    /// All that there is was read, and is followed.
    fn is_read(&self) {
        let HubState { synced, problem } = self.fleet().hub();
        if !synced || problem.is_some() {
            info!(profiles = self.fleet().list(None).len(), "the hub is followed");
        }
        self.fleet().set_hub(HubState { synced: true, problem: None });
    }

    /// What is known stays in use.
    fn is_lost(&self, error: &HubError, backoff: &Backoff, pause: Duration) {
        let HubState { synced, .. } = self.fleet().hub();
        let problem = error.line();
        // A repeated failure goes quiet; its end is told.
        if backoff.failures() <= 3 {
            warn!(retry = ?pause, known = self.fleet().list(None).len(), "the hub cannot be read: {problem}");
        } else {
            debug!(retry = ?pause, "the hub still cannot be read: {problem}");
        }
        self.fleet().set_hub(HubState { synced, problem: Some(problem.into()) });
    }
}

/// The end of `session`. If it goes on for a while after `read`, `is_steady` is called.
async fn watched_over<T>(session: impl Future<Output = T>, read: &Notify, is_steady: impl FnOnce()) -> T {
    let mut session = std::pin::pin!(session);
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
