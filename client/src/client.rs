//! Questions to the broker.

use std::{future::Future, time::Duration};

use credbroker_proto::v1::{
    Cluster, CredentialSelector, CredentialState, EvictCredentialsRequest, GetCredentialRequest,
    GetCredentialResponse, ListClustersRequest, ListClustersResponse, ListCredentialsRequest,
    RefreshCredentialsRequest, ReportRejectedRequest, WatchClustersRequest, WatchClustersResponse,
    WatchCredentialRequest, credential_broker_admin_client::CredentialBrokerAdminClient,
    credential_broker_client::CredentialBrokerClient,
};
use futures_util::{Stream, StreamExt};
use http::Uri;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::UnixStream,
    time::{sleep, timeout},
};
use tonic::{Code, Request, Response, Status};

use crate::{
    Credential, CredentialRef, Error, Selector, Socket, Waits, clock, connect::connect, lost::ConnectionLost,
    patience::Patience, transport::Transport,
};

/// From connecting to the first bytes of the other end, which a broker sends at once.
const BEGINNING: Duration = Duration::from_secs(5);
/// Longer than a plugin may run by default, so that its error arrives.
const ANSWER: Duration = Duration::from_secs(45);
/// Hundreds of slow runs, a few at a time.
const REFRESH: Duration = Duration::from_secs(3600);

