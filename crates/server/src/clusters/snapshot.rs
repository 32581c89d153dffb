//! The state of every cluster at one moment, who may see it, and the difference between two such states.

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
use tokio::{
    sync::{OnceCell, Semaphore},
    task::spawn_blocking,
};
use tonic::Status;

use super::readiness::Readiness;
use crate::{convert, preencoded, status};
use credbroker_credential::text::chain;
use credbroker_fleet::{HubState, KnownProfile};
use credbroker_plugin::{
    Context, ContextId, ProfileName, Providers,
    access::{self, Rights, Verb},
};

/// Bytes of clusters per message. Many clients accept at most 4 MiB, and a slow reader holds one message in memory.
pub(super) const MESSAGE: usize = 256 * 1024;
/// Messages that are encoded at the same time. Each needs a thread, and memory for its clusters.
const ENCODERS: usize = 4;

/// What a row is about.
#[derive(Clone, Debug)]
pub(super) enum RowOf {
    Profile(Arc<KnownProfile>),
    Context(Arc<Context>),
}

/// The name of a row. Contexts follow the profiles.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum RowName<'a> {
    Profile(&'a ProfileName),
    Context(&'a ContextId),
}

#[derive(Debug)]
pub(super) struct Row {
    of: RowOf,
    ready: cluster_state::Readiness,
    /// Why it is not ready, also for people.
    problem: Option<(Reason, String)>,
    /// The number of the snapshot in which this state first appeared.
    since: u64,
}

/// The part of the fleet that a peer asked for and may see.
#[derive(Clone, Debug)]
pub(super) struct View {
    /// `None`: all namespaces.
    pub(super) namespace: Option<Arc<str>>,
    /// Whether the peer asked for contexts too.
    pub(super) contexts: bool,
    pub(super) rights: Arc<Rights>,
}

impl View {
    fn shows(&self, row: &Row) -> bool {
        match &row.of {
            RowOf::Profile(known) => {
                let (name, provider) =
                    (&known.profile.name, known.target().map(|target| &*target.provider.name));
                self.namespace.as_ref().is_none_or(|namespace| name.namespace == *namespace)
                    && self.rights.allows(Verb::List, access::CallTarget::Profile(name, provider))
            }
            RowOf::Context(context) => {
                let target = access::CallTarget::Provider(&context.user);
                self.contexts && self.namespace.is_none() && self.rights.allows(Verb::List, target)
            }
        }
    }
}

impl RowOf {
    pub(super) fn name(&self) -> RowName<'_> {
        match self {
            Self::Profile(known) => RowName::Profile(&known.profile.name),
            Self::Context(context) => RowName::Context(&context.id),
        }
    }

    /// Whether nothing but the readiness can differ. The digest of a context covers what its row shows.
    fn is_same(&self, newer: &Self) -> bool {
        match (self, newer) {
            (Self::Profile(known), Self::Profile(newer)) => known.revision == newer.revision,
            (Self::Context(context), Self::Context(newer)) => Arc::ptr_eq(context, newer),
            _ => false,
        }
    }
}

impl Row {
    /// Of the snapshot `number`, after the `earlier` one.
    pub(super) fn of(
        of: RowOf,
        (readiness, providers): (&Readiness, &Providers),
        number: u64,
        earlier: Option<&Arc<Self>>,
    ) -> Self {
        let (ready, problem) = match &of {
            RowOf::Profile(known) => {
                let (ready, problem) = readiness.of_profile(known);
                (ready, problem.map(|(reason, error)| (reason, chain(error))))
            }
            RowOf::Context(context) => readiness.of_context(context, providers.entry_of(context)),
        };
        let reason = |problem: &Option<(Reason, String)>| problem.as_ref().map(|(reason, _)| *reason);
        let is_same = |row: &&Arc<Self>| {
            row.of.is_same(&of) && row.ready == ready && reason(&row.problem) == reason(&problem)
        };
        let since = earlier.filter(is_same).map_or(number, |row| row.since);
        Self { of, ready, problem, since }
    }

