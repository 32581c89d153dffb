//! One session with the hub: lists, then watches, until it fails. A rotation of its credential does not end it.
//!
//! Each scope, which is a namespace or all of them, has its own reader. Unlike kube's `watcher`, it takes another client
//! between two requests, and it ends a list that makes no progress.

use std::{
    collections::HashSet,
    future::pending,
    hash::{BuildHasher as _, RandomState},
    mem,
    pin::pin,
    time::Duration,
    vec,
};

use futures_util::{
    StreamExt as _,
    stream::{BoxStream, Stream, select_all, unfold},
};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, ListParams, WatchEvent, WatchParams},
    runtime::watcher::{self, Event},
};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};
use tracing::debug;

use super::{
    client::{HubConnection, HubConnector, HubIdentity},
    error::{Excess, HubError},
    inventory::Inventory,
};
use credbroker_runner::PluginRunner;

/// Which profiles of the hub are read.
#[derive(Debug)]
pub(super) struct Scopes {
    /// `None`: all namespaces.
    namespaces: Vec<Option<String>>,
    label_selector: String,
}

impl Scopes {
    pub(super) fn new(namespaces: Vec<String>, label_selector: String) -> Self {
        let all = || vec![None];
        let namespaces =
            if namespaces.is_empty() { all() } else { namespaces.into_iter().map(Some).collect() };
        Self { namespaces, label_selector }
    }
}

/// Why a session ended.
#[derive(Debug)]
pub(super) enum SessionEnd {
    /// The hub is reached in another way, or as another user.
    Moved,
    /// The hub cannot be read.
    Failed(HubError),
}

/// Writes the hub's events into the inventory, until the hub fails. Calls `is_read` when every scope was listed.
pub(super) async fn follow<R: PluginRunner>(
    connection: &mut HubConnection<R>,
    connector: &HubConnector<R>,
    scopes: &Scopes,
    inventory: &Inventory<R>,
    is_read: impl FnMut(),
) -> SessionEnd {
    let HubConnection { client, identity } = connection;
    let clients = watch::Sender::new(client.clone());
    let params = ReadParams {
        label_selector: scopes.label_selector.clone(),
        page: connector.page(),
        watch: connector.timeouts.watch,
    };
    let streams = scopes.namespaces.iter().enumerate().map(|(index, namespace)| {
        let events = events(clients.subscribe(), namespace.clone(), params.clone());
        events.map(move |event| (index, event)).boxed()
    });
    let read = read(select_all(streams), connector.timeouts.list, scopes, inventory, is_read);
    // A rotation that has begun continues while events come.
    let renewed = async {
        match identity {
            Some(identity) => renew(identity, connector, &clients).await,
            None => pending().await,
        }
    };
    tokio::select! {
        end = renewed => end,
        error = read => SessionEnd::Failed(error),
    }
}

/// Gives the readers each newer credential of the hub's plugin. Returns only if the session must end.
async fn renew<R: PluginRunner>(
    identity: &mut HubIdentity<R>,
    connector: &HubConnector<R>,
    clients: &watch::Sender<Client>,
) -> SessionEnd {
    loop {
        let renewed = match identity.rotated().await {
            Ok(()) => connector.renewed(identity).await,
            Err(error) => Err(error),
        };
        match renewed {
            Ok(Some(client)) => {
                debug!("the hub's credential rotated: the watches continue with the new one");
                clients.send_replace(client);
            }
            Ok(None) => return SessionEnd::Moved,
            Err(error) => return SessionEnd::Failed(error),
        }
    }
}

/// Writes events, each with the index of its scope, into the inventory until one is an error. The first list of all scopes
/// takes `limit` at most.
async fn read<R: PluginRunner>(
    mut events: impl Stream<Item = (usize, Result<Event<DynamicObject>, HubError>)> + Unpin,
    limit: Duration,
    scopes: &Scopes,
    inventory: &Inventory<R>,
    mut is_read: impl FnMut(),
) -> HubError {
    let mut unread: HashSet<_> = (0..scopes.namespaces.len()).collect();
    let mut late = pin!(sleep(limit));
    loop {
        let event = tokio::select! {
            () = &mut late, if !unread.is_empty() => return HubError::Excess(Excess::Time(limit)),
            event = events.next() => event,
        };
        let Some((scope, event)) = event else { return HubError::Ended };
        let namespace = scopes.namespaces.get(scope).and_then(Option::as_deref);
        match event {
            // A new session lists again.
            Err(error) => return error,
            Ok(Event::Init) => inventory.begin(namespace),
            Ok(Event::InitApply(object) | Event::Apply(object)) => {
                if let Err(excess) = inventory.apply(&object) {
                    return HubError::Excess(excess);
                }
            }
            Ok(Event::Delete(object)) => inventory.delete(&object),
            Ok(Event::InitDone) => {
                inventory.end(namespace);
                unread.remove(&scope);
                if unread.is_empty() {
                    is_read();
                }
            }
        }
    }
}

