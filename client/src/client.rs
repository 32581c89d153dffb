//! Questions to the broker.

use credbroker_proto::v1::{
    Cluster, CredentialState, EvictCredentialRequest, GetCredentialRequest, GetCredentialResponse,
    ListClustersRequest, ListClustersResponse, ListCredentialsRequest, RefreshCredentialRequest,
    ReportRejectedRequest, WatchClustersRequest, WatchClustersResponse, WatchCredentialRequest,
    credential_broker_client::CredentialBrokerClient,
};
use futures_util::{Stream, StreamExt};
use http::Uri;
use tokio::{
    net::UnixStream,
    time::{sleep, timeout},
};
use tonic::{Response, Status};

use crate::{
    Credential, CredentialRef, Error, Socket, Waits, clock, connect::connect, lost::ConnectionLost,
    patience::Patience, transport::Transport,
};

/// Asks once, from finding the socket to the answer. A broker that is not there yet, or that leaves before it answers
/// (a restart), is waited for as `waits` says.
///
/// Dropping the future does not stop a plugin run that it started: other callers may be waiting for it.
///
/// # Errors
///
/// Every [`Error`]; its variants say what the caller can do.
pub async fn ask(
    socket: &Socket,
    request: GetCredentialRequest,
    waits: Waits,
) -> Result<GetCredentialResponse, Error> {
    // Why a broker is being waited for at this moment: out of time then means that there was none.
    let mut absent = None;
    let attempts = async {
        let mut patience = Patience::new(waits.for_broker);
        loop {
            let outcome = attempt(socket, request.clone()).await;
            let Err(error) = outcome else { return outcome };
            match patience.next().filter(|_| error.may_be_starting()) {
                Some(pause) => {
                    absent = Some(error);
                    sleep(pause).await;
                    absent = None;
                }
                None => return Err(error),
            }
        }
    };
    let limit = waits.in_all;
    match timeout(limit, attempts).await {
        Ok(outcome) => outcome,
        Err(_) => Err(absent.unwrap_or(Error::Timeout { limit })),
    }
}

/// One connection to the broker. Clones share it; requests on it run side by side.
#[derive(Clone, Debug)]
pub struct Client {
    rpc: CredentialBrokerClient<Transport>,
    socket: Socket,
}

impl Client {
    /// Connects to the first of the socket's paths that exists, once it is known to be trusted. One attempt; needs a
    /// tokio runtime, on which the connection lives.
    ///
    /// # Errors
    ///
    /// - [`Error::Unreachable`]: nothing listens there.
    /// - [`Error::Untrusted`]: something does, but it may be an impostor.
    pub async fn connect(socket: &Socket) -> Result<Self, Error> {
        let (stream, _) = connect(socket)?;
        let stream = UnixStream::from_std(stream)
            .map_err(|error| Error::lost(socket, ConnectionLost::new(error.to_string())))?;
        let transport = Transport::over(stream).await.map_err(|lost| Error::lost(socket, lost))?;
        let rpc = CredentialBrokerClient::with_origin(transport, Uri::from_static("http://localhost"));
        Ok(Self { rpc, socket: socket.clone() })
    }

    /// The credential; the broker runs its plugin only if it holds no valid one.
    ///
    /// # Errors
    ///
    /// - [`Error::Failed`]: the broker has none; its `reason` says why.
    /// - [`Error::Unreachable`]: the connection ended; [`Client::connect`] again.
    pub async fn credential(
        &mut self,
        request: GetCredentialRequest,
    ) -> Result<GetCredentialResponse, Error> {
        let answer = self.rpc.get_credential(request).await;
        self.answered(answer)
    }

    /// What the broker holds of `provider`, or of all when it is empty. No secrets.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] with [`UNKNOWN_PROVIDER`](credbroker_proto::Reason::UnknownProvider), or
    /// [`Error::Unreachable`].
    pub async fn list(&mut self, provider: &str) -> Result<Vec<CredentialState>, Error> {
        let answer = self
            .rpc
            .list_credentials(ListCredentialsRequest {
                provider: provider.to_owned(),
                page_token: String::new(),
            })
            .await;
        Ok(self.answered(answer)?.credentials)
    }

    /// Runs the plugin now for all that the broker holds of `provider`, and says how it stands then. What was held is
    /// served meanwhile, and stays if a run fails.
    ///
    /// # Errors
    ///
    /// As [`list`](Self::list). A run that failed is no error: the state says so.
    pub async fn refresh(&mut self, provider: &str) -> Result<Vec<CredentialState>, Error> {
        let request = RefreshCredentialRequest { provider: provider.to_owned() };
        let answer = self.rpc.refresh_credential(request).await;
        Ok(self.answered(answer)?.credentials)
    }

    /// Makes the broker forget what it holds of `provider`, or everything when it is empty: how many credentials that
    /// were. The next ask runs the plugin.
    ///
    /// # Errors
    ///
    /// As [`list`](Self::list).
    pub async fn evict(&mut self, provider: &str) -> Result<u32, Error> {
        let answer =
            self.rpc.evict_credential(EvictCredentialRequest { provider: provider.to_owned() }).await;
        Ok(self.answered(answer)?.evicted)
    }

