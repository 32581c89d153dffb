//! Calls to the broker over one connection.

mod items;

use std::time::Duration;

use credbroker_proto::v1::{
    GetCredentialRequest, ListClustersRequest, ReportRejectedRequest, WatchClustersRequest,
    WatchCredentialRequest, WatchCredentialsRequest, WatchCredentialsResponse,
    credential_broker_client::CredentialBrokerClient,
};
use futures_core::Stream;
use http::Uri;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::UnixStream,
    time::timeout,
};
use tonic::Streaming;

use self::items::items;
use crate::{
    clock,
    cluster_state::{ClusterChanges, ClusterList, ClusterState, ContextState, HubState},
    connect::connect,
    credential::Credential,
    deadline::CallDeadline,
    error::Error,
    health,
    lost::ConnectionLost,
    reference::CredentialRef,
    rejection::{RejectionReport, ReportOutcome},
    socket::Socket,
    transport::Transport,
};

/// From connecting to the first bytes of the other end. A broker sends them immediately.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Longer than the default limit of a plugin run, so that the run's error arrives.
pub(crate) const ANSWER: Duration = Duration::from_secs(45);

/// One connection to the broker. Clones share it, and their calls run side by side.
///
/// Each call has a deadline: 45 seconds, or the one that [`Client::timeout`] sets; when it passes, the call fails with
/// [`Error::Timeout`]. The broker knows the deadline. A list that comes in pages is one call for each page. The deadline
/// of a watch is for its first response; the stream itself has none. A connection with open calls is pinged after 30
/// seconds of silence, and is lost when the answer takes 15 seconds.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use credbroker_client::{Client, Socket};
///
/// let client = Client::connect(&Socket::from_env()?).await?.timeout(Duration::from_secs(5));
/// for cluster in client.clusters(None).await?.clusters {
///     println!("{} {:?}", cluster.profile, cluster.readiness);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Client {
    pub(crate) transport: Transport,
    pub(crate) socket: Socket,
    pub(crate) limit: Option<Duration>,
}

impl Client {
    /// Connects to the first path of `socket` that exists, after checking that it can be trusted. This is one attempt. It
    /// needs a tokio runtime, which the connection lives on.
    ///
    /// # Errors
    ///
    /// - [`Error::Unreachable`]: nothing listens there, or it sent nothing within five seconds.
    /// - [`Error::Untrusted`]: what listens there may be an impostor.
    pub async fn connect(socket: &Socket) -> Result<Self, Error> {
        let connected = async {
            let (stream, _) = connect(socket)?;
            let stream = UnixStream::from_std(stream)
                .map_err(|error| Error::lost(socket, ConnectionLost::new(error.to_string())))?;
            Self::over(stream, socket).await
        };
        timeout(HANDSHAKE, connected).await.unwrap_or_else(|_| Err(Error::silent(socket, HANDSHAKE)))
    }

