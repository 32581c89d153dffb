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

use credbroker_proto::{
    v1::{
        Credential, GetCredentialRequest, GetCredentialResponse,
        credential_broker_server::{CredentialBroker, CredentialBrokerServer},
        credential_ref::Source,
    },
    v1alpha1::{
        AttendCredentialRequest, AttendCredentialResponse, DepositOutputRequest, DepositOutputResponse,
        Lease,
        attend_credential_response::Event,
        credential_broker_login_server::{CredentialBrokerLogin, CredentialBrokerLoginServer},
    },
};
use credbroker_test_support::private_directory;
use tempfile::TempDir;
use tokio::{
    net, runtime,
    sync::{Notify, mpsc, oneshot},
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
    /// With the first token when the caller attends; that call is answered immediately with the second, without a run.
    Attended(&'static str, &'static str),
    /// The plugin needs a terminal: its command is this, for every caller that attends, also for one that must not run it.
    /// Then with the output that the caller brings. Provider `slow` gets no answer without attending.
    Leased(Vec<Vec<u8>>),
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
    /// `can_run_plugin` of each caller that attended.
    pub(crate) lenders: Arc<Mutex<Vec<bool>>>,
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
            lenders: Arc::default(),
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
        let lenders = Arc::clone(&self.lenders);
        let (attended, attending) = (Notify::new(), Mutex::default());
        let service = Arc::new(Service { answer, requests, timeouts, lenders, attended, attending });
        let (stop, stopped) = oneshot::channel();
        self.stop = Some(stop);
        thread::spawn(move || {
            let server = Server::builder()
                .add_service(CredentialBrokerLoginServer::from_arc(Arc::clone(&service)))
                .add_service(CredentialBrokerServer::from_arc(service));
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
    lenders: Arc<Mutex<Vec<bool>>>,
    attended: Notify,
    /// Sends to the caller that attends.
    attending: Mutex<Option<mpsc::UnboundedSender<Result<AttendCredentialResponse, Status>>>>,
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
                Response::new(GetCredentialResponse { credential: Some(credential), ..Default::default() })
            }),
            Answer::Leased(_) if !self.is_slow() => Err(needs_terminal()),
            Answer::Never | Answer::Leased(_) => std::future::pending().await,
            Answer::Attended(token, _) => {
                self.attended.notified().await;
                let credential = Some(credential(token));
                Ok(Response::new(GetCredentialResponse { credential, ..Default::default() }))
            }
        }
    }
}

#[tonic::async_trait]
impl CredentialBrokerLogin for Service {
    async fn attend_credential(
        &self,
        request: Request<AttendCredentialRequest>,
    ) -> Result<Response<BoxStream<AttendCredentialResponse>>, Status> {
        if let Answer::Leased(command) = &self.answer {
            let can_run_plugin = request.into_inner().can_run_plugin;
            self.lenders.lock().unwrap().push(can_run_plugin);
            let environment = vec![b"A=b".to_vec()];
            let lease = Lease { id: 7, command: command.clone(), environment };
            let (sender, receiver) = mpsc::unbounded_channel();
            sender.send(Ok(AttendCredentialResponse { event: Some(Event::Lease(lease)) })).unwrap();
            *self.attending.lock().unwrap() = Some(sender);
            return Ok(Response::new(Box::pin(Messages(receiver))));
        }
        let Answer::Attended(_, token) = self.answer else { return Err(Status::unimplemented("no")) };
        self.attended.notify_one();
        Ok(Response::new(Box::pin(tokio_stream::once(Ok(attended(token))))))
    }

    async fn deposit_output(
        &self,
        request: Request<DepositOutputRequest>,
    ) -> Result<Response<DepositOutputResponse>, Status> {
        let DepositOutputRequest { lease_id, stdout, exit_code } = request.into_inner();
        let token = format!("{lease_id} {exit_code} {}", String::from_utf8(stdout).unwrap());
        self.attending.lock().unwrap().take().unwrap().send(Ok(attended(&token))).unwrap();
        Ok(Response::new(DepositOutputResponse {}))
    }
}

impl Service {
    fn is_slow(&self) -> bool {
        let requests = self.requests.lock().unwrap();
        let source = requests.last().and_then(|request| request.r#ref.clone()?.source);
        matches!(source, Some(Source::Provider(provider)) if provider.name == "slow")
    }
}

fn attended(token: &str) -> AttendCredentialResponse {
    let answer = GetCredentialResponse { credential: Some(credential(token)), ..Default::default() };
    AttendCredentialResponse { event: Some(Event::Credential(answer)) }
}

fn needs_terminal() -> Status {
    Status::failed_precondition("its plugin reads from a terminal (INTERACTION_REQUIRED)")
}

struct Messages(mpsc::UnboundedReceiver<Result<AttendCredentialResponse, Status>>);

impl Stream for Messages {
    type Item = Result<AttendCredentialResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context)
    }
}

struct Incoming(net::UnixListener);

impl Stream for Incoming {
    type Item = std::io::Result<net::UnixStream>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_accept(context).map(|accepted| Some(accepted.map(|(stream, _)| stream)))
    }
}
