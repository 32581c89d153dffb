//! The state of every cluster at one moment, and the difference between two such states.

use std::{
    cmp::Ordering,
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use credbroker_proto::v1 as pb;
use prost::Message as _;
use tokio::{
    sync::{OnceCell, Semaphore},
    task::spawn_blocking,
};

use super::{
    MESSAGE, convert,
    hub::TimedHubState,
    row::{Row, View},
};
use crate::{preencoded, readiness::Readiness};
use credbroker_fleet::KnownProfile;
use credbroker_plugin::{ProfileName, access::Rights};

/// Messages that are encoded at the same time. Each needs a thread, and memory for its clusters.
const ENCODERS: usize = 4;

/// Immutable except for the encoded messages, which are added when a watch first needs them.
#[derive(Debug)]
pub(super) struct Snapshot {
    /// Increases with every change that watchers must see.
    number: u64,
    /// The number of the previous snapshot.
    before: u64,
    /// Sorted by name.
    rows: Vec<Arc<Row>>,
    hub: TimedHubState,
    /// The lock is held to find a cell only. A cell is filled by one watch, and the others that need it wait for it.
    encoded: Mutex<HashMap<PageKey, Arc<OnceCell<Page>>>>,
    /// Those of all snapshots.
    pub(super) encoders: Arc<Semaphore>,
}

/// Identifies a message: the namespace, the view of the rights, the number of the snapshot that the peer has, and the start
/// position.
type PageKey = (Option<Arc<str>>, u64, u64, DiffPosition);

/// Encoding panicked, or the runtime ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct NotEncoded {
    pub(super) is_defect: bool,
}

/// What a watch shows: a namespace, or all; under these rights.
#[derive(Clone, Debug)]
pub(super) struct ShownView {
    pub(super) namespace: Option<Arc<str>>,
    pub(super) rights: Arc<Rights>,
}

impl ShownView {
    fn view(&self) -> View<'_> {
        View { namespace: self.namespace.as_deref(), rights: &self.rights }
    }
}

/// Progress of a watch through the difference of two snapshots: positions among the rows of its namespace in the newer one
/// and in the older one.
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
        let (rows, hub, encoders) = (Vec::new(), TimedHubState::default(), Semaphore::new(ENCODERS));
        Self { number: 0, before: 0, rows, hub, encoded: Mutex::default(), encoders: Arc::new(encoders) }
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
            let row = Row::of(known, readiness, number, same_name);
            is_news |= row.since == number;
            Arc::new(row)
        });
        let rows = rows.collect();
        let (number, before) = if is_news { (number, self.number) } else { (self.number, self.before) };
        let encoders = Arc::clone(&self.encoders);
        Self { number, before, rows, hub, encoded: Mutex::default(), encoders }
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
        let rows = self.rows_of(view.namespace);
        let start = name.map_or(0, |name| rows.partition_point(|row| row.name() <= name));
        let rest = rows.iter().skip(start).map(Arc::as_ref);
        rest.filter(move |row| view.shows(row))
    }

    /// The rows of a namespace, or all.
    fn rows_of(&self, namespace: Option<&str>) -> &[Arc<Row>] {
        let Some(namespace) = namespace else { return &self.rows };
        let (_, rest) =
            self.rows.split_at(self.rows.partition_point(|row| &*row.name().namespace < namespace));
        rest.split_at(rest.partition_point(|row| &*row.name().namespace == namespace)).0
    }

    /// The part after `at` of the difference to `older`, of which the peer has what it showed under the rights there.
    /// Encoded once for all watches that have the same snapshot and the same view, on a separate thread.
    pub(super) async fn news(
        self: &Arc<Self>,
        older: Option<(Arc<Self>, Arc<Rights>)>,
        shown: &ShownView,
        at: DiffPosition,
    ) -> Result<Page, NotEncoded> {
        let view = shown.rights.view();
        // Watches that are further behind are few and slow: their messages are not kept.
        let from = match &older {
            None => u64::MAX,
            Some((older, had)) if older.number == self.before && had.view() == view => older.number,
            Some(_) => return self.encoded_apart(older, shown.clone(), at).await,
        };
        let cell = {
            let mut encoded = self.encoded.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(encoded.entry((shown.namespace.clone(), view, from, at)).or_default())
        };
        // If the watch that fills the cell ends, the next one does.
        cell.get_or_try_init(|| self.encoded_apart(older, shown.clone(), at)).await.cloned()
    }

    /// Encodes on a thread for blocking calls: a walk through a large fleet would delay other tasks.
    async fn encoded_apart(
        self: &Arc<Self>,
        older: Option<(Arc<Self>, Arc<Rights>)>,
        shown: ShownView,
        at: DiffPosition,
    ) -> Result<Page, NotEncoded> {
        let permit = Arc::clone(&self.encoders).acquire_owned().await;
        let permit = permit.map_err(|_closed| NotEncoded { is_defect: true })?;
        let newer = Arc::clone(self);
        let encoded = spawn_blocking(move || {
            let _permit = permit;
            let namespace = shown.namespace.as_deref();
            let older = older.as_ref().map(|(older, had)| (&**older, View { namespace, rights: had }));
            newer.encode(older, shown.view(), at)
        });
        encoded.await.map_err(|error| NotEncoded { is_defect: error.is_panic() })
    }

    fn encode(&self, before: Option<(&Self, View<'_>)>, view: View<'_>, mut at: DiffPosition) -> Page {
        let rows = self.rows_of(view.namespace);
        let known = before.map_or(&[][..], |(before, _)| before.rows_of(view.namespace));
        let was_shown = |row: &Row| before.is_some_and(|(_, had)| had.shows(row));
        let (mut changed, mut removed, mut size) = (Vec::new(), Vec::new(), 0);
        let rest = loop {
            let pair = (rows.get(at.newer), known.get(at.older));
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
