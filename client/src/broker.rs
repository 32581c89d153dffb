//! The front door of the library.

use std::{sync::Arc, time::Duration};

use credbroker_proto::Reason;
use tokio::time::sleep;

use crate::{
    client::{ANSWER, Client},
    clock,
    credential::Credential,
    deadline::{BROKER_START, within},
    error::Error,
    fleet::clusters::Clusters,
    link::Link,
    reference::CredentialRef,
    socket::{Socket, SocketError},
    source::{CredentialSource, Sources},
    supervisor::backoff::Backoff,
};

/// A broker. Nothing is opened before it is needed, and what is open is shared by all clones and everything that they make.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use credbroker_client::{Broker, CredentialRef};
///
/// let broker = Broker::from_env()?;
/// let paris = broker.source(CredentialRef::cluster_profile("fleet", "paris"));
/// let tokyo = broker.source(CredentialRef::cluster_profile("fleet", "tokyo"));
/// let credential = paris.ready().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Broker {
    link: Arc<Link>,
    sources: Arc<Sources>,
    limit: Option<Duration>,
}

impl Broker {
    /// The broker of this process's environment, as [`Socket::from_env`] finds it.
    ///
    /// # Errors
    ///
    /// As of [`Socket::from_env`]: a variable is not valid. That no broker runs is not an error.
    pub fn from_env() -> Result<Self, SocketError> {
        Ok(Self::at(Socket::from_env()?))
    }

    /// The broker at that socket.
    pub fn at(socket: Socket) -> Self {
        Self { link: Link::new(socket), sources: Arc::default(), limit: None }
    }

    /// Sets how long each wait may take that this handle, or what it makes from now on, has: [`Self::credential`] (45
    /// seconds by default), [`CredentialSource::ready`] and [`Clusters::ready`] (as long as it takes).
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    /// The credential now, in one call, for programs that end soon. The broker runs the plugin only if it holds no valid
    /// credential. A broker that is starting is waited for, up to five seconds.
    ///
    /// # Errors
    ///
    /// - [`Error::Failed`]: the broker has none; [`Error::reason`] says why.
    /// - [`Error::Timeout`]: there was no answer in time. Its `source()` is the last failure, if there was one.
    /// - [`Error::Unreachable`]: no broker answers.
    /// - [`Error::Untrusted`]: what listens there may be an impostor.
    pub async fn credential(&self, reference: &CredentialRef) -> Result<Credential, Error> {
        self.credential_for(reference, Duration::ZERO).await
    }

    /// As [`Self::credential`], for work that takes `min_lifetime`. The broker also runs its plugin if the credential that it
    /// holds does not live that long. If the plugin cannot do better, this is the credential that lives longest: compare
    /// [`Credential::expires_at`].
    ///
    /// # Errors
    ///
    /// As [`Self::credential`].
    pub async fn credential_for(
        &self,
        reference: &CredentialRef,
        min_lifetime: Duration,
    ) -> Result<Credential, Error> {
        let limit = self.limit.unwrap_or(ANSWER);
        let began = clock::system().boot;
        let (mut backoff, mut last) = (Backoff::default(), None);
        let asking = async {
            loop {
                let elapsed = clock::system().boot.saturating_sub(began);
                // The broker answers shortly before the deadline of a call, and says what the call waits for.
                let left = limit.saturating_sub(elapsed);
                let call =
                    async |client: Client| client.timeout(left).credential_for(reference, min_lifetime).await;
                let error = match self.link.call(call).await {
                    Err(error) if error.may_be_starting() && elapsed < BROKER_START => error,
                    answer => return answer,
                };
                let pause = backoff.next(Some(&error), fastrand::f64());
                last = Some(error);
                sleep(pause).await;
            }
        };
        match within(Some(limit), asking).await {
            Err(pending) if pending.reason() == Some(Reason::RunPending) => {
                Err(Error::timeout(limit).waited_for(reference, || Some(pending)))
            }
            answer => answer.map_err(|error| error.waited_for(reference, || last)),
        }
    }

    /// Follows a credential from now on, even if the broker does not run yet. Sources of equal references are one; it ends with
    /// its last handle. Needs a tokio runtime.
    pub fn source(&self, reference: CredentialRef) -> CredentialSource {
        CredentialSource::over(&self.link, &self.sources, reference, self.limit)
    }

    /// Follows the clusters of the fleet from now on, even if the broker does not run yet. Needs a tokio runtime.
    pub fn clusters(&self) -> Clusters {
        Clusters::over(&self.link, None, false, self.limit)
    }

    /// As [`Self::clusters`], with the contexts of the kubeconfigs that the broker reads. For credbroker's proxy.
    #[doc(hidden)]
    pub fn clusters_and_contexts(&self) -> Clusters {
        Clusters::over(&self.link, None, true, self.limit)
    }

    /// As [`Self::clusters`], for those of one namespace.
    pub fn clusters_in(&self, namespace: &str) -> Clusters {
        Clusters::over(&self.link, Some(namespace.to_owned()), false, self.limit)
    }
}
