//! WATCH: one stream of events, read from the store's changes at the pace of its client.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Sleep;

use super::collection::{Change, Gone, Store, at_revision};
use super::counts::OpenWatch;
use super::faults::{GARBAGE, Signals};
use super::list::{expired, too_new};
use super::query::{Filter, Query};
use super::resource::Collection;
use super::routes::Answer;
use super::{State, lock};

/// A running watch. It pulls: nothing is queued for a slow client, which expires when it is too far behind.
#[derive(Debug)]
pub(super) struct Watching {
    state: Arc<State>,
    collection: Collection,
    filter: Filter,
    bookmarks: bool,
    /// Every change up to here was sent or does not concern this watch.
    position: u64,
    /// What is sent before any change.
    first: Vec<u8>,
    signals: watch::Receiver<Signals>,
    /// The signals that were there before this watch, or that it followed.
    followed: Signals,
    timeout: Option<Pin<Box<Sleep>>>,
    /// There is nothing after `first`.
    refused: bool,
    ended: bool,
    _open: OpenWatch,
}

impl Watching {
    /// Begins after the revision that is asked for; without one, with everything there is.
    pub(super) fn start(
        state: &Arc<State>,
        store: &Store,
        collection: Collection,
        query: &Query,
    ) -> Result<Self, Answer> {
        if let Some(refused) = too_new(store, query.revision) {
            return Err(refused);
        }
        let (mut first, mut refused) = (Vec::new(), false);
        if query.revision.is_none() || query.initial_events {
            for (_, object) in query.filter.select(store.objects(collection)) {
                line(&mut first, "ADDED", object);
            }
        } else if let Some(revision) = query.revision
            && let Err(gone) = store.check(collection, revision)
        {
            let answer = expired(&gone);
            if store.gone_by_status() {
                return Err(answer);
            }
            line(&mut first, "ERROR", &answer.1);
            refused = true;
        }
        if query.initial_events && query.bookmarks {
            let mut bookmark = bookmark(collection, store.revision());
            bookmark["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
            line(&mut first, "BOOKMARK", &bookmark);
        }
        let replays = !query.initial_events;
        let position = query.revision.filter(|_| replays).unwrap_or(store.revision());
        let signals = state.signals.subscribe();
        let followed = signals.borrow().clone();
        Ok(Self {
            state: Arc::clone(state),
            collection,
            filter: query.filter.clone(),
            bookmarks: query.bookmarks,
            position,
            first,
            signals,
            followed,
            timeout: query.timeout.map(|after| Box::pin(tokio::time::sleep(after))),
            refused,
            ended: false,
            _open: OpenWatch::new(state, collection),
        })
    }

    /// The next events, as many as there are. `None`: the stream has ended.
    pub(super) async fn next(&mut self) -> Option<Bytes> {
        while !self.ended {
            let signals = self.signals.borrow_and_update().clone();
            let hanging = signals.hanging;
            if !hanging {
                let events = self.follow(&signals);
                if !events.is_empty() {
                    return Some(events.into());
                }
                self.followed = signals;
            }
            let timeout = async {
                match &mut self.timeout {
                    Some(timeout) if !hanging => timeout.await,
                    _ => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = self.signals.changed() => self.ended = changed.is_err(),
                () = timeout => {
                    self.ended = true;
                    let mut last = Vec::new();
                    if self.bookmarks {
                        line(&mut last, "BOOKMARK", &bookmark(self.collection, self.position));
                    }
                    return Some(last.into());
                }
            }
        }
        None
    }

    fn follow(&mut self, signals: &Signals) -> Vec<u8> {
        if signals.garbage {
            self.ended = true;
            return format!("{GARBAGE}\n").into_bytes();
        }
        if self.refused {
            self.ended = true;
            return std::mem::take(&mut self.first);
        }
        let expirations = std::mem::replace(&mut self.followed.expirations, signals.expirations);
        if expirations != signals.expirations {
            let oldest = lock(&self.state.store).revision();
            return self.expire(&Gone { asked: self.position, oldest });
        }
        let (changes, revision) = {
            let store = lock(&self.state.store);
            (store.changes_after(self.collection, self.position), store.revision())
        };
        let mut events = std::mem::take(&mut self.first);
        match changes {
            Ok(changes) => changes.iter().for_each(|change| self.tell(&mut events, change)),
            Err(gone) => return self.expire(&gone),
        }
        self.position = revision;
        events
    }

    fn tell(&self, events: &mut Vec<u8>, change: &Change) {
        if !self.filter.matches(&change.key) {
            return;
        }
        match (&change.before, &change.after) {
            (None, Some(after)) => line(events, "ADDED", after),
            (Some(_), Some(after)) => line(events, "MODIFIED", after),
            (Some(before), None) => line(events, "DELETED", &at_revision(before, change.revision)),
            (None, None) => {}
        }
    }

    fn expire(&mut self, gone: &Gone) -> Vec<u8> {
        self.ended = true;
        let (code, status) = expired(gone);
        debug_assert_eq!(code, StatusCode::GONE);
        let mut events = Vec::new();
        line(&mut events, "ERROR", &status);
        events
    }
}

fn line(events: &mut Vec<u8>, kind: &str, object: &Value) {
    events.extend_from_slice(json!({"type": kind, "object": object}).to_string().as_bytes());
    events.push(b'\n');
}

fn bookmark(collection: Collection, revision: u64) -> Value {
    json!({
        "kind": collection.kind(), "apiVersion": collection.api_version(),
        "metadata": {"resourceVersion": revision.to_string(), "creationTimestamp": null},
    })
}
