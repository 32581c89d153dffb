//! The connection to one broker, which all sources, lists of clusters and calls share.

mod references;

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures_core::Stream;
use futures_util::{
    FutureExt as _, StreamExt as _,
    future::{BoxFuture, Shared},
    stream::BoxStream,
};
use prost::Message as _;

use self::references::References;
use crate::{
    client::Client, cluster_state::ClusterChanges, credential::Credential, error::Error,
    reference::CredentialRef, socket::Socket,
};

/// Maximum size in bytes of a reference that shares a stream with others: the broker takes messages of 64 KiB there.
const SHARED: usize = 60 * 1024;

/// Connects to one broker when that is needed, and closes the connection with its last user.
pub(crate) struct Link {
    socket: Socket,
    connect: Connect,
    open: Mutex<Option<Open>>,
}

/// Opens a connection; in tests, to a broker without a socket.
type Connect = Box<dyn Fn(Socket) -> BoxFuture<'static, Result<Client, Error>> + Send + Sync>;

/// The connection. All who wait for it share the outcome.
struct Open {
    id: Arc<()>,
    client: Connecting,
    /// Users of the connection. It is closed with the last one.
    leases: usize,
    /// The stream that has the watches of all sources. Opened by the first one.
    references: Option<Arc<References>>,
}

type Connecting = Shared<BoxFuture<'static, Result<Client, Error>>>;

/// A share of the connection, returned on drop.
struct Lease {
    link: Arc<Link>,
    id: Arc<()>,
}

/// The share of one watcher. It keeps its lease from one watch to the next, so that a watch that fails for a reason other
/// than its connection costs no connection.
pub(crate) struct Subscription {
    link: Arc<Link>,
    lease: Mutex<Option<Lease>>,
}

impl Subscription {
    pub(crate) async fn watch(
        self: Arc<Self>,
        reference: &CredentialRef,
    ) -> Result<BoxStream<'static, Result<Credential, Error>>, Error> {
        let (client, message) = (self.client().await?, reference.message());
        if message.encoded_len() <= SHARED {
            let references = self.held().as_ref().and_then(|lease| lease.references(&client));
            let references = references.ok_or_else(|| Error::ended(&self.link.socket))?;
            return Ok(self.over(references.watch(message)).boxed());
        }
        let credentials = client.watch(reference).await.inspect_err(|error| self.on_error(error))?;
        Ok(self.over(credentials).boxed())
    }

    pub(crate) async fn watch_clusters(
        self: Arc<Self>,
        namespace: Option<&str>,
        contexts: bool,
    ) -> Result<impl Stream<Item = Result<ClusterChanges, Error>> + Send + Unpin + use<>, Error> {
        let changes = self.client().await?.watch_clusters(namespace, contexts).await;
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

    /// The connection of the last watch, unless it is lost.
    fn connecting(&self) -> Connecting {
        let mut held = self.held();
        if let Some(connecting) = held.as_ref().and_then(Lease::connecting) {
            return connecting;
        }
        let (lease, connecting) = Link::lease(&self.link);
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

impl Link {
    /// A connection to the broker that listens there. It is not opened yet.
    pub(crate) fn new(socket: Socket) -> Arc<Self> {
        Self::over(socket, Box::new(|socket| async move { Client::connect(&socket).await }.boxed()))
    }

    fn over(socket: Socket, connect: Connect) -> Arc<Self> {
        Arc::new(Self { socket, connect, open: Mutex::default() })
    }

    /// The subscription of a new watcher.
    pub(crate) fn subscribe(self: &Arc<Self>) -> Arc<Subscription> {
        Arc::new(Subscription { link: Arc::clone(self), lease: Mutex::default() })
    }

    /// One call.
    pub(crate) async fn call<T>(
        self: &Arc<Self>,
        call: impl AsyncFnOnce(Client) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let (lease, connecting) = Self::lease(self);
        let client = connecting.await.inspect_err(|_| lease.give_up())?;
        call(client).await.inspect_err(|error| _ = lease.on_error(error))
    }

    /// A share of the connection, or of a new one.
    fn lease(link: &Arc<Self>) -> (Lease, Connecting) {
        let mut open = link.open();
        let open = open.get_or_insert_with(|| {
            let client = (link.connect)(link.socket.clone()).shared();
            Open { id: Arc::default(), client, leases: 0, references: None }
        });
        open.leases += 1;
        (Lease { link: Arc::clone(link), id: Arc::clone(&open.id) }, open.client.clone())
    }

    fn open(&self) -> MutexGuard<'_, Option<Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    fn is_of(&self, lease: &Lease) -> bool {
        Arc::ptr_eq(&self.id, &lease.id)
    }
}

impl Lease {
    /// `None`: the connection is lost.
    fn connecting(&self) -> Option<Connecting> {
        self.link.open().as_ref().filter(|open| open.is_of(self)).map(|open| open.client.clone())
    }

    /// The stream of all sources on the connection of `client`. `None`: the connection is lost.
    fn references(&self, client: &Client) -> Option<Arc<References>> {
        let mut open = self.link.open();
        let open = open.as_mut().filter(|open| open.is_of(self))?;
        open.references.take_if(|references| references.are_over());
        Some(Arc::clone(open.references.get_or_insert_with(|| References::start(client.clone()))))
    }

    /// The connection is lost, or was never opened. It gets no more users.
    fn give_up(&self) {
        self.link.open().take_if(|open| open.is_of(self));
    }

    /// Handles the error of a call on the connection. Returns whether the next call needs another connection, which only
    /// an error of the connection itself causes.
    fn on_error(&self, error: &Error) -> bool {
        let is_lost = error.ends_connection();
        if is_lost {
            self.give_up();
        }
        is_lost
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut open = self.link.open();
        open.take_if(|open| {
            let is_of = open.is_of(self);
            open.leases -= usize::from(is_of);
            is_of && open.leases == 0
        });
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_open = self.open().is_some();
        f.debug_struct("Link")
            .field("socket", &self.socket)
            .field("is_open", &is_open)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