    pub(super) fn name(&self) -> RowName<'_> {
        self.of.name()
    }

    /// The cluster, without its credential. Names only providers that `rights` show, besides those of the profile itself.
    pub(super) fn message(&self, rights: &Rights) -> pb::ClusterState {
        match &self.of {
            RowOf::Profile(known) => self.profile(known, rights),
            RowOf::Context(context) => self.context(context),
        }
    }

    fn context(&self, context: &Context) -> pb::ClusterState {
        let target = context.outcome.as_ref().ok();
        pb::ClusterState {
            provider: target.filter(|target| target.has_plugin).map(|target| target.user.1.to_string()),
            cluster: target.map(|target| convert::cluster_message(&target.cluster)),
            readiness: self.ready.into(),
            failure: self.problem.as_ref().map(|(reason, message)| pb::Failure {
                reason: (*reason).into(),
                message: message.clone(),
                ..pb::Failure::default()
            }),
            context: Some(convert::context(&context.id)),
            ..pb::ClusterState::default()
        }
    }

    fn profile(&self, known: &KnownProfile, rights: &Rights) -> pb::ClusterState {
        let profile = &known.profile;
        let target = known.target();
        let sees = |provider: &str| rights.allows(Verb::List, access::CallTarget::Provider(provider));
        let skipped = known.skipped.iter().filter(|skipped| !rights.is_limited() || sees(&skipped.name));
        let skipped = skipped.map(|skipped| cluster_state::SkippedProvider {
            name: skipped.name.clone(),
            message: skipped.reason.clone(),
        });
        let properties = profile.properties.iter();
        let properties = properties
            .map(|(name, value)| cluster_state::Property { name: name.clone(), value: value.clone() });
        pb::ClusterState {
            cluster_profile: Some(convert::profile(&profile.name)),
            display_name: convert::present(profile.display_name.clone()),
            cluster_manager: convert::present(profile.cluster_manager.clone()),
            kubernetes_version: convert::present(profile.kubernetes_version.clone()),
            properties: properties.collect(),
            provider: target.map(|target| target.provider.name.to_string()),
            skipped_providers: skipped.collect(),
            cluster: target.map(|target| convert::cluster_message(&target.endpoint)),
            readiness: self.ready.into(),
            failure: self.problem.as_ref().map(|(reason, message)| pb::Failure {
                reason: (*reason).into(),
                message: match &known.outcome {
                    Err(error) if rights.is_limited() => error.without_configured(sees).to_string(),
                    _ => message.clone(),
                },
                ..pb::Failure::default()
            }),
            context: None,
        }
    }
}

/// Immutable except for the encoded messages, which are added when a watch first needs them.
#[derive(Debug)]
pub(super) struct Snapshot {
    /// Increases with every change that watchers must see.
    pub(super) number: u64,
    /// The number of the previous snapshot.
    before: u64,
    /// Sorted by name.
    rows: Vec<Arc<Row>>,
    /// `None`: the broker reads no ClusterProfiles.
    pub(super) hub: Option<HubState>,
    /// Those of all snapshots of one number. The lock is held to find a cell only. A cell is filled by one watch, and the
    /// others that need it wait for it.
    encoded: Arc<Mutex<HashMap<PageKey, Arc<OnceCell<Page>>>>>,
    /// Those of all snapshots.
    pub(super) encoders: Arc<Semaphore>,
}

/// The namespace, whether there are contexts, the view of the rights, the number of the snapshot that the peer has, and the
/// start position.
type PageKey = (Option<Arc<str>>, bool, u64, u64, DiffPosition);

/// Progress of a watch through the difference of two snapshots: positions among the rows of its namespace.
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

impl Default for Snapshot {
    fn default() -> Self {
        let (rows, hub, encoders) = (Vec::new(), None, Semaphore::new(ENCODERS));
        Self { number: 0, before: 0, rows, hub, encoded: Arc::default(), encoders: Arc::new(encoders) }
    }
}

impl Snapshot {
    /// A snapshot of the same number without clusters and encoded messages.
    pub(super) fn empty(&self) -> Self {
        let (number, encoders) = (self.number, Arc::clone(&self.encoders));
        Self { number, before: number, encoders, ..Self::default() }
    }

    /// The snapshot after `self`. It has the same number if nothing changed for watchers.
    pub(super) fn next(
        &self,
        clusters: Vec<Arc<KnownProfile>>,
        hub: Option<HubState>,
        (readiness, providers): (&Readiness, &Providers),
    ) -> Self {
        let number = self.number + 1;
        let mut earlier = self.rows.iter().peekable();
        let profiles = clusters.into_iter().map(RowOf::Profile);
        let all: Vec<_> = profiles.chain(providers.contexts().cloned().map(RowOf::Context)).collect();
        let mut is_news = self.rows.len() != all.len() || self.hub != hub;
        let rows = all.into_iter().map(|of| {
            let name = of.name();
            while earlier.next_if(|row| row.name() < name).is_some() {}
            let same_name = earlier.next_if(|row| row.name() == name);
            let row = Row::of(of, (readiness, providers), number, same_name);
            is_news |= row.since == number;
            Arc::new(row)
        });
        let rows = rows.collect();
        let (number, before, encoded) = if is_news {
            (number, self.number, Arc::default())
        } else {
            (self.number, self.before, Arc::clone(&self.encoded))
        };
        Self { number, before, rows, hub, encoded, encoders: Arc::clone(&self.encoders) }
    }

