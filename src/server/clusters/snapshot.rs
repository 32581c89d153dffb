//! The state of every cluster at one moment, and the difference between two such states.

use std::{
    cmp::Ordering,
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use credbroker_proto::{
    Reason,
    v1::{self as pb, cluster_state},
};
use prost::Message as _;

use super::{MESSAGE, convert, hub::TimedHubState};
use crate::{
    access::{self, Rights, Verb},
    fleet::KnownProfile,
    plugin::{ProfileName, Target},
    server::{preencoded, readiness::Readiness},
};

/// Immutable except for the encoded messages, which are added when a watch first needs them.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    /// Increases with every change that watchers must see.
    number: u64,
    /// The number of the previous snapshot.
    before: u64,
    /// Sorted by name.
    rows: Vec<Arc<Row>>,
    hub: TimedHubState,
    encoded: Mutex<HashMap<PageKey, Page>>,
}

/// One cluster.
#[derive(Debug)]
pub(super) struct Row {
    known: Arc<KnownProfile>,
    ready: cluster_state::Readiness,
    reason: Option<Reason>,
    message: String,
    /// The number of the snapshot in which this state first appeared.
    since: u64,
}

/// Identifies a message: the namespace, the view of the rights, the number of the snapshot that the peer has, and the start
/// position.
type PageKey = (Option<String>, u64, u64, DiffPosition);

/// The part of the fleet that a peer asked for and may see.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    /// `None`: all namespaces.
    pub(super) namespace: Option<&'a str>,
    pub(super) rights: &'a Rights,
}

impl View<'_> {
    fn shows(self, row: &Row) -> bool {
        let provider = row.target().map(|target| &*target.provider.name);
        self.namespace.is_none_or(|namespace| *row.name().namespace == *namespace)
            && self.rights.allows(Verb::List, access::Target::Profile(row.name(), provider))
    }
}

/// Progress of a watch through the difference of two snapshots: positions in the newer one and in the older one.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub(super) struct DiffPosition {
    newer: usize,
    older: usize,
}

/// One message, framed for gRPC.
#[derive(Clone, Debug)]
pub(super) struct Page {
    /// `None`: there is no difference.
    pub(super) frame: Option<Bytes>,
    /// Where the next message starts. `None`: this is the last.
    pub(super) rest: Option<DiffPosition>,
}

impl Snapshot {
    /// A snapshot without clusters and encoded messages.
    pub(super) fn empty(number: u64) -> Self {
        Self { number, before: number, ..Self::default() }
    }

