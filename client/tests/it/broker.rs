//! A broker whose credential the test sets: the real protocol on a real socket, no plugin.

use std::{
    collections::{BTreeMap, HashMap},
    fs::Permissions,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    pin::Pin,
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};

use credbroker_client::{Broker, Client, CredentialRef, CredentialSource, Socket};
use credbroker_proto::v1::{
    self,
    credential_broker_server::{CredentialBroker, CredentialBrokerServer},
};
use futures_util::{Stream, StreamExt};
use prost::Message as _;
use tempfile::TempDir;
use tokio::{
    net::UnixListener,
    runtime::{Builder, Runtime},
    sync::{mpsc, watch},
};
use tokio_stream::wrappers::{UnboundedReceiverStream, UnixListenerStream, WatchStream};
use tokio_util::task::AbortOnDropHandle;
use tonic::{Request, Response, Status, Streaming};

/// A broker that can be killed and started again.
pub(crate) struct FakeBroker {
    directory: TempDir,
    state: Arc<State>,
    /// Its own, so that its connections end with it.
    runtime: Option<Runtime>,
}

#[derive(Debug)]
struct State {
    /// By provider, or `namespace/name` of a `ClusterProfile`; `None`: it has no credential yet.
    credentials: Mutex<HashMap<String, watch::Sender<Option<Issued>>>>,
    fleet: watch::Sender<Fleet>,
    reports: watch::Sender<Vec<String>>,
    connections: watch::Sender<usize>,
    /// References on streams that are watched now, and the most bytes of a request.
    watched: watch::Sender<usize>,
    largest: watch::Sender<usize>,
    /// The lifetime that the last call for a credential needed.
    min_lifetime: Mutex<Option<Duration>>,
    /// What a call for a provider is refused with.
    refusals: Mutex<HashMap<String, Status>>,
    /// What watches of a provider end with.
    failures: watch::Sender<HashMap<String, v1::Failure>>,
    /// What a report of a generation leads to.
    on_report: Mutex<HashMap<String, Issued>>,
}

/// A credential, and what is said beside it.
type Issued = (v1::Credential, Option<v1::Cluster>);

/// The state of the hub.
#[derive(Clone, Debug, Default)]
struct Fleet {
    clusters: BTreeMap<String, v1::ClusterState>,
    contexts: BTreeMap<String, v1::ClusterState>,
    synced: bool,
}

impl FakeBroker {
    pub(crate) fn start() -> Self {
        let state = State {
            credentials: Mutex::default(),
            fleet: watch::Sender::default(),
            reports: watch::Sender::default(),
            connections: watch::Sender::default(),
            watched: watch::Sender::default(),
            largest: watch::Sender::default(),
            min_lifetime: Mutex::default(),
            refusals: Mutex::default(),
            failures: watch::Sender::default(),
            on_report: Mutex::default(),
        };
        let private = Permissions::from_mode(0o700); // independent of the umask
        let directory = tempfile::Builder::new().permissions(private).tempdir().unwrap();
        let mut broker = Self { directory, state: Arc::new(state), runtime: None };
        broker.restart();
        broker
    }

    /// Ends every connection immediately, as SIGKILL does.
    pub(crate) fn kill(&mut self) {
        std::fs::remove_file(self.path()).unwrap();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }

