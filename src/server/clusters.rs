//! The clusters of the fleet, on the wire.

use std::{collections::HashMap, pin::Pin, sync::Arc, time::Duration};

use credbroker_proto::v1::{self as pb, cluster_state};
use futures_util::{FutureExt as _, Stream, stream::unfold};
use prost::Message as _;
use tokio::{
    sync::{OwnedSemaphorePermit, watch},
    time::{Interval, MissedTickBehavior, interval, sleep},
};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::{convert, readiness::Readiness, status};
use crate::{
    cache::CredentialCache,
    exec::PluginRunner,
    plugin::{Fleet, HubState, Known, ProfileName, Resolver},
};

/// The messages of one watch. Made when the peer can take one, so a slow reader gets the latest when it returns.
pub(super) type Messages = Pin<Box<dyn Stream<Item = Result<pb::WatchClustersResponse, Status>> + Send>>;

/// Bytes of clusters in one message: the limit of many clients is 4 MiB.
const MESSAGE: usize = 1 << 20;
/// Whether there is a credential is looked at so often; a change of the fleet is told at once.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Changes that come so close together are told together.
const GATHER: Duration = Duration::from_millis(50);

/// One page of the list.
pub(super) fn page<R: PluginRunner>(
    fleet: &Fleet,
    resolver: &Resolver,
    cache: &CredentialCache<R>,
    namespace: &str,
    token: &str,
) -> Result<pb::ListClustersResponse, Status> {
    let after = match token.split_once('/') {
        Some((namespace, name)) => Some(ProfileName::new(namespace, name)),
        None if token.is_empty() => None,
        None => return Err(status::invalid("`page_token` is not the `next_page_token` of a page")),
    };
    let hub = fleet.hub();
    let readiness = Readiness::of(cache, resolver);
    let rest = fleet.list(chosen(namespace)).into_iter();
    let rest = rest.skip_while(|known| after.as_ref().is_some_and(|after| known.profile.name <= *after));
    let (mut clusters, mut size, mut next_page_token) = (Vec::new(), 0, String::new());
    for known in rest {
        let state = cluster(&known, &readiness);
        size += state.encoded_len();
        if size > MESSAGE && !clusters.is_empty() {
            next_page_token = clusters.last().map(token_of).unwrap_or_default();
            break;
        }
        clusters.push(state);
    }
    Ok(pb::ListClustersResponse { clusters, next_page_token, hub: Some(self::hub(&hub)) })
}

/// The clusters now, then what changes.
pub(super) fn follow<R: PluginRunner>(
    fleet: Arc<Fleet>,
    resolver: Arc<Resolver>,
    cache: CredentialCache<R>,
    namespace: String,
    draining: CancellationToken,
    slot: OwnedSemaphorePermit,
) -> Messages {
    let (revisions, hubs) = (fleet.revisions(), fleet.hub_states());
    let mut look = interval(LOOK_EVERY);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let following = Following {
        fleet,
        resolver,
        cache,
        namespace,
        revisions,
        hubs,
        draining,
        told: HashMap::new(),
        told_up_to: 0,
        look,
        look_at_all: true,
        told_hub: None,
        complete: false,
        _slot: slot,
    };
    Box::pin(unfold(Some(following), async |following| {
        let mut following = following?;
        match following.next().await {
            Ok(message) => Some((Ok(message), Some(following))),
            Err(status) => Some((Err(status), None)),
        }
    }))
}

struct Following<R> {
    fleet: Arc<Fleet>,
    resolver: Arc<Resolver>,
    cache: CredentialCache<R>,
    namespace: String,
    revisions: watch::Receiver<u64>,
    hubs: watch::Receiver<HubState>,
    draining: CancellationToken,
    /// What the peer knows of each cluster.
    told: HashMap<ProfileName, Told>,
    /// Every change of the fleet up to this revision was told.
    told_up_to: u64,
    look: Interval,
    /// Time to look whether there is a credential for each cluster, whether the fleet changed or not.
    look_at_all: bool,
    told_hub: Option<HubState>,
    /// The peer was told of all clusters.
    complete: bool,
    _slot: OwnedSemaphorePermit,
}

