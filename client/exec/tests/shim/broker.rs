//! A broker on a socket in a private directory, on a separate thread.

use std::{
    fs,
    os::unix::{fs::PermissionsExt, net::UnixListener},
    path::{Path, PathBuf},
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    thread,
};

use credbroker_proto::v1::{
    AttendCredentialRequest, AttendCredentialResponse, Credential, GetCredentialRequest,
    GetCredentialResponse,
    credential_broker_server::{CredentialBroker, CredentialBrokerServer},
};
use credbroker_test_support::private_directory;
use tempfile::TempDir;
use tokio::{
    net, runtime,
    sync::{Notify, oneshot},
};
use tonic::{
    Request, Response, Status,
    codegen::{
        BoxStream,
        tokio_stream::{self, Stream},
    },
    transport::Server,
};

/// How the broker answers every request.
#[derive(Clone)]
pub(crate) enum Answer {
    Say(Result<Credential, Status>),
    Never,
    /// With the first token when the caller attends; that call is answered at once with the second, without a run.
    Attended(&'static str, &'static str),
}

impl Answer {
    pub(crate) fn token(token: &str) -> Self {
        Self::Say(Ok(credential(token)))
    }
}

fn credential(token: &str) -> Credential {
    Credential { token: Some(token.to_owned()), ..Credential::default() }
}

pub(crate) struct Broker {
    pub(crate) directory: TempDir,
    requests: Arc<Mutex<Vec<GetCredentialRequest>>>,
    /// The `grpc-timeout` of each request.
    timeouts: Arc<Mutex<Vec<String>>>,
    /// Ends the broker when it is dropped.
    stop: Option<oneshot::Sender<()>>,
}

impl Broker {
    /// A directory for a broker that has not started.
    pub(crate) fn absent() -> Self {
        Self {
            directory: private_directory(),
            requests: Arc::default(),
            timeouts: Arc::default(),
            stop: None,
        }
    }

    pub(crate) fn answering(answer: Answer) -> Self {
        let mut broker = Self::absent();
        broker.start(answer);
        broker
    }

    pub(crate) fn with_token(token: &str) -> Self {
        Self::answering(Answer::token(token))
    }

    pub(crate) fn failing(status: Status) -> Self {
        Self::answering(Answer::Say(Err(status)))
    }

    /// Starts the broker. It listens when this function returns.
    pub(crate) fn start(&mut self, answer: Answer) {
        let listener = UnixListener::bind(self.socket()).unwrap();
        self.serve(listener, answer);
    }

    /// Answers on a socket that listens already.
    pub(crate) fn serve(&mut self, listener: UnixListener, answer: Answer) {
        let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
        listener.set_nonblocking(true).unwrap();
        let listener = {
            let _entered = runtime.enter();
            net::UnixListener::from_std(listener).unwrap()
        };
        let (requests, timeouts) = (Arc::clone(&self.requests), Arc::clone(&self.timeouts));
        let service = Service { answer, requests, timeouts, attended: Notify::new() };
        let (stop, stopped) = oneshot::channel();
        self.stop = Some(stop);
        thread::spawn(move || {
            let server = Server::builder().add_service(CredentialBrokerServer::new(service));
            let serving = server.serve_with_incoming(Incoming(listener));
            runtime.block_on(async {
                tokio::select! { _ = serving => {}, _ = stopped => {} }
            });
        });
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("credbroker.sock")
    }

    pub(crate) fn requests(&self) -> Vec<GetCredentialRequest> {
        self.requests.lock().unwrap().clone()
    }

    pub(crate) fn timeouts(&self) -> Vec<String> {
        self.timeouts.lock().unwrap().clone()
    }

    /// The only request so far.
    pub(crate) fn request(&self) -> GetCredentialRequest {
        let requests = self.requests();
        assert_eq!(requests.len(), 1, "{requests:?}");
        requests.into_iter().next().unwrap()
    }
}

pub(crate) fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

struct Service {
    answer: Answer,
    requests: Arc<Mutex<Vec<GetCredentialRequest>>>,
    timeouts: Arc<Mutex<Vec<String>>>,
    attended: Notify,
}

#[tonic::async_trait]
impl CredentialBroker for Service {
    async fn get_credential(
        &self,
        request: Request<GetCredentialRequest>,
    ) -> Result<Response<GetCredentialResponse>, Status> {
        let timeout = request.metadata().get("grpc-timeout").map(|value| value.to_str().unwrap().to_owned());
        self.timeouts.lock().unwrap().extend(timeout);
        self.requests.lock().unwrap().push(request.into_inner());
        match self.answer.clone() {
            Answer::Say(said) => said.map(|credential| {
                Response::new(GetCredentialResponse { credential: Some(credential), cluster: None })
            }),
            Answer::Never => std::future::pending().await,
            Answer::Attended(token, _) => {
                self.attended.notified().await;
                let credential = Some(credential(token));
                Ok(Response::new(GetCredentialResponse { credential, cluster: None }))
            }
        }
    }

    async fn attend_credential(
        &self,
        _: Request<AttendCredentialRequest>,
    ) -> Result<Response<BoxStream<AttendCredentialResponse>>, Status> {
        let Answer::Attended(_, token) = self.answer else { return Err(Status::unimplemented("no")) };
        self.attended.notify_one();
        let credential = Some(credential(token));
        let answer = AttendCredentialResponse { credential, ..AttendCredentialResponse::default() };
        Ok(Response::new(Box::pin(tokio_stream::once(Ok(answer)))))
    }
}

struct Incoming(net::UnixListener);

impl Stream for Incoming {
    type Item = std::io::Result<net::UnixStream>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_accept(context).map(|accepted| Some(accepted.map(|(stream, _)| stream)))
    }
}
