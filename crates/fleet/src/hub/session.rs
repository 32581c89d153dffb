//! One session with the hub: list, then watch, until it fails. A rotation of its credential does not end it.

use std::{fmt, future::pending, pin::Pin, pin::pin, time::Duration};

use futures_util::{Stream, StreamExt as _, stream::select_all};
use kube::{Client, api::DynamicObject, runtime::watcher::Event};
use tokio::sync::watch;
use tracing::debug;

use super::{
    HubError, Inventory,
    access::{HubConnection, HubConnector, HubIdentity},
    bounds::Excess,
    scope::{self, ReadParams},
};
use credbroker_runner::PluginRunner;

type Events = Pin<Box<dyn Stream<Item = (usize, Result<Event<DynamicObject>, HubError>)> + Send>>;

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

/// One session.
pub(super) struct HubSession<'a, R> {
    events: Events,
    /// `None`: the credential does not come from a plugin.
    renewal: Option<Renewal<'a, R>>,
    progress: ReadProgress<'a, R>,
    /// Time limit for the first list of all scopes.
    list: Duration,
}

/// Gives the session each newer credential of the hub's plugin.
struct Renewal<'a, R> {
    access: &'a HubConnector<R>,
    identity: HubIdentity<R>,
    clients: watch::Sender<Client>,
}

/// What was read.
struct ReadProgress<'a, R> {
    inventory: &'a Inventory<R>,
    scopes: &'a Scopes,
    /// Which scopes were listed completely.
    read: Vec<bool>,
}

/// Why a session ended.
#[derive(Debug)]
pub(super) enum SessionEnd {
    /// The hub is reached in another way, or as another user.
    Moved,
    /// The hub cannot be read.
    Failed(HubError),
}

impl<R> fmt::Debug for HubSession<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("scopes", self.progress.scopes)
            .field("read", &self.progress.read)
            .finish_non_exhaustive()
    }
}

impl<'a, R: PluginRunner> HubSession<'a, R> {
    pub(super) async fn open(
        access: &'a HubConnector<R>,
        scopes: &'a Scopes,
        inventory: &'a Inventory<R>,
    ) -> Result<Self, HubError> {
        let HubConnection { client, identity } = access.connect().await?;
        let clients = watch::Sender::new(client);
        let params = ReadParams {
            label_selector: scopes.label_selector.clone(),
            page: access.page(),
            watch: access.timeouts.watch,
        };
        let streams = scopes.namespaces.iter().enumerate().map(|(index, namespace)| {
            let events = scope::events(clients.subscribe(), namespace.clone(), params.clone());
            events.map(move |event| (index, event)).boxed()
        });
        let events = select_all(streams).boxed();
        let renewal = identity.map(|identity| Renewal { access, identity, clients });
        let progress = ReadProgress { inventory, scopes, read: vec![false; scopes.namespaces.len()] };
        Ok(Self { events, renewal, progress, list: access.timeouts.list })
    }

    /// Writes the hub's events into the inventory. Calls `is_read` when every scope was listed.
    pub(super) async fn follow(&mut self, mut is_read: impl FnMut()) -> SessionEnd {
        let Self { events, renewal, progress, list } = self;
        let mut late = pin!(tokio::time::sleep(*list));
        // One future for the whole session: a rotation that has begun must not be forgotten when an event comes.
        let mut renewing = pin!(async {
            match renewal {
                Some(renewal) => renewal.run().await,
                None => pending().await,
            }
        });
        loop {
            let event = tokio::select! {
                end = &mut renewing => return end,
                () = &mut late, if !progress.is_read() => {
                    return SessionEnd::Failed(HubError::Excess(Excess::Time(*list)));
                }
                event = events.next() => event,
            };
            match event {
                // A new session lists again.
                Some((_, Err(error))) => return SessionEnd::Failed(error),
                None => return SessionEnd::Failed(HubError::Ended),
                Some((scope, Ok(event))) => {
                    if let Err(excess) = progress.take(scope, event, &mut is_read) {
                        return SessionEnd::Failed(HubError::Excess(excess));
                    }
                }
            }
        }
    }

    /// Reports a credential that the hub rejected.
    pub(super) async fn report(self, error: &HubError) {
        if let Some(renewal) = self.renewal.filter(|_| error.is_unauthorized()) {
            renewal.identity.rejected().await;
        }
    }
}

impl<R: PluginRunner> Renewal<'_, R> {
    /// Returns only if the session must end.
    async fn run(&mut self) -> SessionEnd {
        loop {
            let renewed = match self.identity.rotated().await {
                Ok(()) => self.access.renewed(&self.identity).await,
                Err(error) => Err(error),
            };
            match renewed {
                Ok(Some(client)) => {
                    debug!("the hub's credential rotated: the watches continue with the new one");
                    self.clients.send_replace(client);
                }
                Ok(None) => return SessionEnd::Moved,
                Err(error) => return SessionEnd::Failed(error),
            }
        }
    }
}

impl<R: PluginRunner> ReadProgress<'_, R> {
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
}

impl<R> ReadProgress<'_, R> {
    fn is_read(&self) -> bool {
        self.read.iter().all(|read| *read)
    }
}

#[cfg(test)]
mod tests;
