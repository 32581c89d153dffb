//! One connection to the hub: list, then watch, until it fails or its credential rotates.

use std::{fmt, pin::Pin, time::Duration};

use futures_util::{Stream, StreamExt as _, stream::select_all};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject},
    runtime::watcher::{self, Event, watcher},
};

use super::{
    HubError, Inventory,
    access::{HubConnector, HubIdentity},
    bounds::Excess,
};
use crate::exec::PluginRunner;

type Events = Pin<Box<dyn Stream<Item = (usize, Result<Event<DynamicObject>, watcher::Error>)> + Send>>;

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

/// One connection.
pub(super) struct HubSession<'a, R> {
    events: Events,
    identity: Option<HubIdentity<R>>,
    inventory: &'a Inventory<R>,
    scopes: &'a Scopes,
    /// Which scopes were listed completely.
    read: Vec<bool>,
    /// Time limit for the first list of all scopes.
    list: Duration,
}

/// Why a session ended.
#[derive(Debug)]
pub(super) enum SessionEnd {
    /// The credential for the hub changed.
    Rotated,
    /// The hub cannot be read.
    Failed(HubError),
}

impl<R> fmt::Debug for HubSession<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("scopes", self.scopes)
            .field("read", &self.read)
            .finish_non_exhaustive()
    }
}

impl<'a, R: PluginRunner> HubSession<'a, R> {
    pub(super) async fn open(
        access: &HubConnector<R>,
        scopes: &'a Scopes,
        inventory: &'a Inventory<R>,
    ) -> Result<Self, HubError> {
        let (client, identity) = access.client().await?;
        let streams = scopes.namespaces.iter().enumerate();
        let streams = streams.map(|(index, namespace)| {
            let api = api(&client, namespace.as_deref());
            let config = watcher::Config::default().timeout(access.timeouts.watch).page_size(access.page());
            let config = match scopes.label_selector.as_str() {
                "" => config,
                selector => config.labels(selector),
            };
            watcher(api, config).map(move |event| (index, event)).boxed()
        });
        let events = select_all(streams).boxed();
        let read = vec![false; scopes.namespaces.len()];
        Ok(Self { events, identity, inventory, scopes, read, list: access.timeouts.list })
    }

    /// Writes the hub's events into the inventory. Calls `is_read` when every scope was listed.
    pub(super) async fn follow(&mut self, mut is_read: impl FnMut()) -> SessionEnd {
        let mut late = std::pin::pin!(tokio::time::sleep(self.list));
        loop {
            let event = tokio::select! {
                () = rotated(self.identity.as_mut()) => return SessionEnd::Rotated,
                () = &mut late, if !self.is_read() => {
                    return SessionEnd::Failed(HubError::Excess(Excess::Time(self.list)));
                }
                event = self.events.next() => event,
            };
            match event {
                // The library would retry, but does not report a recovery. A new session does.
                Some((_, Err(error))) => return SessionEnd::Failed(HubError::Watch(error)),
                None => return SessionEnd::Failed(HubError::Ended),
                Some((scope, Ok(event))) => {
                    if let Err(excess) = self.take(scope, event, &mut is_read) {
                        return SessionEnd::Failed(HubError::Excess(excess));
                    }
                }
            }
        }
    }

    /// Reports a credential that the hub rejected.
    pub(super) async fn report(self, error: &HubError) {
        if let Some(identity) = self.identity.filter(|_| error.is_unauthorized()) {
            identity.rejected().await;
        }
    }

    fn take(
        &mut self,
        scope: usize,
        event: Event<DynamicObject>,
        is_read: &mut impl FnMut(),
    ) -> Result<(), Excess> {
        let namespace = self.scopes.namespaces.get(scope).and_then(Option::as_deref);
        match event {
            Event::Init => self.inventory.begin(namespace),
            Event::InitApply(object) | Event::Apply(object) => self.inventory.apply(&object)?,
            Event::Delete(object) => self.inventory.delete(&object),
            Event::InitDone => {
                self.inventory.end(namespace);
                if let Some(read) = self.read.get_mut(scope) {
                    *read = true;
                }
                if self.is_read() {
                    is_read();
                }
            }
        }
        Ok(())
    }

    fn is_read(&self) -> bool {
        self.read.iter().all(|read| *read)
    }
}

fn api(client: &Client, namespace: Option<&str>) -> Api<DynamicObject> {
    let resource = ApiResource {
        group: "multicluster.x-k8s.io".to_owned(),
        version: "v1alpha1".to_owned(),
        api_version: "multicluster.x-k8s.io/v1alpha1".to_owned(),
        kind: "ClusterProfile".to_owned(),
        plural: "clusterprofiles".to_owned(),
    };
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

/// Resolves when the credential changes; never if no plugin issues it.
async fn rotated<R: PluginRunner>(identity: Option<&mut HubIdentity<R>>) {
    match identity {
        Some(identity) => identity.rotated().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