/// Asks once, from finding the socket to the answer. A broker that is not there yet, or that leaves before it answers
/// (a restart), is waited for as `waits` says. One that accepts the connection and then sends nothing is given five
/// seconds. The broker knows how long the caller waits, so that it can say in time why there is no credential yet.
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
    let limit = waits.in_all;
    let begun = clock::system().boot;
    let attempts = async {
        let mut patience = Patience::new(waits.for_broker);
        loop {
            let left = limit.saturating_sub(clock::system().boot.saturating_sub(begun));
            let outcome = attempt(socket, request.clone(), left).await;
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
    match timeout(limit, attempts).await {
        // What was left for the last attempt is not what the caller allowed.
        Ok(Err(Error::Timeout { .. })) => Err(Error::Timeout { limit }),
        Ok(outcome) => outcome,
        Err(_) => Err(absent.unwrap_or(Error::Timeout { limit })),
    }
}

/// One connection to the broker. Clones share it; requests on it run side by side.
///
/// Each request has a deadline, which the broker knows: 45 seconds, or what [`Client::timeout`] says, then
/// [`Error::Timeout`]. A list that comes in pages is one request for each page. A watch may last: its deadline is for
/// the broker's first response. A connection with open requests that sends nothing is asked for a sign of life after
/// 30 seconds, and is lost 15 seconds later.
#[derive(Clone, Debug)]
pub struct Client {
    rpc: CredentialBrokerClient<Transport>,
    admin: CredentialBrokerAdminClient<Transport>,
    socket: Socket,
    limit: Option<Duration>,
}

impl Client {
    /// Connects to the first of the socket's paths that exists, once it is known to be trusted. One attempt; needs a
    /// tokio runtime, on which the connection lives.
    ///
    /// # Errors
    ///
    /// - [`Error::Unreachable`]: nothing listens there, or it sent nothing within five seconds.
    /// - [`Error::Untrusted`]: something does, but it may be an impostor.
    pub async fn connect(socket: &Socket) -> Result<Self, Error> {
        let connected = async {
            let (stream, _) = connect(socket)?;
            let stream = UnixStream::from_std(stream)
                .map_err(|error| Error::lost(socket, ConnectionLost::new(error.to_string())))?;
            Self::over(stream, socket).await
        };
        timeout(BEGINNING, connected).await.unwrap_or_else(|_| Err(Error::silent(socket, BEGINNING)))
    }

    /// Once the other end has sent something.
    pub(crate) async fn over<S>(stream: S, socket: &Socket) -> Result<Self, Error>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let transport = Transport::over(stream).await.map_err(|lost| Error::lost(socket, lost))?;
        let origin = Uri::from_static("http://localhost");
        let admin = CredentialBrokerAdminClient::with_origin(transport.clone(), origin.clone());
        let rpc = CredentialBrokerClient::with_origin(transport, origin);
        Ok(Self { rpc, admin, socket: socket.clone(), limit: None })
    }

    /// How long each request of this clone may take, in place of the defaults.
    ///
    /// ```no_run
    /// # async fn example(client: credbroker_client::Client) -> Result<(), credbroker_client::Error> {
    /// use std::time::Duration;
    ///
    /// use credbroker_client::Selector;
    ///
    /// let held = client.clone().timeout(Duration::from_secs(5)).list(Selector::All).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    /// The credential; the broker runs its plugin only if it holds no valid one.
    ///
    /// # Errors
    ///
    /// - [`Error::Failed`]: the broker has none; its `reason` says why.
    /// - [`Error::Timeout`]: the broker did not say within the deadline; ask again later.
    /// - [`Error::Unreachable`]: the connection ended; [`Client::connect`] again.
    pub async fn credential(
        &mut self,
        request: GetCredentialRequest,
    ) -> Result<GetCredentialResponse, Error> {
        let within = self.within(ANSWER);
        within.answer(&self.socket, self.rpc.get_credential(within.of(request))).await
    }

    /// The credentials that `selector` selects of the broker's cache: every page as one answer, sorted by provider and
    /// key. What the broker begins to hold meanwhile may be missing. No secrets.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] with [`UNKNOWN_PROVIDER`](credbroker_proto::Reason::UnknownProvider), [`Error::Timeout`], or
    /// [`Error::Unreachable`].
    pub async fn list(&mut self, selector: Selector) -> Result<Vec<CredentialState>, Error> {
        let selector = Some(CredentialSelector::from(selector));
        let (mut all, mut page_token) = (Vec::new(), String::new());
        loop {
            let request = ListCredentialsRequest { selector: selector.clone(), page_size: 0, page_token };
            let within = self.within(ANSWER);
            let page = within.answer(&self.socket, self.admin.list_credentials(within.of(request))).await?;
            all.extend(page.credentials);
            if page.next_page_token.is_empty() {
                return Ok(all);
            }
            page_token = page.next_page_token;
        }
    }

    /// Runs the plugin now for each credential that `selector` selects of the broker's cache, waits for the last run,
    /// and returns the state after it. What was held is served meanwhile, and stays if a run fails.
    ///
    /// The broker runs a few plugins at a time, so many keys take long: the default deadline is an hour. When it ends,
    /// the runs go on.
    ///
    /// # Errors
    ///
    /// As [`list`](Self::list). A run that failed is not an error: the state says so.
    pub async fn refresh(&mut self, selector: Selector) -> Result<Vec<CredentialState>, Error> {
        let request = RefreshCredentialsRequest { selector: Some(selector.clone().into()) };
        let within = self.within(REFRESH);
        within.answer(&self.socket, self.admin.refresh_credentials(within.of(request))).await?;
        self.list(selector).await
    }

    /// Removes what `selector` selects from the broker's cache: how many credentials that were. The next request for one
    /// of them runs the plugin.
    ///
    /// # Errors
    ///
    /// As [`list`](Self::list).
    pub async fn evict(&mut self, selector: Selector) -> Result<u32, Error> {
        let request = EvictCredentialsRequest { selector: Some(selector.into()) };
        let within = self.within(ANSWER);
        Ok(within.answer(&self.socket, self.admin.evict_credentials(within.of(request))).await?.evicted)
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
    /// [`Error::Failed`], with [`Code::Unimplemented`](crate::Code) by a broker that is older than this question,
    /// [`Error::Timeout`], or [`Error::Unreachable`].
    pub async fn clusters(&mut self, namespace: &str) -> Result<ListClustersResponse, Error> {
        let mut all = ListClustersResponse::default();
        loop {
            let page_token = std::mem::take(&mut all.next_page_token);
            let request =
                ListClustersRequest { namespace: in_namespace(namespace), page_size: 0, page_token };
            let within = self.within(ANSWER);
            let page = within.answer(&self.socket, self.rpc.list_clusters(within.of(request))).await?;
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
        let request = WatchClustersRequest { namespace: in_namespace(namespace) };
        let messages = self.within(ANSWER).answer(&socket, self.rpc.watch_clusters(request)).await?;
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
        let request = WatchCredentialRequest::from(reference);
        let messages = self.within(ANSWER).answer(&socket, self.rpc.watch_credential(request)).await?;
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
        let request = ReportRejectedRequest { r#ref: Some(reference.into()), generation: generation.into() };
        let within = self.within(ANSWER);
        received(
            within.answer(&self.socket, self.rpc.report_rejected(within.of(request))).await?.credential,
            None,
        )
    }

    /// How long a request may take.
    fn within(&self, default: Duration) -> Deadline {
        Deadline(self.limit.unwrap_or(default))
    }
}

/// How long one request may take.
#[derive(Clone, Copy)]
struct Deadline(Duration);

impl Deadline {
    /// A request whose deadline the broker knows. Not for a watch: it would end the stream.
    fn of<T>(self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.set_timeout(self.0);
        request
    }

    async fn answer<T>(
        self,
        socket: &Socket,
        answer: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, Error> {
        let late = Error::Timeout { limit: self.0 };
        match timeout(self.0, answer).await {
            Err(_) => Err(late),
            Ok(Ok(response)) => Ok(response.into_inner()),
            // A server that knows the deadline may be the first to end the request.
            Ok(Err(status)) if status.code() == Code::DeadlineExceeded => Err(late),
            Ok(Err(status)) => Err(Error::from_status(socket, &status)),
        }
    }
}

/// Empty: all.
fn in_namespace(namespace: &str) -> Option<String> {
    Some(namespace.to_owned()).filter(|namespace| !namespace.is_empty())
}

fn received(
    credential: Option<credbroker_proto::v1::Credential>,
    cluster: Option<Cluster>,
) -> Result<Credential, Error> {
    Credential::receive(credential.unwrap_or_default(), cluster, clock::system())
}

async fn attempt(
    socket: &Socket,
    request: GetCredentialRequest,
    limit: Duration,
) -> Result<GetCredentialResponse, Error> {
    Client::connect(socket).await?.timeout(limit).credential(request).await
}

#[cfg(test)]
mod tests;