/// A watch that is silent for this long after its end was due is started again.
const MARGIN: Duration = Duration::from_secs(5);

/// What a reader asks for.
#[derive(Clone, Debug)]
struct ReadParams {
    /// Empty: all.
    label_selector: String,
    /// Profiles per page.
    page: u32,
    /// Seconds that one watch request lasts.
    watch: u32,
}

/// The events of `namespace`. `None`: of all namespaces. Each request uses the newest of `clients`; a newer one ends the
/// watch in progress, which continues with the newer one where it was. Nothing follows an error.
fn events(
    clients: watch::Receiver<Client>,
    namespace: Option<String>,
    params: ReadParams,
) -> impl Stream<Item = Result<Event<DynamicObject>, HubError>> + Send {
    let reader = ScopeReader { clients, namespace, params, state: ReadState::New };
    unfold(reader, async |mut reader| Some((reader.next().await, reader)))
}

struct ScopeReader {
    clients: watch::Receiver<Client>,
    namespace: Option<String>,
    params: ReadParams,
    state: ReadState,
}

enum ReadState {
    New,
    Listing {
        pages: Pages,
        /// The rest of the last page.
        rest: vec::IntoIter<DynamicObject>,
        /// The version of the list, when its last page was received.
        version: Option<String>,
    },
    /// All changes up to this version were read.
    Read {
        version: String,
    },
    Watching {
        version: String,
        events: BoxStream<'static, kube::Result<WatchEvent<DynamicObject>>>,
    },
}

impl ScopeReader {
    async fn next(&mut self) -> Result<Event<DynamicObject>, HubError> {
        loop {
            if let Some(event) = self.step().await? {
                return Ok(event);
            }
        }
    }

    async fn step(&mut self) -> Result<Option<Event<DynamicObject>>, HubError> {
        let Self { clients, namespace, params, state } = self;
        match state {
            ReadState::New => {
                *state = ReadState::Listing {
                    pages: Pages::default(),
                    rest: Vec::new().into_iter(),
                    version: None,
                };
                Ok(Some(Event::Init))
            }
            ReadState::Listing { pages, rest, version } => {
                if let Some(object) = rest.next() {
                    return Ok(Some(Event::InitApply(object)));
                }
                if let Some(version) = version.take() {
                    *state = ReadState::Read { version };
                    return Ok(Some(Event::InitDone));
                }
                sleep(pages.pause()).await;
                let api = api(clients.borrow_and_update().clone(), namespace.as_deref());
                let page = api.list(&params.list(pages.next())).await;
                let page = page.map_err(watcher::Error::InitialListFailed).map_err(HubError::Watch)?;
                let filled = |text: &String| !text.is_empty();
                let next = page.metadata.continue_.filter(filled);
                if next.is_none() {
                    let last = page.metadata.resource_version.filter(filled);
                    *version = Some(last.ok_or(HubError::Watch(watcher::Error::NoResourceVersion))?);
                }
                pages.turn(&page.items, next).map_err(HubError::Excess)?;
                *rest = page.items.into_iter();
                Ok(None)
            }
            ReadState::Read { version } => {
                let api = api(clients.borrow_and_update().clone(), namespace.as_deref());
                let events = api.watch(&params.watch(), version).await;
                let events = events.map_err(watcher::Error::WatchStartFailed).map_err(HubError::Watch)?;
                *state = ReadState::Watching { version: mem::take(version), events: events.boxed() };
                Ok(None)
            }
            ReadState::Watching { version, events } => {
                let silence = Duration::from_secs(params.watch.into()) + MARGIN;
                let event = tokio::select! {
                    event = timeout(silence, events.next()) => event.unwrap_or_default(),
                    () = replaced(clients) => None,
                };
                let Some(event) = event else {
                    *state = ReadState::Read { version: mem::take(version) };
                    return Ok(None);
                };
                event_of(event, version).map_err(HubError::Watch)
            }
        }
    }
}

