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
    access::{Access, Identity},
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
pub(super) struct Session<'a, R> {
    events: Events,
    identity: Option<Identity<R>>,
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

impl<R> fmt::Debug for Session<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("scopes", self.scopes)
            .field("read", &self.read)
            .finish_non_exhaustive()
    }
}

impl<'a, R: PluginRunner> Session<'a, R> {
    pub(super) async fn open(
        access: &Access<R>,
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
async fn rotated<R: PluginRunner>(identity: Option<&mut Identity<R>>) {
    match identity {
        Some(identity) => identity.rotated().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::stream;

    use super::*;
    use crate::hub::tests::{Runner, Setup, object};

    fn session<'a>(
        inventory: &'a Inventory<std::sync::Arc<Runner>>,
        scopes: &'a Scopes,
        events: Vec<(usize, Event<DynamicObject>)>,
    ) -> Session<'a, std::sync::Arc<Runner>> {
        let events = stream::iter(events.into_iter().map(|(scope, event)| (scope, Ok(event)))).boxed();
        let read = vec![false; scopes.namespaces.len()];
        Session { events, identity: None, inventory, scopes, read, list: Duration::from_secs(60) }
    }

    #[tokio::test]
    async fn all_is_read_when_each_namespace_was_read_to_its_end() {
        let setup = Setup::new(Duration::ZERO, false);
        let inventory = setup.inventory(Vec::new());
        let scopes = Scopes::new(vec!["edge".into(), "fleet".into()], String::new());
        let (mut reads, paris) = (0, || Event::InitApply(object("fleet/paris", "paris")));
        let first = vec![(1, Event::Init), (0, Event::Init), (1, paris()), (1, Event::InitDone)];
        let ended = session(&inventory, &scopes, first.clone()).follow(|| reads += 1).await;
        assert!(matches!(ended, SessionEnd::Failed(HubError::Ended)), "{ended:?}");
        assert_eq!((reads, setup.fleet.list(None).len()), (0, 1));
        // A new connection reads both again.
        let second = [first, vec![(0, Event::InitDone)]].concat();
        session(&inventory, &scopes, second).follow(|| reads += 1).await;
        assert_eq!(reads, 1);
    }
}