    /// Resolves once the other end has sent something.
    pub(crate) async fn over<S>(stream: S, socket: &Socket) -> Result<Self, Error>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let transport = Transport::over(stream).await.map_err(|lost| Error::lost(socket, lost))?;
        Ok(Self { transport, socket: socket.clone(), limit: None })
    }

    /// Sets how long each call of this clone may take.
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    /// The credential. The broker runs its plugin only if it holds no valid credential.
    ///
    /// # Errors
    ///
    /// - [`Error::Failed`]: the broker has none; [`Error::reason`] says why.
    /// - [`Error::Timeout`]: the broker did not answer within the deadline; try again later.
    /// - [`Error::Unreachable`]: the connection ended; connect again.
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
        let min_lifetime = Some(min_lifetime).filter(|lifetime| !lifetime.is_zero());
        let request = GetCredentialRequest {
            r#ref: Some(reference.message()),
            min_lifetime: min_lifetime.and_then(|lifetime| lifetime.try_into().ok()),
            ..GetCredentialRequest::default()
        };
        let deadline = self.deadline(ANSWER);
        let mut rpc = self.rpc();
        let answer = deadline.response(&self.socket, rpc.get_credential(deadline.request(request))).await?;
        Credential::receive(answer.credential.unwrap_or_default(), answer.cluster, clock::system())
    }

    /// The credential now, then one item for each rotation. Rotations that come together are one item. The stream ends
    /// with its first error. [`CredentialSource`](crate::CredentialSource) is a watch that reconnects.
    ///
    /// # Errors
    ///
    /// As [`Client::credential`], and the same for the items of the stream.
    pub async fn watch(
        &self,
        reference: &CredentialRef,
    ) -> Result<impl Stream<Item = Result<Credential, Error>> + Send + Unpin + use<>, Error> {
        let socket = self.socket.clone();
        let request = WatchCredentialRequest { r#ref: Some(reference.message()) };
        let messages = self.deadline(ANSWER).response(&socket, self.rpc().watch_credential(request)).await?;
        Ok(items(messages, socket, |message| {
            Credential::receive(message.credential.unwrap_or_default(), message.cluster, clock::system())
        }))
    }

    /// Watches the references that `requests` add.
    pub(crate) async fn watch_many(
        &self,
        requests: impl Stream<Item = WatchCredentialsRequest> + Send + 'static,
    ) -> Result<Streaming<WatchCredentialsResponse>, Error> {
        self.deadline(ANSWER).response(&self.socket, self.rpc().watch_credentials(requests)).await
    }

    /// Reports that the API server answered 401 to `generation`, and returns the credential to use from now on.
    ///
    /// # Errors
    ///
    /// As [`Client::credential`].
    pub async fn report_rejected(
        &self,
        reference: &CredentialRef,
        generation: &str,
    ) -> Result<RejectionReport, Error> {
        let request =
            ReportRejectedRequest { r#ref: Some(reference.message()), generation: generation.to_owned() };
        let deadline = self.deadline(ANSWER);
        let mut rpc = self.rpc();
        let answer = deadline.response(&self.socket, rpc.report_rejected(deadline.request(request))).await?;
        let outcome = ReportOutcome::from_message(answer.outcome());
        let retry_after = answer.retry_after.and_then(|delay| Duration::try_from(delay).ok());
        let credential =
            Credential::receive(answer.credential.unwrap_or_default(), answer.cluster, clock::system())?;
        Ok(RejectionReport { credential, outcome, retry_after })
    }

    /// Whether the broker reports that `service` is serving: the name of a provider, `ready` for the broker with all of
    /// its providers, or `hub` for the hub of ClusterProfiles. `None`: the broker itself.
    ///
    /// # Errors
    ///
    /// As [`Client::credential`]; [`Error::Failed`] with the code `NotFound`: there is no such service.
    pub async fn is_serving(&self, service: Option<&str>) -> Result<bool, Error> {
        health::check(
            self.transport.clone(),
            &self.socket,
            self.deadline(ANSWER),
            service.unwrap_or_default(),
        )
        .await
    }

    /// The clusters of the fleet: those of one namespace, or all.
    ///
    /// # Errors
    ///
    /// As [`Client::credential`].
    pub async fn clusters(&self, namespace: Option<&str>) -> Result<ClusterList, Error> {
        let mut list = ClusterList::default();
        let mut page_token = None;
        loop {
            let request = ListClustersRequest {
                namespace: namespace.map(str::to_owned),
                page_token,
                ..Default::default()
            };
            let deadline = self.deadline(ANSWER);
            let mut rpc = self.rpc();
            let page = deadline.response(&self.socket, rpc.list_clusters(deadline.request(request))).await?;
            list.clusters.extend(page.clusters.into_iter().map(ClusterState::from_message));
            list.hub = page.hub.map(HubState::from_message);
            page_token = page.next_page_token;
            if page_token.is_none() {
                return Ok(list);
            }
        }
    }

    /// The contexts of the kubeconfigs that the broker reads, sorted by name and digest.
    ///
    /// # Errors
    ///
    /// As [`Client::credential`].
    pub async fn contexts(&self) -> Result<Vec<ContextState>, Error> {
        let (mut contexts, mut page_token) = (Vec::new(), None);
        loop {
            let request = ListClustersRequest { include_contexts: true, page_token, ..Default::default() };
            let deadline = self.deadline(ANSWER);
            let mut rpc = self.rpc();
            let page = deadline.response(&self.socket, rpc.list_clusters(deadline.request(request))).await?;
            contexts.extend(page.clusters.into_iter().filter_map(ContextState::from_message));
            page_token = page.next_page_token;
            if page_token.is_none() {
                return Ok(contexts);
            }
        }
    }

    /// The clusters of the fleet now, of one namespace or all, and the contexts if they are asked for; then what changes. The stream ends with its first
    /// error. [`Clusters`](crate::Clusters) is a watch that reconnects.
    ///
    /// # Errors
    ///
    /// As [`Client::credential`], and the same for the items of the stream.
    pub async fn watch_clusters(
        &self,
        namespace: Option<&str>,
        contexts: bool,
    ) -> Result<impl Stream<Item = Result<ClusterChanges, Error>> + Send + Unpin + use<>, Error> {
        let socket = self.socket.clone();
        let request =
            WatchClustersRequest { namespace: namespace.map(str::to_owned), include_contexts: contexts };
        let messages = self.deadline(ANSWER).response(&socket, self.rpc().watch_clusters(request)).await?;
        Ok(items(messages, socket, |message| Ok(ClusterChanges::from_message(message))))
    }

    fn rpc(&self) -> CredentialBrokerClient<Transport> {
        CredentialBrokerClient::with_origin(self.transport.clone(), Uri::from_static("http://localhost"))
    }

    /// The deadline that was set, or `default`.
    pub(crate) fn deadline(&self, default: Duration) -> CallDeadline {
        CallDeadline(self.limit.unwrap_or(default))
    }
}

#[cfg(test)]
pub(crate) mod tests;
