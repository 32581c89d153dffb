//! One session with the hub: lists, then watches, until it fails. A rotation of its credential does not end it.
//!
//! Each scope, which is a namespace or all of them, has its own reader. Unlike kube's `watcher`, it takes another client
//! between two requests, and it ends a list that makes no progress.

use std::{collections::HashSet, convert::Infallible, future::pending, pin::pin, time::Duration};

use futures_util::{FutureExt as _, TryStreamExt as _, future::select_all};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, WatchEvent, WatchParams},
    runtime::watcher,
};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};
use tracing::debug;

use super::{
    client::{HubConnection, HubConnector, HubTimeouts},
    error::{Excess, HubError, PROFILES},
    inventory::Inventory,
};
use credbroker_config::ClusterProfiles;
use credbroker_runner::PluginRunner;

/// A watch that goes on for this long after its end was due is started again.
const MARGIN: Duration = Duration::from_secs(5);
/// Pages in a row without a new profile that end the list. One of them is legal: the hub may filter after it has read a
/// page.
const IDLE: u32 = 6;
/// The pause after the first of them. It doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// Writes what the hub has into the inventory, until the hub fails. `page` is the number of profiles per page, `unread` that
/// of the scopes that were not listed yet. `None`: the hub is reached in another way, or as another user.
pub(super) async fn follow<R: PluginRunner>(
    connection: &mut HubConnection<R>,
    connector: &HubConnector<R>,
    section: &ClusterProfiles,
    page: u32,
    inventory: &Inventory<R>,
    unread: &watch::Sender<usize>,
) -> Option<HubError> {
    let HubConnection { client, identity } = connection;
    let namespaces: Vec<_> = match &*section.namespaces {
        [] => vec![None],
        namespaces => namespaces.iter().map(|namespace| Some(&**namespace)).collect(),
    };
    let clients = watch::Sender::new(client.clone());
    let selector = Some(section.label_selector.clone()).filter(|selector| !selector.is_empty());
    let limits = connector.timeouts;
    let readers = namespaces.into_iter().map(|namespace| {
        let (label_selector, timeout) = (selector.clone(), Some(limits.watch));
        let watch = WatchParams { label_selector, timeout, ..WatchParams::default() };
        let list =
            ListParams { label_selector: selector.clone(), limit: Some(page), ..ListParams::default() };
        let reader = ScopeReader { clients: clients.subscribe(), namespace, list, watch, limits, inventory };
        reader.read(unread).boxed()
    });
    // A rotation that has begun continues while events come.
    let renewed = async {
        let Some(identity) = identity else { return pending().await };
        loop {
            match connector.renewed(identity).await {
                Ok(Some(client)) => {
                    debug!("the hub's credential rotated: the watches continue with the new one");
                    clients.send_replace(client);
                }
                Ok(None) => return None,
                Err(error) => return Some(error),
            }
        }
    };
    tokio::select! {
        end = renewed => end,
        (Err(error), ..) = select_all(readers) => Some(error),
    }
}

/// Reads one scope.
struct ScopeReader<'a, R> {
    /// Each request uses the newest.
    clients: watch::Receiver<Client>,
    /// `None`: all namespaces.
    namespace: Option<&'a str>,
    list: ListParams,
    watch: WatchParams,
    limits: HubTimeouts,
    inventory: &'a Inventory<R>,
}

impl<R: PluginRunner> ScopeReader<'_, R> {
    /// Reads until the hub fails.
    async fn read(mut self, unread: &watch::Sender<usize>) -> Result<Infallible, HubError> {
        let version = self.list().await?;
        unread.send_modify(|unread| *unread -= 1);
        self.watch(version).await
    }

    /// Lists the scope, and returns the version of the list.
    async fn list(&mut self) -> Result<String, HubError> {
        let (mut listed, mut idle) = (HashSet::new(), 0);
        loop {
            let page = timeout(self.limits.page, self.api().list(&self.list)).await;
            let page = page.map_err(|_elapsed| Excess::Time(self.limits.page))?;
            let page = page.map_err(watcher::Error::InitialListFailed)?;
            let filled = |text: &String| !text.is_empty();
            let before = listed.len();
            for object in page.items {
                listed.extend(self.inventory.apply(&object, true)?);
                if listed.len() > PROFILES {
                    return Err(Excess::Profiles.into());
                }
            }
            self.list.continue_token = page.metadata.continue_.filter(filled);
            if self.list.continue_token.is_none() {
                let version = page.metadata.resource_version.filter(filled);
                let version = version.ok_or(watcher::Error::NoResourceVersion)?;
                self.inventory.end(self.namespace, &listed);
                return Ok(version);
            }
            if listed.len() > before {
                idle = 0;
                continue;
            }
            idle += 1;
            if idle == IDLE {
                return Err(Excess::EmptyPages(IDLE).into());
            }
            sleep(FIRST_PAUSE * (1 << (idle - 1))).await;
        }
    }

    /// Watches the scope from `version` on. A newer client ends the watch in progress; the next one continues where it was.
    async fn watch(&mut self, mut version: String) -> Result<Infallible, HubError> {
        let lasts = Duration::from_secs(self.limits.watch.into()) + MARGIN;
        loop {
            let events = self.api().watch(&self.watch, &version).await;
            let mut events = pin!(events.map_err(watcher::Error::WatchStartFailed)?);
            let mut late = pin!(sleep(lasts));
            loop {
                let event = tokio::select! {
                    // The end of the watch comes before its events, so that one that never pauses ends too.
                    biased;
                    () = &mut late => break,
                    // Never an error: the session holds the sender.
                    _ = self.clients.changed() => break,
                    event = events.try_next() => event.map_err(watcher::Error::WatchFailed)?,
                };
                let Some(event) = event else { break };
                self.apply(event, &mut version)?;
            }
        }
    }

    /// Writes one event into the inventory, and notes its version.
    fn apply(&self, event: WatchEvent<DynamicObject>, version: &mut String) -> Result<(), HubError> {
        let (object, is_gone) = match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => (object, false),
            WatchEvent::Deleted(object) => (object, true),
            WatchEvent::Bookmark(bookmark) => {
                *version = bookmark.metadata.resource_version;
                return Ok(());
            }
            WatchEvent::Error(status) => return Err(watcher::Error::WatchError(status).into()),
        };
        let newer = object.metadata.resource_version.clone().filter(|newer| !newer.is_empty());
        *version = newer.ok_or(watcher::Error::NoResourceVersion)?;
        if is_gone {
            self.inventory.delete(&object);
            return Ok(());
        }
        self.inventory.apply(&object, false)?;
        Ok(())
    }

    fn api(&mut self) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("multicluster.x-k8s.io", "v1alpha1", "ClusterProfile");
        let resource = ApiResource::from_gvk_with_plural(&kind, "clusterprofiles");
        let client = self.clients.borrow_and_update().clone();
        match self.namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &resource),
            None => Api::all_with(client, &resource),
        }
    }
}
