//! Lists and watches of the fleet's clusters.
//!
//! A task makes a [`Snapshot`] when the fleet or the hub changes, and every second while there are watches. Each watch
//! remembers which snapshot its peer has, and a message is encoded once for all peers that have the same one. Lists show the
//! newest snapshot; they make one only if something has changed since.

mod readiness;
mod snapshot;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use credbroker_proto::v1 as pb;
use tokio::{
    sync::{Mutex, Notify, watch},
    task::spawn_blocking,
    time::{MissedTickBehavior, interval, sleep},
};
use tonic::{Response, Status};

use self::{
    readiness::Readiness,
    snapshot::{DiffPosition, RowName, Snapshot, View},
};
use crate::{
    access::{Access, Policies},
    convert,
    paging::Paging,
    preencoded::{Follow, MessageStream},
    status,
};
use credbroker_cache::CredentialCache;
use credbroker_fleet::{Fleet, HubState, resolver::Resolver};
use credbroker_observe::clock::Clock;
use credbroker_plugin::{
    ContextId, ProfileName,
    access::{Rights, Verb},
};
use credbroker_runner::PluginRunner;
use credbroker_uds_server::WatchSlot;

/// Interval between snapshots while there are watches: changes of credentials send no notification.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Delay after a change, so that changes close together share one message.
const GATHER: Duration = Duration::from_millis(50);

/// When a snapshot was begun, in time since boot, and what it shows: the revisions of the profiles, of the credentials and of
/// the configuration, and the hub.
type SnapshotBasis = (Duration, (u64, u64, u64, HubState));

/// The fleet as its readers see it.
#[derive(Debug)]
pub struct Clusters<R> {
    fleet: Arc<Fleet>,
    resolver: Arc<Resolver>,
    cache: CredentialCache<R>,
    clock: Arc<dyn Clock>,
    snapshots: watch::Sender<Arc<Snapshot>>,
    /// The lock ensures that one snapshot is made at a time.
    making: Mutex<Option<SnapshotBasis>>,
    /// Notified when a watch begins.
    wanted: Notify,
}

