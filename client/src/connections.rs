//! Connections to the broker that many sources share.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use credbroker_proto::Code;
use credbroker_proto::v1::WatchClustersResponse;
use futures_util::{
    FutureExt, Stream, StreamExt,
    future::{BoxFuture, Shared},
};
use tokio::time::timeout;

use crate::{Client, Clusters, Credential, CredentialRef, CredentialSource, Error, Socket};

/// The broker allows 1,000 by default; fewer keep what one lost connection costs small.
const WATCHES_PER_CONNECTION: usize = 100;
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

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
    slots: Mutex<Vec<Slot>>,
}

/// One connection, and everybody who waits for it shares the outcome.
struct Slot {
    id: Arc<()>,
    client: Connecting,
    watches: usize,
}

type Connecting = Shared<BoxFuture<'static, Result<Client, Error>>>;

/// A place on a connection, given back when it is dropped.
struct Lease {
    pool: Arc<Pool>,
    slot: Arc<()>,
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
        Self { pool: Arc::new(Pool { socket, slots: Mutex::default() }) }
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

    pub(crate) async fn watch(
        &self,
        reference: CredentialRef,
    ) -> Result<impl Stream<Item = Result<Credential, Error>> + Send + Unpin + use<>, Error> {
        let (lease, connecting) = self.lease();
        let outcome = async { connecting.await?.watch(reference).await }.await;
        let credentials = outcome.inspect_err(|error| lease.met(error))?;
        Ok(credentials.inspect(move |item| {
            if let Err(error) = item {
                lease.met(error);
            }
        }))
    }

    pub(crate) async fn watch_clusters(
        &self,
        namespace: &str,
    ) -> Result<impl Stream<Item = Result<WatchClustersResponse, Error>> + Send + Unpin + use<>, Error> {
        let (lease, connecting) = self.lease();
        let outcome = async { connecting.await?.watch_clusters(namespace).await }.await;
        let messages = outcome.inspect_err(|error| lease.met(error))?;
        Ok(messages.inspect(move |item| {
            if let Err(error) = item {
                lease.met(error);
            }
        }))
    }

    pub(crate) async fn report(
        &self,
        reference: CredentialRef,
        generation: String,
    ) -> Result<Credential, Error> {
        let (lease, connecting) = self.lease();
        let outcome = async { connecting.await?.report_rejected(reference, generation).await }.await;
        outcome.inspect_err(|error| lease.met(error))
    }

    fn lease(&self) -> (Lease, Connecting) {
        let mut slots = self.pool.slots();
        let free = slots.iter_mut().find(|slot| slot.watches < WATCHES_PER_CONNECTION);
        let (slot, client) = if let Some(slot) = free {
            slot.watches += 1;
            (Arc::clone(&slot.id), slot.client.clone())
        } else {
            let (id, client) = (Arc::new(()), connecting(self.pool.socket.clone()));
            slots.push(Slot { id: Arc::clone(&id), client: client.clone(), watches: 1 });
            (id, client)
        };
        (Lease { pool: Arc::clone(&self.pool), slot }, client)
    }
}

fn connecting(socket: Socket) -> Connecting {
    let connect = async move {
        let limit = CONNECT_LIMIT;
        timeout(limit, Client::connect(&socket)).await.unwrap_or(Err(Error::Timeout { limit }))
    };
    connect.boxed().shared()
}

impl Pool {
    fn slots(&self) -> MutexGuard<'_, Vec<Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lease {
    /// Nobody else is given a place on a connection that is lost, never was, or that the broker says is full.
    fn met(&self, error: &Error) {
        let mut slots = self.pool.slots();
        if error.ends_connection() || matches!(error, Error::Timeout { .. } | Error::Untrusted { .. }) {
            slots.retain(|slot| !Arc::ptr_eq(&slot.id, &self.slot));
        } else if matches!(error, Error::Failed { code: Code::ResourceExhausted, .. })
            && let Some(slot) = slots.iter_mut().find(|slot| Arc::ptr_eq(&slot.id, &self.slot))
        {
            slot.watches += WATCHES_PER_CONNECTION;
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut slots = self.pool.slots();
        if let Some(index) = slots.iter().position(|slot| Arc::ptr_eq(&slot.id, &self.slot))
            && let Some(slot) = slots.get_mut(index)
        {
            slot.watches -= 1;
            if slot.watches == 0 {
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
mod tests {
    use super::*;

    fn watches(connections: &Connections) -> Vec<usize> {
        connections.pool.slots().iter().map(|slot| slot.watches).collect()
    }

    fn nowhere() -> Connections {
        Connections::to(Socket::at("/nonexistent/socket"))
    }

    #[test]
    fn a_hundred_share_a_connection_and_the_next_opens_another() {
        let connections = nowhere();
        let mut leases: Vec<_> = (0..250).map(|_| connections.lease()).collect();
        assert_eq!(watches(&connections), [100, 100, 50]);
        leases.truncate(150);
        assert_eq!(watches(&connections), [100, 50]);
        leases.clear();
        assert!(watches(&connections).is_empty(), "a connection without watches is closed");
    }

    #[test]
    fn a_lost_connection_gets_no_more_watches_and_the_old_ones_may_end_later() {
        let connections = nowhere();
        let (lost, _) = connections.lease();
        lost.met(&Error::ended(&connections.pool.socket));
        let (_other, _) = connections.lease();
        drop(lost);
        assert_eq!(watches(&connections), [1]);
    }

    #[test]
    fn a_full_connection_gets_no_more_watches_but_keeps_those_it_has() {
        let connections = nowhere();
        let (full, _) = connections.lease();
        let message = "too many watches".to_owned();
        full.met(&Error::Failed { code: Code::ResourceExhausted, reason: None, message, retry_after: None });
        let (_other, _) = connections.lease();
        assert_eq!(watches(&connections), [101, 1]);
    }

    #[tokio::test]
    async fn all_who_wait_share_one_failed_attempt_and_the_next_is_a_new_one() {
        let connections = nowhere();
        let (first, connecting) = connections.lease();
        let (_second, same) = connections.lease();
        assert!(connecting.ptr_eq(&same));
        let error = connecting.await.unwrap_err();
        first.met(&error);
        let (_third, fresh) = connections.lease();
        assert!(!fresh.ptr_eq(&same));
    }
}