    /// The rows after `name` that `view` shows.
    pub(super) fn after<'a>(
        &'a self,
        name: Option<RowName<'_>>,
        view: &'a View,
    ) -> impl Iterator<Item = &'a Row> {
        let rows = self.rows_of(view);
        let start = name.map_or(0, |name| rows.partition_point(|row| row.name() <= name));
        let rest = rows.iter().skip(start).map(Arc::as_ref);
        rest.filter(|row| view.shows(row))
    }

    fn rows_of(&self, view: &View) -> &[Arc<Row>] {
        let profile = |row: &Row| match &row.of {
            RowOf::Profile(known) => Some(Arc::clone(&known.profile.name.namespace)),
            RowOf::Context(_) => None,
        };
        let Some(namespace) = &view.namespace else {
            let end = if view.contexts {
                self.rows.len()
            } else {
                self.rows.partition_point(|row| profile(row).is_some())
            };
            return self.rows.split_at(end).0;
        };
        let is_before = |row: &Arc<Row>| profile(row).is_some_and(|of| of < *namespace);
        let (_, rest) = self.rows.split_at(self.rows.partition_point(is_before));
        rest.split_at(rest.partition_point(|row| profile(row).is_some_and(|of| of == *namespace))).0
    }

    /// The part after `at` of the difference to `older`, of which the peer has what that view showed.
    /// Encoded once for all watches that have the same snapshot and the same view, on a separate thread.
    pub(super) async fn news(
        self: &Arc<Self>,
        older: Option<(Arc<Self>, View)>,
        view: &View,
        at: DiffPosition,
    ) -> Result<Page, Status> {
        // Watches that are further behind are few and slow: their messages are not kept.
        let from = match &older {
            None => u64::MAX,
            Some((older, had)) if older.number == self.before && had.rights.view == view.rights.view => {
                older.number
            }
            Some(_) => return self.encoded_apart(older, view.clone(), at).await,
        };
        let key = (view.namespace.clone(), view.contexts, view.rights.view, from, at);
        let cell = {
            let mut encoded = self.encoded.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(encoded.entry(key).or_default())
        };
        // If the watch that fills the cell ends, the next one does.
        cell.get_or_try_init(|| self.encoded_apart(older, view.clone(), at)).await.cloned()
    }

    /// Encodes on a thread for blocking calls: a walk through a large fleet would delay other tasks.
    async fn encoded_apart(
        self: &Arc<Self>,
        older: Option<(Arc<Self>, View)>,
        view: View,
        at: DiffPosition,
    ) -> Result<Page, Status> {
        let permit = Arc::clone(&self.encoders).acquire_owned().await;
        let permit = permit.map_err(|_closed| status::defect())?;
        let newer = Arc::clone(self);
        let encoded = spawn_blocking(move || {
            let _permit = permit;
            newer.encode(older.as_ref().map(|(older, had)| (&**older, had)), &view, at)
        });
        encoded.await.map_err(|error| status::unfinished_work(&error))
    }

    fn encode(&self, before: Option<(&Self, &View)>, view: &View, mut at: DiffPosition) -> Page {
        let rows = self.rows_of(view);
        let known = before.map_or(&[][..], |(before, _)| before.rows_of(view));
        let was_shown = |row: &Row| before.is_some_and(|(_, had)| had.shows(row));
        let (mut changed, mut removed, mut size) = (Vec::new(), Removed::default(), 0);
        let rest = loop {
            let pair = (rows.get(at.newer), known.get(at.older));
            // Both lists are sorted, so the lower name is next.
            let order = match pair {
                (None, None) => break None,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(row), Some(known)) => row.name().cmp(&known.name()),
            };
            match pair {
                (_, Some(gone)) if order.is_gt() && was_shown(gone) => {
                    removed.add(gone);
                }
                (Some(row), same) if order.is_le() => {
                    let known = same.filter(|row| order.is_eq() && was_shown(row));
                    if !view.shows(row) {
                        if let Some(gone) = known {
                            removed.add(gone);
                        }
                    } else if known.is_none_or(|known| known.since != row.since) {
                        let state = row.message(&view.rights);
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
        let message = pb::WatchClustersResponse {
            changed,
            removed: removed.profiles,
            complete,
            hub: self.hub.as_ref().map(convert::hub),
            removed_contexts: removed.contexts,
        };
        Page { frame: Some(preencoded::frame(&message)), rest }
    }
}

/// What a peer has that no longer exists, or that it may no longer see.
#[derive(Default)]
struct Removed {
    profiles: Vec<pb::ClusterProfileRef>,
    contexts: Vec<pb::ContextRef>,
}

impl Removed {
    fn add(&mut self, gone: &Row) {
        match gone.name() {
            RowName::Profile(name) => self.profiles.push(convert::profile(name)),
            RowName::Context(id) => self.contexts.push(convert::context(id)),
        }
    }

    fn is_empty(&self) -> bool {
        self.profiles.is_empty() && self.contexts.is_empty()
    }
}