impl ReadParams {
    fn list(&self, next: Option<&str>) -> ListParams {
        ListParams {
            label_selector: self.selector(),
            limit: Some(self.page),
            continue_token: next.map(str::to_owned),
            ..ListParams::default()
        }
    }

    fn watch(&self) -> WatchParams {
        WatchParams { label_selector: self.selector(), timeout: Some(self.watch), ..WatchParams::default() }
    }

    fn selector(&self) -> Option<String> {
        Some(self.label_selector.clone()).filter(|selector| !selector.is_empty())
    }
}

/// The event for the inventory, if there is one. Notes its version.
fn event_of(
    event: kube::Result<WatchEvent<DynamicObject>>,
    version: &mut String,
) -> Result<Option<Event<DynamicObject>>, watcher::Error> {
    let mut note = |object: &DynamicObject| {
        let newer = object.metadata.resource_version.clone().filter(|newer| !newer.is_empty());
        *version = newer.ok_or(watcher::Error::NoResourceVersion)?;
        Ok::<_, watcher::Error>(())
    };
    match event.map_err(watcher::Error::WatchFailed)? {
        WatchEvent::Added(object) | WatchEvent::Modified(object) => {
            note(&object)?;
            Ok(Some(Event::Apply(object)))
        }
        WatchEvent::Deleted(object) => {
            note(&object)?;
            Ok(Some(Event::Delete(object)))
        }
        WatchEvent::Bookmark(bookmark) => {
            *version = bookmark.metadata.resource_version;
            Ok(None)
        }
        WatchEvent::Error(status) => Err(watcher::Error::WatchError(status)),
    }
}

/// Resolves when there is a newer client; never if there will be none.
async fn replaced(clients: &mut watch::Receiver<Client>) {
    if clients.changed().await.is_err() {
        pending::<()>().await;
    }
}

fn api(client: Client, namespace: Option<&str>) -> Api<DynamicObject> {
    let resource = ApiResource {
        group: "multicluster.x-k8s.io".to_owned(),
        version: "v1alpha1".to_owned(),
        api_version: "multicluster.x-k8s.io/v1alpha1".to_owned(),
        kind: "ClusterProfile".to_owned(),
        plural: "clusterprofiles".to_owned(),
    };
    match namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, &resource),
        None => Api::all_with(client, &resource),
    }
}

/// Pages in a row without a new profile that end the list. One of them is legal: the hub may filter after it has read a
/// page.
const IDLE: u32 = 6;
/// The pause after the first of them. It doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Pages of one list: twice as many as the largest fleet has if the broker asks for the smallest ones.
const PAGES: u32 = 5_000;

/// The progress of one list.
#[derive(Debug, Default)]
struct Pages {
    /// The `continue` token of the next request; `None`: it asks for the first page.
    next: Option<String>,
    /// Hashes of the names so far.
    names: HashSet<u64>,
    hasher: RandomState,
    received: u32,
    /// Pages in a row without a new name.
    idle: u32,
}

impl Pages {
    /// The `continue` token of the next request.
    fn next(&self) -> Option<&str> {
        self.next.as_deref()
    }

    /// How long to wait before the next request.
    fn pause(&self) -> Duration {
        self.idle.checked_sub(1).map_or(Duration::ZERO, |before| FIRST_PAUSE * (1 << before))
    }

    /// A page came, with the token of the `next` one; `None`: it is the last.
    ///
    /// # Errors
    ///
    /// The list would not end.
    fn turn(&mut self, page: &[DynamicObject], next: Option<String>) -> Result<(), Excess> {
        let before = self.names.len();
        let hash = |object: &DynamicObject| {
            self.hasher.hash_one((&object.metadata.namespace, &object.metadata.name))
        };
        self.names.extend(page.iter().map(hash));
        self.idle = if self.names.len() > before { 0 } else { self.idle + 1 };
        self.received += 1;
        let asked = mem::replace(&mut self.next, next);
        match &self.next {
            None => Ok(()),
            next if *next == asked => Err(Excess::RepeatedPage),
            Some(_) if self.idle >= IDLE => Err(Excess::EmptyPages(IDLE)),
            Some(_) if self.received >= PAGES => Err(Excess::Pages(PAGES)),
            Some(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
