//! The commands of the CLI with as many rows as a large broker has.

use std::{path::Path, process::Command};

use credbroker_proto::{
    v1::{
        self as pb, Failure,
        credential_broker_server::{CredentialBroker, CredentialBrokerServer},
    },
    v1alpha1::{
        self,
        credential_broker_admin_server::{CredentialBrokerAdmin, CredentialBrokerAdminServer},
    },
};
use credbroker_test_support::private_directory;
use tokio::{net::UnixListener, runtime::Builder};
use tokio_stream::{StreamExt as _, wrappers::UnixListenerStream};
use tonic::{Request, Response, Status};

const ROWS: usize = 10_000;
const FAILING: usize = 3_000;
const ON_A_PAGE: usize = 400;

/// Holds so many rows, and sends them in pages whose token is the number of the next row.
struct Large;

/// The rows that follow `token`, and the token of the next page.
fn page<T>(token: Option<String>, row: impl Fn(usize) -> T) -> (Vec<T>, Option<String>) {
    let start = token.map_or(0, |token| token.parse::<usize>().unwrap());
    let end = (start + ON_A_PAGE).min(ROWS);
    let next = (end < ROWS).then(|| end.to_string());
    ((start..end).map(row).collect(), next)
}

#[tonic::async_trait]
impl CredentialBrokerAdmin for Large {
    async fn get_broker_info(
        &self,
        _request: Request<v1alpha1::GetBrokerInfoRequest>,
    ) -> Result<Response<v1alpha1::GetBrokerInfoResponse>, Status> {
        Ok(Response::new(v1alpha1::GetBrokerInfoResponse::default()))
    }

    async fn list_providers(
        &self,
        _request: Request<v1alpha1::ListProvidersRequest>,
    ) -> Result<Response<v1alpha1::ListProvidersResponse>, Status> {
        Ok(Response::new(v1alpha1::ListProvidersResponse::default()))
    }

    async fn list_credentials(
        &self,
        request: Request<v1alpha1::ListCredentialsRequest>,
    ) -> Result<Response<v1alpha1::ListCredentialsResponse>, Status> {
        let failure = || Failure { message: "x".repeat(2048), ..Failure::default() };
        let (credentials, next_page_token) =
            page(request.into_inner().page_token, |row| v1alpha1::CredentialState {
                provider: "cloud".into(),
                id: format!("{row:012x}"),
                last_failure: (row < FAILING).then(failure),
                ..v1alpha1::CredentialState::default()
            });
        Ok(Response::new(v1alpha1::ListCredentialsResponse { credentials, next_page_token }))
    }
}

#[tonic::async_trait]
impl CredentialBroker for Large {
    async fn list_clusters(
        &self,
        request: Request<pb::ListClustersRequest>,
    ) -> Result<Response<pb::ListClustersResponse>, Status> {
        let (clusters, next_page_token) = page(request.into_inner().page_token, |row| {
            let name = format!("cluster-{row:05}");
            let server = format!("https://{name}.example:6443");
            pb::ClusterState {
                cluster_profile: Some(pb::ClusterProfileRef { namespace: "fleet".into(), name }),
                provider: Some("cloud".into()),
                cluster: Some(pb::Cluster { server, ..pb::Cluster::default() }),
                ..pb::ClusterState::default()
            }
        });
        let hub = Some(pb::HubState { synced: true, ..pb::HubState::default() });
        Ok(Response::new(pb::ListClustersResponse { clusters, next_page_token, hub }))
    }
}

fn lines(socket: &Path, command: &[&str]) -> usize {
    let mut process = Command::new(env!("CARGO_BIN_EXE_credbroker"));
    process.args(command).args(["--timeout", "600s", "--socket"]).arg(socket).env_clear();
    let output = process.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().count()
}

#[test]
fn ten_thousand_rows_of_which_many_have_long_messages_are_shown_whole() {
    let directory = private_directory();
    let socket = directory.path().join("broker.sock");
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let listener = {
        let _entered = runtime.enter();
        UnixListener::bind(&socket).unwrap()
    };
    let incoming = UnixListenerStream::new(listener).filter(Result::is_ok);
    let server = tonic::transport::Server::builder()
        .add_service(CredentialBrokerServer::new(Large))
        .add_service(CredentialBrokerAdminServer::new(Large));
    runtime.spawn(server.serve_with_incoming(incoming));

    // The title, the header of the table, and an empty line after either part; each failure has its own line.
    assert_eq!(lines(&socket, &["status"]), ROWS + FAILING + 4);
    assert_eq!(lines(&socket, &["clusters"]), ROWS + 1);
    assert!(lines(&socket, &["status", "-o", "json"]) > ROWS);
    assert!(lines(&socket, &["kubeconfig", "fleet"]) > ROWS);
}
