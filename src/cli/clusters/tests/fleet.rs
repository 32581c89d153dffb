use std::{path::PathBuf, sync::Mutex};

use credbroker_proto::{
    Reason,
    v1::{
        Cluster, ClusterProfileRef, ClusterState, Failure, HubState, ListClustersRequest,
        ListClustersResponse,
        cluster_state::Readiness,
        credential_broker_server::{CredentialBroker, CredentialBrokerServer},
    },
};
use credbroker_test_support::private_directory;
use futures_util::stream::unfold;
use tempfile::TempDir;
use tokio::{
    net::UnixListener,
    runtime::{Builder, Runtime},
};
use tonic::{Request, Response, Status};

use super::super::{ClusterList, ClusterQuery, Environment, sorted, warn};
use crate::cli::{
    broker::{BrokerArgs, SocketArg},
    console::fail,
};

/// A list before it is sent.
#[derive(Clone, Debug, Default)]
pub(in crate::cli) struct Fleet {
    pub(in crate::cli) clusters: Vec<ClusterState>,
    pub(in crate::cli) hub: Option<HubState>,
}

impl From<Fleet> for ClusterList {
    fn from(fleet: Fleet) -> Self {
        let mut list = Self::default();
        list.hub = fleet.hub.map(Into::into);
        list.clusters = fleet.clusters.into_iter().map(Into::into).collect();
        sorted(list)
    }
}

/// A broker that only lists clusters, in pages of two.
pub(in crate::cli) struct FakeBroker {
    directory: TempDir,
    runtime: Option<Runtime>,
}

struct Service {
    clusters: Vec<ClusterState>,
    hub: Option<HubState>,
    failure: Option<Status>,
    asked: Mutex<Vec<String>>,
}

impl FakeBroker {
    /// Answers with `fleet`.
    pub(in crate::cli) fn of(fleet: Fleet) -> Self {
        Self::start(Service {
            clusters: fleet.clusters,
            hub: fleet.hub,
            failure: None,
            asked: Mutex::default(),
        })
    }

    /// Answers with `failure`.
    pub(in crate::cli) fn failing(failure: Status) -> Self {
        Self::start(Service { clusters: vec![], hub: None, failure: Some(failure), asked: Mutex::default() })
    }

    fn start(service: Service) -> Self {
        let directory = private_directory();
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = {
            let _entered = runtime.enter();
            UnixListener::bind(directory.path().join("broker.sock")).unwrap()
        };
        let incoming = unfold(listener, |listener| async {
            Some((listener.accept().await.map(|(stream, _)| stream), listener))
        });
        runtime.spawn(
            tonic::transport::Server::builder()
                .add_service(CredentialBrokerServer::new(service))
                .serve_with_incoming(incoming),
        );
        Self { directory, runtime: Some(runtime) }
    }

    pub(in crate::cli) fn socket(&self) -> PathBuf {
        self.directory.path().join("broker.sock")
    }

    pub(in crate::cli) fn query(&self, namespaces: &[&str]) -> ClusterQuery {
        ClusterQuery {
            namespaces: namespaces.iter().map(|namespace| (*namespace).to_owned()).collect(),
            broker: at(self.socket()),
        }
    }
}

fn at(socket: PathBuf) -> BrokerArgs {
    let socket = SocketArg { path: Some(socket.into()), ..SocketArg::default() };
    BrokerArgs { socket, ..BrokerArgs::default() }
}

impl Drop for FakeBroker {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[tonic::async_trait]
impl CredentialBroker for Service {
    async fn list_clusters(
        &self,
        request: Request<ListClustersRequest>,
    ) -> Result<Response<ListClustersResponse>, Status> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let ListClustersRequest { namespace, page_token, include_contexts, .. } = request.into_inner();
        {
            // A client requests each page once.
            let mut asked = self.asked.lock().unwrap();
            let query = format!("{namespace:?} {page_token:?} {include_contexts}");
            if asked.contains(&query) {
                return Err(Status::internal(format!("asked twice for {query:?}")));
            }
            asked.push(query);
        }
        let start = page_token.map_or(0, |token| token.parse::<usize>().unwrap());
        let mine: Vec<_> = self
            .clusters
            .iter()
            .filter(|cluster| {
                let own = cluster.cluster_profile.as_ref().map(|profile| &profile.namespace);
                let is_listed = if own.is_none() { include_contexts } else { true };
                is_listed && namespace.as_ref().is_none_or(|namespace| Some(namespace) == own)
            })
            .collect();
        let clusters = mine.iter().skip(start).take(2).map(|cluster| (*cluster).clone()).collect();
        let next = start + 2;
        let next_page_token = (next < mine.len()).then(|| next.to_string());
        Ok(Response::new(ListClustersResponse { clusters, next_page_token, hub: self.hub.clone() }))
    }
}

/// A list with a hub that can be read and these clusters, named `NAMESPACE/NAME`.
pub(in crate::cli) fn fleet<'a>(clusters: impl IntoIterator<Item = (&'a str, ClusterState)>) -> Fleet {
    let clusters = clusters.into_iter().map(|(name, state)| {
        let (namespace, name) = name.split_once('/').unwrap();
        let profile = ClusterProfileRef { namespace: namespace.into(), name: name.into() };
        ClusterState { cluster_profile: Some(profile), ..state }
    });
    Fleet { clusters: clusters.collect(), hub: Some(hub(true, "")) }
}