/// What tells one state of a cluster from the next.
type Told = (u64, cluster_state::Readiness, &'static str);

impl<R: PluginRunner> Following<R> {
    async fn next(&mut self) -> Result<pb::WatchClustersResponse, Status> {
        loop {
            self.revisions.mark_unchanged();
            self.hubs.mark_unchanged();
            self.look_at_all |= self.look.tick().now_or_never().is_some();
            if let Some(message) = self.news() {
                return Ok(message);
            }
            let Self { revisions, hubs, draining, look, .. } = self;
            let changed = async {
                // Both senders are the fleet's, which we hold.
                tokio::select! {
                    changed = revisions.changed() => drop(changed),
                    changed = hubs.changed() => drop(changed),
                }
                sleep(GATHER).await;
            };
            tokio::select! {
                () = draining.cancelled() => return Err(status::draining()),
                () = changed => {}
                _ = look.tick() => self.look_at_all = true,
            }
        }
    }

    /// What the peer does not know yet, as much of it as fits into a message.
    fn news(&mut self) -> Option<pb::WatchClustersResponse> {
        let hub = self.fleet.hub();
        let readiness = Readiness::of(&self.cache, &self.resolver);
        // Read before the list, which then lacks no change up to it.
        let revision = *self.revisions.borrow();
        let all = self.fleet.list(chosen(&self.namespace));
        let (mut changed, mut size, mut whole) = (Vec::new(), 0, true);
        for known in &all {
            // A busy fleet changes twenty times a second for us, and each look at everything is dear.
            if !self.look_at_all && known.revision <= self.told_up_to {
                continue;
            }
            let name = &known.profile.name;
            let (ready, reason) = readiness.of_profile(known);
            let now: Told = (known.revision, ready, reason);
            if self.told.get(name) == Some(&now) {
                continue;
            }
            let state = cluster(known, &readiness);
            size += state.encoded_len();
            if size > MESSAGE && !changed.is_empty() {
                whole = false;
                break;
            }
            changed.push(state);
            self.told.insert(name.clone(), now);
        }
        if whole {
            (self.told_up_to, self.look_at_all) = (revision, false);
        }
        let mut removed = Vec::new();
        // Told in the last message of many at the latest: then the peer knows all, and what is too much is gone.
        if self.told.len() > all.len() {
            let there: std::collections::HashSet<_> = all.iter().map(|known| &known.profile.name).collect();
            self.told.retain(|name, _| {
                let stays = there.contains(name);
                if !stays {
                    removed.push(convert::profile(name));
                }
                stays
            });
            removed.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        }
        let complete = whole && !self.complete;
        let is_news = complete || !changed.is_empty() || !removed.is_empty();
        if !is_news && self.told_hub.as_ref() == Some(&hub) {
            return None;
        }
        self.complete |= whole;
        self.told_hub = Some(hub.clone());
        Some(pb::WatchClustersResponse {
            changed,
            removed,
            complete: self.complete,
            hub: Some(self::hub(&hub)),
        })
    }
}

/// One cluster, without its credential.
fn cluster(known: &Known, readiness: &Readiness) -> pb::ClusterState {
    let profile = &known.profile;
    let target = known.outcome.as_ref().ok();
    let skipped = known.skipped.iter().map(|skipped| cluster_state::SkippedProvider {
        name: skipped.name.clone(),
        reason: skipped.reason.clone(),
    });
    let properties = profile.properties.iter();
    let properties =
        properties.map(|(name, value)| cluster_state::Property { name: name.clone(), value: value.clone() });
    let (ready, reason) = readiness.of_profile(known);
    pb::ClusterState {
        cluster_profile: Some(convert::profile(&profile.name)),
        display_name: profile.display_name.clone(),
        cluster_manager: profile.cluster_manager.clone(),
        kubernetes_version: profile.kubernetes_version.clone(),
        properties: properties.collect(),
        provider: target.map(|target| target.provider.name.to_string()).unwrap_or_default(),
        skipped_providers: skipped.collect(),
        cluster: target.map(|target| convert::cluster_message(&target.endpoint)),
        readiness: ready.into(),
        message: readiness.message(known),
        reason: reason.to_owned(),
    }
}

fn hub(state: &HubState) -> pb::HubState {
    let problem = state.problem.as_deref().unwrap_or_default().to_owned();
    pb::HubState { synced: state.synced, problem }
}

fn chosen(namespace: &str) -> Option<&str> {
    Some(namespace).filter(|namespace| !namespace.is_empty())
}

fn token_of(state: &pb::ClusterState) -> String {
    let name = state.cluster_profile.as_ref();
    name.map(|name| format!("{}/{}", name.namespace, name.name)).unwrap_or_default()
}

#[cfg(test)]
mod tests;