    /// The clusters of the fleet, of one namespace or of all when it is empty: every page as one answer, with the hub's
    /// state as the last page has it. No secrets.
    ///
    /// ```no_run
    /// # async fn example(mut client: credbroker_client::Client) -> Result<(), credbroker_client::Error> {
    /// for cluster in client.clusters("fleet").await?.clusters {
    ///     println!("{} {:?}", cluster.display_name, cluster.readiness());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Failed`], with [`Code::Unimplemented`](crate::Code) by a broker that is older than this question, or
    /// [`Error::Unreachable`].
    pub async fn clusters(&mut self, namespace: &str) -> Result<ListClustersResponse, Error> {
        let mut all = ListClustersResponse::default();
        loop {
            let page_token = std::mem::take(&mut all.next_page_token);
            let request = ListClustersRequest { namespace: namespace.to_owned(), page_token };
            let answer = self.rpc.list_clusters(request).await;
            let page = self.answered(answer)?;
            all.clusters.extend(page.clusters);
            all.hub = page.hub;
            if page.next_page_token.is_empty() {
                return Ok(all);
            }
            all.next_page_token = page.next_page_token;
        }
    }

    /// The clusters of the fleet now, of one namespace or of all when it is empty, then what changes. It ends with an
    /// error, never without one. [`Clusters`](crate::Clusters) is this with everything that can go wrong seen to.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), credbroker_client::Error> {
    /// use credbroker_client::{Client, Socket};
    /// use futures_util::StreamExt;
    ///
    /// let mut client = Client::connect(&Socket::at(Socket::SYSTEM)).await?;
    /// let mut messages = client.watch_clusters("fleet").await?;
    /// while let Some(message) = messages.next().await {
    ///     for cluster in message?.changed {
    ///         println!("{}", cluster.display_name);
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As of [`Client::clusters`]; the stream's own too.
    pub async fn watch_clusters(
        &mut self,
        namespace: &str,
    ) -> Result<impl Stream<Item = Result<WatchClustersResponse, Error>> + Send + Unpin + use<>, Error> {
        let socket = self.socket.clone();
        let request = WatchClustersRequest { namespace: namespace.to_owned() };
        let response = self.rpc.watch_clusters(request).await;
        let messages = response.map_err(|status| Error::from_status(&socket, &status))?.into_inner();
        let ended = Error::ended(&socket);
        let messages =
            messages.map(move |message| message.map_err(|status| Error::from_status(&socket, &status)));
        Ok(messages.chain(futures_util::stream::iter([Err(ended)])))
    }

    /// The credential now, then one more with each rotation, the newest only. It ends with an error, never without
    /// one. [`CredentialSource`](crate::CredentialSource) is this with everything that can go wrong seen to.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), credbroker_client::Error> {
    /// use credbroker_client::{Client, CredentialRef, Socket};
    /// use futures_util::StreamExt;
    ///
    /// let mut client = Client::connect(&Socket::at(Socket::SYSTEM)).await?;
    /// let mut credentials = client.watch(CredentialRef::provider("gke")).await?;
    /// while let Some(credential) = credentials.next().await {
    ///     println!("{}", credential?.generation());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As of [`Client::credential`]; the stream's own too.
    pub async fn watch(
        &mut self,
        reference: CredentialRef,
    ) -> Result<impl Stream<Item = Result<Credential, Error>> + Send + Unpin + use<>, Error> {
        let socket = self.socket.clone();
        let response = self.rpc.watch_credential(WatchCredentialRequest::from(reference)).await;
        let messages = response.map_err(|status| Error::from_status(&socket, &status))?.into_inner();
        let ended = Error::ended(&socket);
        let credentials = messages.map(move |message| match message {
            Ok(message) => received(message.credential, message.cluster),
            Err(status) => Err(Error::from_status(&socket, &status)),
        });
        Ok(credentials.chain(futures_util::stream::iter([Err(ended)])))
    }

    /// Says that the API server answered 401 to `generation`, and waits for what to use instead: the same one, if the
    /// plugin was not asked or had nothing newer. It comes without its cluster, which only a watch or a get names.
    ///
    /// ```no_run
    /// # async fn example(mut client: credbroker_client::Client) -> Result<(), credbroker_client::Error> {
    /// # let reference = credbroker_client::CredentialRef::provider("gke");
    /// let instead = client.report_rejected(reference, "7f3a-12").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As of [`Client::credential`].
    pub async fn report_rejected(
        &mut self,
        reference: CredentialRef,
        generation: impl Into<String>,
    ) -> Result<Credential, Error> {
        let request =
            ReportRejectedRequest { credential: Some(reference.into()), generation: generation.into() };
        let answer = self.rpc.report_rejected(request).await;
        received(self.answered(answer)?.credential, None)
    }

    fn answered<T>(&self, answer: Result<Response<T>, Status>) -> Result<T, Error> {
        answer.map(Response::into_inner).map_err(|status| Error::from_status(&self.socket, &status))
    }
}

fn received(
    credential: Option<credbroker_proto::v1::Credential>,
    cluster: Option<Cluster>,
) -> Result<Credential, Error> {
    Credential::receive(credential.unwrap_or_default(), cluster, clock::system())
}

async fn attempt(socket: &Socket, request: GetCredentialRequest) -> Result<GetCredentialResponse, Error> {
    Client::connect(socket).await?.credential(request).await
}