    /// The snapshot after `self`. It has the same number if nothing changed for watchers.
    pub(super) fn next(
        &self,
        clusters: Vec<Arc<KnownProfile>>,
        hub: TimedHubState,
        readiness: &Readiness,
    ) -> Self {
        let number = self.number + 1;
        let mut earlier = self.rows.iter().peekable();
        let mut is_news = self.rows.len() != clusters.len() || self.hub != hub;
        let rows = clusters.into_iter().map(|known| {
            let name = &known.profile.name;
            while earlier.next_if(|row| row.name() < name).is_some() {}
            let same_name = earlier.next_if(|row| row.name() == name);
            let (ready, reason) = readiness.of_profile(&known);
            let is_same = |row: &&Arc<Row>| {
                row.known.revision == known.revision && row.ready == ready && row.reason == reason
            };
            let since = same_name.filter(is_same).map_or(number, |row| row.since);
            is_news |= since == number;
            let message = readiness.message(&known);
            Arc::new(Row { known, ready, reason, message, since })
        });
        let rows = rows.collect();
        let (number, before) = if is_news { (number, self.number) } else { (self.number, self.before) };
        Self { number, before, rows, hub, encoded: Mutex::default() }
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn hub(&self) -> pb::HubState {
        self.hub.message()
    }

    /// The rows after `name` that `view` shows.
    pub(super) fn after<'a>(
        &'a self,
        name: Option<&ProfileName>,
        view: View<'a>,
    ) -> impl Iterator<Item = &'a Row> {
        let start = name.map_or(0, |name| self.rows.partition_point(|row| row.name() <= name));
        let rest = self.rows.iter().skip(start).map(Arc::as_ref);
        rest.filter(move |row| view.shows(row))
    }

    /// The part after `at` of the difference to `older`, of which the peer has what its view showed. Encoded once for all
    /// watches that have the same snapshot and the same view.
    pub(super) fn news(&self, older: Option<(&Self, View<'_>)>, view: View<'_>, at: DiffPosition) -> Page {
        // Watches that are further behind are few and slow: their messages are not kept.
        let from = match older {
            None => u64::MAX,
            Some((older, had)) if older.number == self.before && had.rights.view() == view.rights.view() => {
                older.number
            }
            Some(_) => return self.encode(older, view, at),
        };
        let mut encoded = self.encoded.lock().unwrap_or_else(PoisonError::into_inner);
        let page = encoded.entry((view.namespace.map(str::to_owned), view.rights.view(), from, at));
        page.or_insert_with(|| self.encode(older, view, at)).clone()
    }

    fn encode(&self, before: Option<(&Self, View<'_>)>, view: View<'_>, mut at: DiffPosition) -> Page {
        let none = Vec::new();
        let known = before.map_or(&none, |(before, _)| &before.rows);
        let was_shown = |row: &Row| before.is_some_and(|(_, had)| had.shows(row));
        let (mut changed, mut removed, mut size) = (Vec::new(), Vec::new(), 0);
        let rest = loop {
            let pair = (self.rows.get(at.newer), known.get(at.older));
            // Both lists are sorted, so the lower name is next.
            let order = match pair {
                (None, None) => break None,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(row), Some(known)) => row.name().cmp(known.name()),
            };
            match pair {
                (_, Some(gone)) if order.is_gt() && was_shown(gone) => {
                    removed.push(convert::profile(gone.name()));
                }
                (Some(row), same) if order.is_le() => {
                    let known = same.filter(|row| order.is_eq() && was_shown(row));
                    if !view.shows(row) {
                        removed.extend(known.map(|gone| convert::profile(gone.name())));
                    } else if known.is_none_or(|known| known.since != row.since) {
                        let state = row.message(view.rights);
                        size += state.encoded_len();
                        if size > MESSAGE && !changed.is_empty() {
                            break Some(at);
                        }
                        changed.push(state);
                    }
                }
                _ => {}
            }
            at.newer += usize::from(order.is_le());
            at.older += usize::from(order.is_ge());
        };
        let is_first = before.is_none();
        let is_hub_news = before.is_none_or(|(before, _)| before.hub != self.hub);
        if changed.is_empty() && removed.is_empty() && !is_hub_news {
            return Page { frame: None, rest };
        }
        let complete = !is_first || rest.is_none();
        let message = pb::WatchClustersResponse { changed, removed, complete, hub: Some(self.hub()) };
        Page { frame: Some(preencoded::frame(&message)), rest }
    }
}

impl Row {
    pub(super) fn name(&self) -> &ProfileName {
        &self.known.profile.name
    }

    fn target(&self) -> Option<&Arc<Target>> {
        self.known.outcome.as_ref().ok()
    }

    /// The cluster, without its credential. Names only providers that `rights` show, besides those of the profile itself.
    pub(super) fn message(&self, rights: &Rights) -> pb::ClusterState {
        let known = &self.known;
        let profile = &known.profile;
        let target = self.target();
        let sees = |provider: &str| rights.allows(Verb::List, access::Target::Provider(provider));
        let skipped = known.skipped.iter().filter(|skipped| !rights.is_limited() || sees(&skipped.name));
        let skipped = skipped.map(|skipped| cluster_state::SkippedProvider {
            name: skipped.name.clone(),
            reason: skipped.reason.clone(),
        });
        let properties = profile.properties.iter();
        let properties = properties
            .map(|(name, value)| cluster_state::Property { name: name.clone(), value: value.clone() });
        pb::ClusterState {
            cluster_profile: Some(convert::profile(&profile.name)),
            display_name: profile.display_name.clone(),
            cluster_manager: profile.cluster_manager.clone(),
            kubernetes_version: profile.kubernetes_version.clone(),
            properties: properties.collect(),
            provider: target.map(|target| target.provider.name.to_string()),
            skipped_providers: skipped.collect(),
            cluster: target.map(|target| convert::cluster_message(&target.endpoint)),
            readiness: self.ready.into(),
            failure: self.reason.map(|reason| pb::Failure {
                reason: reason.into(),
                message: match &known.outcome {
                    Err(error) if rights.is_limited() => error.without_configured(sees).to_string(),
                    _ => self.message.clone(),
                },
                retry_after: None,
            }),
        }
    }
}
