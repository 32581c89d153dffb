//! Connections to the broker that many sources share.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use credbroker_proto::v1::WatchClustersResponse;
use futures_util::{
    FutureExt, Stream, StreamExt,
    future::{BoxFuture, Shared},
};

use crate::{Client, Clusters, Credential, CredentialRef, CredentialSource, Error, Socket};

/// The broker allows 1,000 by default; fewer keep what one lost connection costs small.
const WATCHES_PER_CONNECTION: usize = 100;

/// Connections to one broker, opened when they are needed and closed when they are not. Every hundred sources share
/// one. Clones share them all.
///
/// ```no_run
/// # async fn example() -> Result<(), credbroker_client::Error> {
/// use credbroker_client::{Connections, CredentialRef, Socket};
///
/// let broker = Connections::to(Socket::at(Socket::SYSTEM));
/// let paris = broker.source(CredentialRef::cluster_profile("fleet", "paris"));
/// let tokyo = broker.source(CredentialRef::cluster_profile("fleet", "tokyo"));
/// let credential = paris.ready().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Connections {
    pool: Arc<Pool>,
}

struct Pool {
    socket: Socket,
    connect: Connect,
    slots: Mutex<Vec<Slot>>,
}

/// How a connection is opened; in tests, to a broker without a socket.
type Connect = Box<dyn Fn(Socket) -> BoxFuture<'static, Result<Client, Error>> + Send + Sync>;

/// One connection, and everybody who waits for it shares the outcome.
struct Slot {
    id: Arc<()>,
    client: Connecting,
    /// Who uses it. It is closed with the last one.
    leases: usize,
    /// The broker allows it no more watches.
    full: bool,
}

type Connecting = Shared<BoxFuture<'static, Result<Client, Error>>>;

/// A share of a connection, given back when it is dropped.
struct Lease {
    pool: Arc<Pool>,
    slot: Arc<()>,
}

/// What one follower has of the connections: a lease that it keeps from one watch to the next, so that a watch that
/// fails for another reason than its connection does not cost a connection.
pub(crate) struct Place {
    pool: Arc<Pool>,
    lease: Mutex<Option<Lease>>,
}

impl Connections {
    /// To the broker that listens there. Nothing is opened yet.
    ///
    /// ```
    /// use credbroker_client::{Connections, Socket};
    ///
    /// let broker = Connections::to(Socket::at(Socket::SYSTEM));
    /// ```
    pub fn to(socket: Socket) -> Self {
        Self::over(socket, Box::new(|socket| async move { Client::connect(&socket).await }.boxed()))
    }

    fn over(socket: Socket, connect: Connect) -> Self {
        Self { pool: Arc::new(Pool { socket, connect, slots: Mutex::default() }) }
    }

    /// Follows a credential from now on, whether the broker is there yet or not. Needs a tokio runtime.
    ///
    /// ```no_run
    /// # fn example(broker: &credbroker_client::Connections) {
    /// use credbroker_client::CredentialRef;
    ///
    /// let source = broker.source(CredentialRef::provider("gke"));
    /// # }
    /// ```
    pub fn source(&self, reference: CredentialRef) -> CredentialSource {
        CredentialSource::follow(self, reference)
    }

    /// Follows the clusters of the fleet from now on, of one namespace or of all when it is empty, whether the broker is
    /// there yet or not. Needs a tokio runtime.
    ///
    /// ```no_run
    /// # fn example(broker: &credbroker_client::Connections) {
    /// let clusters = broker.clusters("fleet");
    /// # }
    /// ```
    pub fn clusters(&self, namespace: impl Into<String>) -> Clusters {
        Clusters::follow(self, namespace.into())
    }

    /// The place of one follower.
    pub(crate) fn place(&self) -> Arc<Place> {
        Arc::new(Place { pool: Arc::clone(&self.pool), lease: Mutex::default() })
    }

    pub(crate) async fn report(
        &self,
        reference: CredentialRef,
        generation: String,
    ) -> Result<Credential, Error> {
        // However many watches a connection has, one more call fits.
        let (lease, connecting) = Pool::lease(&self.pool, |_| true);
        let mut client = connecting.await.inspect_err(|_| lease.give_up())?;
        let outcome = client.report_rejected(reference, generation).await;
        outcome.inspect_err(|error| _ = lease.failed(error))
    }
}

impl Place {
    pub(crate) async fn watch(
        self: Arc<Self>,
        reference: CredentialRef,
    ) -> Result<impl Stream<Item = Result<Credential, Error>> + Send + Unpin + use<>, Error> {
        let credentials = self.client().await?.watch(reference).await;
        let credentials = credentials.inspect_err(|error| self.failed(error))?;
        Ok(self.over(credentials))
    }

    pub(crate) async fn watch_clusters(
        self: Arc<Self>,
        namespace: &str,
    ) -> Result<impl Stream<Item = Result<WatchClustersResponse, Error>> + Send + Unpin + use<>, Error> {
        let messages = self.client().await?.watch_clusters(namespace).await;
        let messages = messages.inspect_err(|error| self.failed(error))?;
        Ok(self.over(messages))
    }

    async fn client(&self) -> Result<Client, Error> {
        let connecting = self.connecting();
        connecting.await.inspect_err(|_| {
            if let Some(lease) = self.held().take() {
                lease.give_up();
            }
        })
    }

    /// The connection of the last watch, if it may have another.
    fn connecting(&self) -> Connecting {
        let mut held = self.held();
        if let Some(connecting) = held.as_ref().and_then(Lease::connecting) {
            return connecting;
        }
        let (lease, connecting) = Pool::lease(&self.pool, Slot::takes_a_watch);
        *held = Some(lease);
        connecting
    }

    fn failed(&self, error: &Error) {
        let mut held = self.held();
        if held.as_ref().is_some_and(|lease| lease.failed(error)) {
            *held = None;
        }
    }

    fn over<T>(
        self: Arc<Self>,
        messages: impl Stream<Item = Result<T, Error>> + Send + Unpin,
    ) -> impl Stream<Item = Result<T, Error>> + Send + Unpin {
        messages.inspect(move |item| {
            if let Err(error) = item {
                self.failed(error);
            }
        })
    }

    fn held(&self) -> MutexGuard<'_, Option<Lease>> {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pool {
    /// A share of the first connection that is suitable, or of a new one.
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

    /// The connection is lost, or there never was one: no one else gets a share of it.
    fn give_up(&self) {
        self.pool.slots().retain(|slot| !Arc::ptr_eq(&slot.id, &self.slot));
    }

    /// A request on the connection failed. Says whether the next one needs another connection: only an error about the
    /// connection itself does that.
    fn failed(&self, error: &Error) -> bool {
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

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let open = self.pool.slots().len();
        f.debug_struct("Connections").field("socket", &self.pool.socket).field("open", &open).finish()
    }
}

#[cfg(test)]
mod tests;