    pub(crate) fn restart(&mut self) {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = std::os::unix::net::UnixListener::bind(self.path()).unwrap();
        listener.set_nonblocking(true).unwrap();
        let state = Arc::clone(&self.state);
        runtime.spawn(async move {
            let service = CredentialBrokerServer::new(Service(Arc::clone(&state)));
            let incoming = UnixListenerStream::new(UnixListener::from_std(listener).unwrap())
                .inspect(|_| state.connections.send_modify(|connections| *connections += 1));
            let serve =
                tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming);
            serve.await.unwrap();
        });
        self.runtime = Some(runtime);
    }

    /// Sets the provider's credential, for all who watch it.
    pub(crate) fn issue(&self, provider: &str, credential: v1::Credential) {
        self.state.cell(provider).send_replace(Some((credential, None)));
    }

    /// The lifetime that the last call for a credential needed.
    pub(crate) fn min_lifetime(&self) -> Option<Duration> {
        *self.state.min_lifetime.lock().unwrap()
    }

    /// Refuses calls for the provider.
    pub(crate) fn refuse(&self, provider: &str, status: Status) {
        self.state.refusals.lock().unwrap().insert(provider.to_owned(), status);
    }

    /// Ends each watch of the provider, or of `fleet/NAME`, with that failure; `None`: no longer.
    pub(crate) fn fail(&self, provider: &str, failure: Option<v1::Failure>) {
        self.state.failures.send_modify(|failures| {
            match failure {
                Some(failure) => failures.insert(provider.to_owned(), failure),
                None => failures.remove(provider),
            };
        });
    }

    /// Has a context of that name and digest there, and sets its credential.
    pub(crate) fn enlist_context(
        &self,
        name: &str,
        digest: &str,
        credential: v1::Credential,
        cluster: v1::Cluster,
    ) {
        self.state
            .cell(&format!("context {name} {digest}"))
            .send_replace(Some((credential, Some(cluster.clone()))));
        let context = v1::ContextRef { digest: digest.into(), name: name.into() };
        let state = v1::ClusterState {
            context: Some(context),
            cluster: Some(cluster),
            ..v1::ClusterState::default()
        };
        self.state.fleet.send_modify(|fleet| drop(fleet.contexts.insert(digest.to_owned(), state)));
    }

    /// Sets the credential of the `ClusterProfile` `fleet/NAME`, and its cluster.
    pub(crate) fn issue_for(&self, name: &str, credential: v1::Credential, cluster: v1::Cluster) {
        self.state.cell(&format!("fleet/{name}")).send_replace(Some((credential, Some(cluster))));
    }

    /// Sets what the fleet's cluster of that name is displayed as; `None`: it is gone.
    pub(crate) fn display(&self, name: &str, display_name: Option<&str>) {
        match display_name {
            Some(display_name) => self.put(name, display_name, None),
            None => self.state.fleet.send_modify(|fleet| drop(fleet.clusters.remove(name))),
        }
    }

    /// The fleet has a cluster of that name there.
    pub(crate) fn enlist(&self, name: &str, cluster: v1::Cluster) {
        self.put(name, name, Some(cluster));
    }

    fn put(&self, name: &str, display_name: &str, cluster: Option<v1::Cluster>) {
        let profile = v1::ClusterProfileRef { namespace: "fleet".into(), name: name.into() };
        let state = v1::ClusterState {
            cluster_profile: Some(profile),
            display_name: Some(display_name.into()),
            cluster,
            ..v1::ClusterState::default()
        };
        self.state.fleet.send_modify(|fleet| drop(fleet.clusters.insert(name.to_owned(), state)));
    }

    /// Whether the hub has been read.
    pub(crate) fn hub_is_synced(&self, synced: bool) {
        self.state.fleet.send_modify(|fleet| fleet.synced = synced);
    }

    /// Issues it when `generation` is reported.
    pub(crate) fn issue_on_report(&self, generation: &str, credential: v1::Credential) {
        self.state.on_report.lock().unwrap().insert(generation.to_owned(), (credential, None));
    }

    /// The same, with its cluster.
    pub(crate) fn issue_for_on_report(
        &self,
        generation: &str,
        credential: v1::Credential,
        cluster: v1::Cluster,
    ) {
        self.state.on_report.lock().unwrap().insert(generation.to_owned(), (credential, Some(cluster)));
    }

    pub(crate) fn reports(&self) -> Vec<String> {
        self.state.reports.borrow().clone()
    }

    pub(crate) fn connections(&self) -> usize {
        *self.state.connections.borrow()
    }

    /// Waits until that many references are watched on streams.
    pub(crate) async fn until_watched(&self, count: usize) {
        self.state.watched.subscribe().wait_for(|watched| *watched == count).await.unwrap();
    }

    /// How many watch the provider.
    pub(crate) fn watching(&self, provider: &str) -> usize {
        self.state.cell(provider).receiver_count()
    }

    /// The bytes of the largest request of a stream.
    pub(crate) fn largest_request(&self) -> usize {
        *self.state.largest.borrow()
    }

    pub(crate) fn to(&self) -> Broker {
        Broker::at(Socket::at(self.path()))
    }

    pub(crate) async fn client(&self) -> Client {
        Client::connect(&Socket::at(self.path())).await.unwrap()
    }

    pub(crate) async fn source(&self, provider: &str) -> CredentialSource {
        let mut source = self.to().source(CredentialRef::provider(provider));
        source.ready().await.unwrap();
        source.changed().await;
        source
    }

    pub(crate) fn path(&self) -> PathBuf {
        Path::join(self.directory.path(), "broker.sock")
    }
}