impl<R: PluginRunner> Clusters<R> {
    /// Creates the readers of `fleet`. `cache` and `resolver` provide the readiness of each cluster.
    pub fn new(
        fleet: Arc<Fleet>,
        resolver: Arc<Resolver>,
        cache: CredentialCache<R>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            fleet,
            resolver,
            cache,
            clock,
            snapshots: watch::Sender::new(Arc::default()),
            making: Mutex::default(),
            wanted: Notify::new(),
        }
    }

    /// Keeps the watched snapshot current. Returns only if no snapshot can be made.
    pub async fn run(self: &Arc<Self>) {
        let (mut revisions, mut hubs) = (self.fleet.revisions(), self.fleet.hub_states());
        let mut replacements = self.resolver.replacements();
        let mut look = interval(LOOK_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if self.snapshots.receiver_count() == 0 {
                self.forget().await;
                self.wanted.notified().await;
            }
            revisions.mark_unchanged();
            hubs.mark_unchanged();
            replacements.mark_unchanged();
            if self.make(true).await.is_err() {
                return;
            }
            let changed = async {
                // Never an error: `fleet` and `resolver` hold the senders.
                tokio::select! {
                    changed = revisions.changed() => drop(changed),
                    changed = hubs.changed() => drop(changed),
                    changed = replacements.changed() => drop(changed),
                }
                sleep(GATHER).await;
            };
            tokio::select! {
                () = changed => {}
                _ = look.tick() => {}
            }
        }
    }

    /// Returns the newest snapshot if it was begun after the call, or if it is current and need not be `new`; otherwise a
    /// new one.
    async fn make(self: &Arc<Self>, new: bool) -> Result<Arc<Snapshot>, Status> {
        let called = self.clock.now().boot;
        let mut made = self.making.lock().await;
        if let Some(last) = &*made {
            if last.0 > called || !new && self.is_current(last) {
                return Ok(Arc::clone(&self.snapshots.borrow()));
            }
            // Not more than one each [`GATHER`], however many callers there are.
            sleep(GATHER.saturating_sub(self.age(last))).await;
        }
        // Before anything is read.
        let basis = (self.clock.now().boot, self.shown());
        let (this, before) = (Arc::clone(self), Arc::clone(&self.snapshots.borrow()));
        let next = spawn_blocking(move || {
            let readiness = Readiness::of(&this.cache, &this.resolver);
            let hub = this.resolver.fleet().map(|_| this.fleet.hub());
            Snapshot::next(&before, this.fleet.list(None), hub, (&readiness, &this.resolver.providers()))
        });
        let next = Arc::new(next.await.map_err(|error| status::unfinished_work(&error))?);
        // Set only after success: a cancelled call must not mark a snapshot as made.
        *made = Some(basis);
        self.snapshots.send_if_modified(|current| {
            let is_news = next.number != current.number;
            *current = Arc::clone(&next);
            is_news
        });
        Ok(next)
    }

    /// Drops the encoded messages if there are no watchers.
    async fn forget(&self) {
        let mut made = self.making.lock().await;
        if self.snapshots.receiver_count() == 0 {
            *made = None;
            let empty = self.snapshots.borrow().empty();
            self.snapshots.send_replace(Arc::new(empty));
        }
    }

    /// What a snapshot shows that is begun now.
    fn shown(&self) -> (u64, u64, u64, HubState) {
        let replacements = *self.resolver.replacements().borrow();
        (self.fleet.revision(), self.cache.changes(), replacements, self.fleet.hub())
    }

    /// Whether a snapshot has all changes until now, except those that time alone causes: they may be a second late.
    fn is_current(&self, last: &SnapshotBasis) -> bool {
        self.age(last) <= LOOK_EVERY && last.1 == self.shown()
    }

    fn age(&self, (begun, _): &SnapshotBasis) -> Duration {
        self.clock.now().boot.saturating_sub(*begun)
    }

    /// One page of the list.
    pub(crate) async fn page(
        self: &Arc<Self>,
        request: pb::ListClustersRequest,
        rights: Arc<Rights>,
    ) -> Result<pb::ListClustersResponse, Status> {
        let pb::ListClustersRequest { namespace, page_size, page_token, include_contexts: contexts } =
            request;
        let filter = (&namespace, contexts);
        let (paging, after) = Paging::read("clusters", &filter, page_size, page_token.as_deref())?;
        let after = after.map(|(is_context, one, two): (bool, String, String)| {
            if is_context {
                Err(ContextId { name: one.into(), digest: two.into() })
            } else {
                Ok(ProfileName::new(one, two))
            }
        });
        let after = after.as_ref().map(|after| match after {
            Ok(profile) => RowName::Profile(profile),
            Err(context) => RowName::Context(context),
        });
        let snapshot = self.make(false).await?;
        let view = View { namespace: namespace.map(Arc::from), contexts, rights };
        let rows = snapshot.after(after, &view);
        let place = |name: RowName<'_>| match name {
            RowName::Profile(profile) => (false, profile.namespace.to_string(), profile.name.to_string()),
            RowName::Context(context) => (true, context.name.to_string(), context.digest.to_string()),
        };
        let rows = rows.map(|row| (row.message(&view.rights), place(row.name())));
        let (clusters, next_page_token) = paging.fill(rows);
        let hub = snapshot.hub.as_ref().map(convert::hub);
        Ok(pb::ListClustersResponse { clusters, next_page_token, hub })
    }

    /// Sends the current clusters, then changes.
    pub(crate) async fn follow(
        self: &Arc<Self>,
        request: pb::WatchClustersRequest,
        access: Arc<Access>,
        slot: WatchSlot,
    ) -> Response<MessageStream<pb::WatchClustersResponse>> {
        // Kept current from now on.
        let snapshots = self.snapshots.subscribe();
        self.wanted.notify_one();
        // Later changes are sent as changes. Without a snapshot, the task that makes them has ended too.
        drop(self.make(false).await);
        // Before the rights are read: a change in between is not lost.
        let policies = access.changes();
        let pb::WatchClustersRequest { namespace, include_contexts: contexts } = request;
        let view = View { namespace: namespace.map(Arc::from), contexts, rights: access.rights() };
        let (known, sending) = (None, None);
        ClusterStream { snapshots, view, access, policies, known, sending, _slot: slot }.response()
    }
}

struct ClusterStream {
    snapshots: watch::Receiver<Arc<Snapshot>>,
    view: View,
    access: Arc<Access>,
    policies: Policies,
    /// The snapshot that the peer has, and the view that it was shown in.
    known: Option<(Arc<Snapshot>, View)>,
    /// The snapshot that is being sent, and the position of its next message.
    sending: Option<(Arc<Snapshot>, DiffPosition)>,
    _slot: WatchSlot,
}

impl Follow for ClusterStream {
    /// `None`: the broker stops, so there are no further snapshots.
    async fn next(&mut self) -> Option<Result<Bytes, Status>> {
        loop {
            if let Some((newer, at)) = self.sending.take() {
                let page = match newer.news(self.known.clone(), &self.view, at).await {
                    Ok(page) => page,
                    Err(status) => return Some(Err(status)),
                };
                match page.rest {
                    Some(rest) => self.sending = Some((newer, rest)),
                    None => self.known = Some((newer, self.view.clone())),
                }
                if let Some(frame) = page.frame {
                    return Some(Ok(frame));
                }
                continue;
            }
            // Between two snapshots, because all messages of one are for the same rights.
            if self.policies.has_changed().is_ok_and(|changed| changed) {
                self.policies.mark_unchanged();
                self.view.rights = match self.access.need(Verb::List) {
                    Ok(rights) => rights,
                    Err(status) => return Some(Err(status)),
                };
            }
            let newest = Arc::clone(&self.snapshots.borrow_and_update());
            let is_current = |(known, had): &(Arc<Snapshot>, View)| {
                known.number == newest.number && had.rights.view == self.view.rights.view
            };
            if !self.known.as_ref().is_some_and(is_current) {
                self.sending = Some((newest, DiffPosition::default()));
                continue;
            }
            tokio::select! {
                changed = self.snapshots.changed() => changed.ok()?,
                Ok(()) = self.policies.changed() => self.policies.mark_changed(),
            }
        }
    }
}

#[cfg(test)]
mod tests;
