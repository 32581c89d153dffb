//! Reads the profiles of one scope, which is a namespace or all of them: lists them, then watches.
//!
//! Unlike kube's `watcher`, it takes another client between two requests, and it ends a list that makes no progress.

use std::{future::pending, time::Duration, vec};

use futures_util::{
    StreamExt as _,
    stream::{BoxStream, Stream, unfold},
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

use super::{HubError, pages::Pages};

/// A watch that is silent for this long after its end was due is started again.
const MARGIN: Duration = Duration::from_secs(5);

/// What a reader asks for.
#[derive(Clone, Debug)]
pub(super) struct ReadParams {
    /// Empty: all.
    pub(super) label_selector: String,
    /// Profiles per page.
    pub(super) page: u32,
    /// Seconds that one watch request lasts.
    pub(super) watch: u32,
}

/// The events of `namespace`. `None`: of all namespaces. Each request uses the newest of `clients`; a newer one ends the
/// watch in progress, which continues with the newer one where it was. Nothing follows an error.
pub(super) fn events(
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
                *state = ReadState::Watching { version: std::mem::take(version), events: events.boxed() };
                Ok(None)
            }
            ReadState::Watching { version, events } => {
                let silence = Duration::from_secs(params.watch.into()) + MARGIN;
                let event = tokio::select! {
                    event = timeout(silence, events.next()) => event.unwrap_or_default(),
                    () = replaced(clients) => None,
                };
                let Some(event) = event else {
                    *state = ReadState::Read { version: std::mem::take(version) };
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