impl Drop for FakeBroker {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// A token of that name for an hour.
pub(crate) fn token(generation: &str) -> v1::Credential {
    v1::Credential {
        generation: generation.into(),
        token: Some(format!("token-{generation}")),
        expiration_time: Some((SystemTime::now() + Duration::from_secs(3600)).into()),
        ..v1::Credential::default()
    }
}

impl State {
    fn cell(&self, provider: &str) -> watch::Sender<Option<Issued>> {
        self.credentials.lock().unwrap().entry(provider.to_owned()).or_default().clone()
    }
}

impl State {
    /// Serves one stream, until the client closes it.
    async fn serve(
        self: Arc<Self>,
        mut requests: Streaming<v1::WatchCredentialsRequest>,
        answers: mpsc::UnboundedSender<Result<v1::WatchCredentialsResponse, Status>>,
    ) {
        let mut forwards = HashMap::new();
        while let Ok(Some(request)) = requests.message().await {
            self.largest.send_modify(|largest| *largest = request.encoded_len().max(*largest));
            for number in request.remove {
                assert!(forwards.remove(&number).is_some(), "{number} is not watched");
            }
            for v1::watch_credentials_request::Addition { number, r#ref } in request.add {
                let provider = provider(r#ref);
                let states = self.cell(&provider).subscribe();
                let mut failures = self.failures.subscribe();
                let answers = answers.clone();
                let forward = async move {
                    let failed = failures.wait_for(|failures| failures.contains_key(&provider));
                    tokio::select! {
                        biased;
                        failed = failed => {
                            let failure = failed.unwrap().get(&provider).cloned().unwrap();
                            let result = Some(v1::watch_credentials_response::Result::Failure(failure));
                            // The client may be gone.
                            drop(answers.send(Ok(v1::WatchCredentialsResponse { number, cluster: None, result })));
                        }
                        () = forward(number, states, answers.clone()) => {}
                    }
                };
                let watch = (AbortOnDropHandle::new(tokio::spawn(forward)), Counted::new(&self.watched));
                assert!(forwards.insert(number, watch).is_none(), "{number} is in use");
            }
        }
    }
}

/// One of those that are counted, until it is dropped.
struct Counted(watch::Sender<usize>);

impl Counted {
    fn new(count: &watch::Sender<usize>) -> Self {
        count.send_modify(|count| *count += 1);
        Self(count.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

async fn forward(
    number: u64,
    states: watch::Receiver<Option<Issued>>,
    answers: mpsc::UnboundedSender<Result<v1::WatchCredentialsResponse, Status>>,
) {
    let mut states = WatchStream::new(states);
    while let Some(state) = states.next().await {
        let Some((credential, cluster)) = state else { continue };
        let result = Some(v1::watch_credentials_response::Result::Credential(credential));
        if answers.send(Ok(v1::WatchCredentialsResponse { number, cluster, result })).is_err() {
            return;
        }
    }
}

struct Service(Arc<State>);

type Watch = Pin<Box<dyn Stream<Item = Result<v1::WatchCredentialResponse, Status>> + Send>>;

type Answers = Pin<Box<dyn Stream<Item = Result<v1::WatchCredentialsResponse, Status>> + Send>>;

type Changes = Pin<Box<dyn Stream<Item = Result<v1::WatchClustersResponse, Status>> + Send>>;

fn hub(fleet: &Fleet) -> v1::HubState {
    v1::HubState { synced: fleet.synced, ..v1::HubState::default() }
}

fn provider(reference: Option<v1::CredentialRef>) -> String {
    match reference.and_then(|reference| reference.source) {
        Some(v1::credential_ref::Source::Provider(provider)) => provider.name,
        Some(v1::credential_ref::Source::ClusterProfile(profile)) => {
            format!("{}/{}", profile.namespace, profile.name)
        }
        Some(v1::credential_ref::Source::Context(context)) => {
            format!("context {} {}", context.name, context.digest)
        }
        None => panic!("a reference without a source"),
    }
}

#[tonic::async_trait]
impl CredentialBroker for Service {
    async fn get_credential(
        &self,
        request: Request<v1::GetCredentialRequest>,
    ) -> Result<Response<v1::GetCredentialResponse>, Status> {
        let v1::GetCredentialRequest { r#ref, min_lifetime, .. } = request.into_inner();
        *self.0.min_lifetime.lock().unwrap() = min_lifetime.map(|lifetime| lifetime.try_into().unwrap());
        let provider = provider(r#ref);
        if let Some(refusal) = self.0.refusals.lock().unwrap().get(&provider) {
            return Err(refusal.clone());
        }
        let issued = self.0.cell(&provider).borrow().clone();
        let (credential, cluster) = issued.ok_or_else(|| Status::internal("nothing was issued"))?;
        let credential = Some(credential);
        Ok(Response::new(v1::GetCredentialResponse { credential, cluster, ..Default::default() }))
    }

    async fn watch_credential(
        &self,
        request: Request<v1::WatchCredentialRequest>,
    ) -> Result<Response<Watch>, Status> {
        let cell = self.0.cell(&provider(request.into_inner().r#ref));
        let credentials = WatchStream::new(cell.subscribe()).filter_map(|credential| async {
            credential.map(|(credential, cluster)| {
                Ok(v1::WatchCredentialResponse { credential: Some(credential), cluster })
            })
        });
        Ok(Response::new(Box::pin(credentials)))
    }

    async fn watch_credentials(
        &self,
        request: Request<Streaming<v1::WatchCredentialsRequest>>,
    ) -> Result<Response<Answers>, Status> {
        let (answers, answered) = mpsc::unbounded_channel();
        tokio::spawn(Arc::clone(&self.0).serve(request.into_inner(), answers));
        Ok(Response::new(Box::pin(UnboundedReceiverStream::new(answered))))
    }

    async fn report_rejected(
        &self,
        request: Request<v1::ReportRejectedRequest>,
    ) -> Result<Response<v1::ReportRejectedResponse>, Status> {
        let request = request.into_inner();
        let cell = self.0.cell(&provider(request.r#ref));
        let next = self.0.on_report.lock().unwrap().remove(&request.generation);
        self.0.reports.send_modify(|reports| reports.push(request.generation));
        if let Some(next) = next {
            cell.send_replace(Some(next));
        }
        let credential = cell.borrow().clone().map(|(credential, _)| credential);
        Ok(Response::new(v1::ReportRejectedResponse { credential, ..v1::ReportRejectedResponse::default() }))
    }

    /// One on a page.
    async fn list_clusters(
        &self,
        request: Request<v1::ListClustersRequest>,
    ) -> Result<Response<v1::ListClustersResponse>, Status> {
        let after = request.into_inner().page_token;
        let fleet = self.0.fleet.borrow().clone();
        let mut rest =
            fleet.clusters.iter().filter(|(name, _)| after.as_ref().is_none_or(|after| *name > after));
        let page = rest.next();
        Ok(Response::new(v1::ListClustersResponse {
            clusters: page.map(|(_, state)| state.clone()).into_iter().collect(),
            next_page_token: rest.next().and(page).map(|(name, _)| name.clone()),
            hub: Some(hub(&fleet)),
        }))
    }

    /// Everything at first, then the differences.
    async fn watch_clusters(
        &self,
        request: Request<v1::WatchClustersRequest>,
    ) -> Result<Response<Changes>, Status> {
        let contexts = request.into_inner().include_contexts;
        let mut sent: Option<Fleet> = None;
        let messages = WatchStream::new(self.0.fleet.subscribe()).map(move |fleet| {
            let before = sent.replace(fleet.clone());
            let known = before.as_ref().map(|before| before.clusters.clone()).unwrap_or_default();
            let changed = fleet.clusters.iter().filter(|(name, state)| known.get(*name) != Some(state));
            let removed = known.iter().filter(|(name, _)| !fleet.clusters.contains_key(*name));
            let known = before.as_ref().map(|before| before.contexts.clone()).unwrap_or_default();
            let news =
                fleet.contexts.iter().filter(|(name, state)| contexts && known.get(*name) != Some(state));
            Ok(v1::WatchClustersResponse {
                changed: changed.chain(news).map(|(_, state)| state.clone()).collect(),
                removed: removed.filter_map(|(_, state)| state.cluster_profile.clone()).collect(),
                complete: before.is_none(),
                hub: Some(hub(&fleet)),
                removed_contexts: Vec::new(),
            })
        });
        Ok(Response::new(Box::pin(messages)))
    }
}

/// A certificate of that server's authority in the name of `name`, and the token of [`token`] if there is one.
pub(crate) fn issued(
    generation: &str,
    pair: Option<&(String, String)>,
    bearer: Option<&str>,
) -> v1::Credential {
    let (chain, key) = pair.cloned().unzip();
    v1::Credential {
        token: bearer.map(str::to_owned),
        client_certificate_data: chain.map(String::into_bytes),
        client_key_data: key.map(String::into_bytes),
        ..token(generation)
    }
}