pub(in crate::cli) fn hub(synced: bool, problem: &str) -> HubState {
    let failure = Some(Failure {
        message: problem.into(),
        reason: Reason::HubUnavailable.into(),
        ..Failure::default()
    });
    HubState { synced, failure: failure.filter(|_| !problem.is_empty()), since_time: None }
}

/// A cluster with a credential.
pub(in crate::cli) fn ready(server: &str) -> ClusterState {
    ClusterState {
        provider: Some("gke".into()),
        cluster: Some(Cluster { server: server.into(), ..Cluster::default() }),
        readiness: Readiness::Ready.into(),
        ..ClusterState::default()
    }
}

/// A cluster without a provider.
pub(in crate::cli) fn unusable(reason: Reason, message: &str) -> ClusterState {
    ClusterState {
        readiness: Readiness::Unusable.into(),
        failure: Some(Failure { reason: reason.into(), message: message.into(), ..Failure::default() }),
        ..ClusterState::default()
    }
}

fn names(fleet: &ClusterList) -> Vec<String> {
    fleet.clusters.iter().map(|state| state.profile.to_string()).collect()
}

fn five() -> Fleet {
    fleet(["b/x", "a/z", "a/y", "c/x", "a-b/x"].map(|name| (name, ready("https://x"))))
}

#[test]
fn all_pages_of_all_namespaces_are_requested_and_sorted() {
    let broker = FakeBroker::of(five());
    let fleet = broker.query(&[]).ask(&Environment::default()).unwrap();
    assert_eq!(names(&fleet), ["a/y", "a/z", "a-b/x", "b/x", "c/x"]);
    assert_eq!(fleet.hub, Some(hub(true, "").into()));
    assert!(fleet.clusters.iter().all(|cluster| cluster.provider.as_deref() == Some("gke")));
}

#[test]
fn each_named_namespace_is_requested_once() {
    let broker = FakeBroker::of(five());
    let fleet = broker.query(&["c", "a", "c"]).ask(&Environment::default()).unwrap();
    assert_eq!(names(&fleet), ["a/y", "a/z", "c/x"]);
}

#[test]
fn the_later_state_of_a_repeated_cluster_counts() {
    let fleet = ClusterList::from(fleet([("a/x", ready("https://old")), ("a/x", ready("https://new"))]));
    let servers: Vec<_> =
        fleet.clusters.iter().map(|state| &state.cluster.as_ref().unwrap().server).collect();
    assert_eq!(servers, ["https://new"]);
}

#[test]
fn a_failure_has_its_remedy_and_the_exit_code_of_the_shim() {
    let failure = |query: &ClusterQuery| {
        let (error, mut err) = (query.ask(&Environment::default()).unwrap_err(), Vec::new());
        (fail(&error, &mut err), String::from_utf8(err).unwrap())
    };
    let refuses = FakeBroker::failing(Status::permission_denied("not you"));
    assert_eq!(failure(&refuses.query(&[])), (77, "credbroker: not you\n".to_owned()));

    let nowhere = private_directory();
    let query = |socket| ClusterQuery { broker: at(socket), ..ClusterQuery::default() };
    let (code, line) = failure(&query(nowhere.path().join("none.sock")));
    assert_eq!(code, 69);
    assert!(line.contains("start it with `credbroker serve`"), "{line}");
    assert_eq!(failure(&query("unix://relative".into())).0, 2);
}

#[test]
fn a_list_that_may_be_incomplete_has_one_line_that_says_why() {
    let mut lines = Vec::new();
    for (what, state) in [
        ("none", None),
        ("read", Some(hub(true, ""))),
        ("down", Some(hub(true, "connection\nrefused\u{1b}[31m"))),
        ("new", Some(hub(false, ""))),
        ("new and down", Some(hub(false, "no such host"))),
    ] {
        for (size, mut fleet) in [("some", five()), ("empty", Fleet::default())] {
            fleet.hub.clone_from(&state);
            let mut err = Vec::new();
            warn(&fleet.into(), &mut err).unwrap();
            let line = String::from_utf8(err).unwrap();
            lines.push(format!("{what}, {size}: {line}").trim_end().to_owned());
        }
    }
    insta::assert_snapshot!(lines.join("\n"), @r"
    none, some:
    none, empty: credbroker: the broker reads no ClusterProfiles; name the hub in its configuration: `clusterProfiles: {kubeconfig: FILE or InCluster, namespaces: [NAMESPACE]}`
    read, some:
    read, empty: credbroker: the hub has no matching ClusterProfile; check --namespace, and `namespaces` and `labelSelector` of `clusterProfiles` in the broker's configuration
    down, some: credbroker: this list may be out of date, because the hub cannot be read: connection refusedU+001B[31m
    down, empty: credbroker: the broker has no ClusterProfiles, because the hub cannot be read: connection refusedU+001B[31m
    new, some: credbroker: clusters may be missing, because the broker has not read all ClusterProfiles yet
    new, empty: credbroker: the broker has not read the ClusterProfiles yet; try again in a few seconds
    new and down, some: credbroker: clusters may be missing, because the hub cannot be read: no such host
    new and down, empty: credbroker: the broker has no ClusterProfiles, because the hub cannot be read: no such host
    ");
}
