//! The state of every cluster at one moment, and the difference between two such states.

use std::{
    cmp::Ordering,
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use credbroker_proto::v1 as pb;
use prost::Message as _;

use super::{
    MESSAGE, convert,
    hub::TimedHubState,
    row::{Row, View},
};
use crate::{
    fleet::KnownProfile,
    plugin::ProfileName,
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

/// Identifies a message: the namespace, the view of the rights, the number of the snapshot that the peer has, and the start
/// position.
type PageKey = (Option<String>, u64, u64, DiffPosition);

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
            let row = Row::of(known, readiness, number, same_name);
            is_news |= row.since == number;
            Arc::new(row)
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
