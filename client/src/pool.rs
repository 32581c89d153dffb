//! A pool of connections that many watches share.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures_core::Stream;
use futures_util::{
    FutureExt, StreamExt,
    future::{BoxFuture, Shared},
};

use crate::{
    client::Client, cluster_state::ClusterChanges, credential::Credential, error::Error,
    reference::CredentialRef, socket::Socket,
};

/// The broker allows 1,000 by default; fewer keep what one lost connection costs small.
const WATCHES_PER_CONNECTION: usize = 100;

/// Opens connections to one broker when they are needed, and closes those that are not.
pub(crate) struct ConnectionPool {
    socket: Socket,
    connect: Connect,
    slots: Mutex<Vec<Slot>>,
}

/// Opens a connection; in tests, to a broker without a socket.
type Connect = Box<dyn Fn(Socket) -> BoxFuture<'static, Result<Client, Error>> + Send + Sync>;

/// One connection. All who wait for it share the outcome.
struct Slot {
    id: Arc<()>,
    client: Connecting,
    /// Users of the connection. It is closed with the last one.
    leases: usize,
    /// The broker allows it no more watches.
    full: bool,
}

type Connecting = Shared<BoxFuture<'static, Result<Client, Error>>>;

/// A share of a connection, returned on drop.
struct Lease {
    pool: Arc<ConnectionPool>,
    slot: Arc<()>,
}

/// The share of one watcher. It keeps its lease from one watch to the next, so that a watch that fails for a reason other
/// than its connection costs no connection.
pub(crate) struct Subscription {
    pool: Arc<ConnectionPool>,
    lease: Mutex<Option<Lease>>,
}

impl Subscription {
    pub(crate) async fn watch(
        self: Arc<Self>,
        reference: &CredentialRef,
    ) -> Result<impl Stream<Item = Result<Credential, Error>> + Send + Unpin + use<>, Error> {
        let credentials = self.client().await?.watch(reference).await;
        let credentials = credentials.inspect_err(|error| self.on_error(error))?;
        Ok(self.over(credentials))
    }

    pub(crate) async fn watch_clusters(
        self: Arc<Self>,
        namespace: Option<&str>,
    ) -> Result<impl Stream<Item = Result<ClusterChanges, Error>> + Send + Unpin + use<>, Error> {
        let changes = self.client().await?.watch_clusters(namespace).await;
        let changes = changes.inspect_err(|error| self.on_error(error))?;
        Ok(self.over(changes))
    }

    async fn client(&self) -> Result<Client, Error> {
        let connecting = self.connecting();
        connecting.await.inspect_err(|_| {
            if let Some(lease) = self.held().take() {
                lease.give_up();
            }
        })
    }

    /// The connection of the last watch, if it takes another one.
    fn connecting(&self) -> Connecting {
        let mut held = self.held();
        if let Some(connecting) = held.as_ref().and_then(Lease::connecting) {
            return connecting;
        }
        let (lease, connecting) = ConnectionPool::lease(&self.pool, Slot::takes_a_watch);
        *held = Some(lease);
        connecting
    }

    fn on_error(&self, error: &Error) {
        let mut held = self.held();
        if held.as_ref().is_some_and(|lease| lease.on_error(error)) {
            *held = None;
        }
    }

    fn over<T>(
        self: Arc<Self>,
        messages: impl Stream<Item = Result<T, Error>> + Send + Unpin,
    ) -> impl Stream<Item = Result<T, Error>> + Send + Unpin {
        messages.inspect(move |item| {
            if let Err(error) = item {
                self.on_error(error);
            }
        })
    }

    fn held(&self) -> MutexGuard<'_, Option<Lease>> {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionPool {
    /// Connections to the broker that listens there. None is opened yet.
    pub(crate) fn new(socket: Socket) -> Arc<Self> {
        Self::over(socket, Box::new(|socket| async move { Client::connect(&socket).await }.boxed()))
    }

    fn over(socket: Socket, connect: Connect) -> Arc<Self> {
        Arc::new(Self { socket, connect, slots: Mutex::default() })
    }

    /// The subscription of a new watcher.
    pub(crate) fn subscribe(self: &Arc<Self>) -> Arc<Subscription> {
        Arc::new(Subscription { pool: Arc::clone(self), lease: Mutex::default() })
    }

    /// One call. The limit of watches on a connection does not concern it.
    pub(crate) async fn call<T>(
        self: &Arc<Self>,
        call: impl AsyncFnOnce(Client) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let (lease, connecting) = Self::lease(self, |_| true);
        let client = connecting.await.inspect_err(|_| lease.give_up())?;
        call(client).await.inspect_err(|error| _ = lease.on_error(error))
    }

    /// A share of the first suitable connection, or of a new one.
    fn lease(pool: &Arc<Self>, suitable: fn(&Slot) -> bool) -> (Lease, Connecting) {
        let mut slots = pool.slots();
        let suited = slots.iter_mut().find(|slot| suitable(slot));
        let (slot, client) = if let Some(slot) = suited {
            slot.leases += 1;
            (Arc::clone(&slot.id), slot.client.clone())
        } else {
            let (id, client) = (Arc::new(()), (pool.connect)(pool.socket.clone()).shared());
            slots.push(Slot { id: Arc::clone(&id), client: client.clone(), leases: 1, full: false });
            (id, client)
        };
        (Lease { pool: Arc::clone(pool), slot }, client)
    }

    fn slots(&self) -> MutexGuard<'_, Vec<Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slot {
    fn takes_a_watch(&self) -> bool {
        !self.full && self.leases < WATCHES_PER_CONNECTION
    }
}

impl Lease {
    /// `None`: the connection is lost.
    fn connecting(&self) -> Option<Connecting> {
        let slots = self.pool.slots();
        slots.iter().find(|slot| Arc::ptr_eq(&slot.id, &self.slot)).map(|slot| slot.client.clone())
    }

    /// The connection is lost, or was never opened. It gets no more users.
    fn give_up(&self) {
        self.pool.slots().retain(|slot| !Arc::ptr_eq(&slot.id, &self.slot));
    }

    /// Handles the error of a call on the connection. Returns whether the next call needs another connection, which only
    /// an error of the connection itself causes.
    fn on_error(&self, error: &Error) -> bool {
        if error.ends_connection() {
            self.give_up();
            return true;
        }
        let is_full = error.fills_connection();
        if is_full
            && let Some(slot) = self.pool.slots().iter_mut().find(|slot| Arc::ptr_eq(&slot.id, &self.slot))
        {
            slot.full = true;
        }
        is_full
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut slots = self.pool.slots();
        if let Some(index) = slots.iter().position(|slot| Arc::ptr_eq(&slot.id, &self.slot))
            && let Some(slot) = slots.get_mut(index)
        {
            slot.leases -= 1;
            if slot.leases == 0 {
                slots.remove(index);
            }
        }
    }
}

impl fmt::Debug for ConnectionPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let open = self.slots().len();
        f.debug_struct("ConnectionPool")
            .field("socket", &self.socket)
            .field("open", &open)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
