//! Connections to the broker that many sources share.

use std::{fmt, sync::Arc};

use crate::{
    fleet::clusters::Clusters, pool::ConnectionPool, reference::CredentialRef, socket::Socket,
    source::handle::CredentialSource,
};

/// Connections to one broker. They are opened when they are needed and closed when they are not; a hundred sources share
/// one. Clones share them all.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use credbroker_client::{Connections, CredentialRef, Socket};
///
/// let broker = Connections::to(Socket::from_env()?);
/// let paris = broker.source(CredentialRef::cluster_profile("fleet", "paris"));
/// let tokyo = broker.source(CredentialRef::cluster_profile("fleet", "tokyo"));
/// let credential = paris.ready().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Connections {
    pool: Arc<ConnectionPool>,
}

impl Connections {
    /// Connections to the broker at `socket`. None is opened yet.
    pub fn to(socket: Socket) -> Self {
        Self { pool: ConnectionPool::new(socket) }
    }

    /// Follows a credential from now on, even if the broker does not run yet. Needs a tokio runtime.
    pub fn source(&self, reference: CredentialRef) -> CredentialSource {
        CredentialSource::over(&self.pool, reference)
    }

    /// Follows the clusters of the fleet from now on, those of one namespace or all, even if the broker does not run yet.
    /// Needs a tokio runtime.
    pub fn clusters(&self, namespace: Option<&str>) -> Clusters {
        Clusters::over(&self.pool, namespace.map(str::to_owned))
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Connections").field(&self.pool).finish()
    }
}
