//! The broker in this process: the production wiring on a private socket, with real plugins.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    path::PathBuf,
    process::Child,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use credbroker::app::{self, ConfigPlace, Daemon as _, Drained, Edges, Inherited, Listening, ProxyOptions};
use credbroker_client::{Client, Credential, CredentialRef, Error, HubState, Socket};
use credbroker_config as config;
use credbroker_observe::clock::{Clock, Now, SystemClock};
use credbroker_plugin::Environment;
use credbroker_proto::v1 as pb;
use credbroker_server::ReloadState;
use credbroker_test_support::{FakePlugin, private_directory, private_file};
use credbroker_uds_server::SocketOptions;
use hyper_util::rt::TokioIo;
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{net::UnixStream, sync::watch, task::JoinHandle};
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint};
use tonic_types::StatusExt as _;

/// A broker that serves until it is stopped or dropped.
pub(crate) struct InProcess {
    directory: TempDir,
    stop: CancellationToken,
    reload: Arc<tokio::sync::Notify>,
    /// Which configuration is active.
    pub(crate) configuration: watch::Receiver<Arc<ReloadState>>,
    /// The task whose end ended it, and how it drained.
    served: JoinHandle<(Option<&'static str>, Drained)>,
}

/// A process that is killed at the end of the test, even if it fails.
pub(crate) struct Killed(pub(crate) Child);

impl Drop for Killed {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// The real clocks, and how many seconds they were put ahead.
#[derive(Debug, Default)]
pub(crate) struct Ahead(AtomicU64);

impl Ahead {
    pub(crate) fn put(&self, secs: u64) {
        self.0.fetch_add(secs, Ordering::SeqCst);
    }
}

impl Clock for Ahead {
    fn now(&self) -> Now {
        let (now, ahead) = (SystemClock.now(), Duration::from_secs(self.0.load(Ordering::SeqCst)));
        Now { wall: now.wall + ahead, boot: now.boot + ahead }
    }
}

fn is_silence(error: &Error) -> bool {
    let Error::Unreachable { source, .. } = error else { return false };
    source.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::TimedOut)
}

/// The provider `name` that runs `plugin`.
pub(crate) fn provider(name: &str, plugin: &FakePlugin) -> Value {
    let mut stanza = plugin.exec_stanza();
    stanza["provideClusterInfo"] = json!(false);
    json!({"name": name, "execConfig": stanza})
}

impl InProcess {
    /// A broker of `providers`, with nothing but `PATH` in its environment.
    pub(crate) fn start(providers: impl Into<Value>) -> Self {
        Self::with(json!({"providers": providers.into()}), &[])
    }

    /// A broker whose provider is never requested.
    pub(crate) fn idle() -> Self {
        let stanza = json!({
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "/bin/false",
            "interactiveMode": "Never",
        });
        Self::start(json!([{"name": "idle", "execConfig": stanza}]))
    }

    /// A broker of this configuration, to which apiVersion and kind are added, with `variables` in its environment.
    pub(crate) fn with(sections: Value, variables: &[(&str, &str)]) -> Self {
        Self::with_clock(sections, variables, Arc::new(SystemClock))
    }

    /// The same by another clock.
    pub(crate) fn with_clock(mut sections: Value, variables: &[(&str, &str)], clock: Arc<dyn Clock>) -> Self {
        sections["apiVersion"] = json!("credbroker.io/v1alpha1");
        sections["kind"] = json!("BrokerConfig");
        let directory = private_directory();
        let file = directory.path().join("config.yaml");
        private_file(&file, &sections.to_string());
        let mut environment = BTreeMap::from([(OsString::from("PATH"), std::env::var_os("PATH").unwrap())]);
        environment.extend(variables.iter().map(|(name, value)| (name.into(), value.into())));
        let environment = Environment(environment);
        let loaded = config::load(Some(&file), &environment).unwrap();

        let path = directory.path().join("run/credbroker.sock");
        let options = SocketOptions { path, mode: 0o600, group: None, shared_directory: false };
        let scratch = directory.path().to_owned();
        let launcher = env!("CARGO_BIN_EXE_credbroker").into();
        let system = Edges::system(&environment);
        let proxy = loaded.config.proxy.clone();
        let proxy = proxy.map(|section| ProxyOptions::new(Some(section), &environment, Inherited::default()));
        let place = ConfigPlace { flag: Some(file), environment: Arc::new(environment) };
        let follow = Some((place, loaded.sources));
        let edges = Edges { clock, jitter: || 0.5, scratch, launcher, follow, proxy, ..system };
        let mut bound = app::build(loaded.config, vec![Listening::at(options)], edges).unwrap();
        let (reload, configuration) = (bound.reload_request(), bound.configuration());
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let served = tokio::spawn(async move {
            let ended = tokio::select! {
                task = bound.serve() => Some(task),
                () = stopped.cancelled() => None,
            };
            (ended, bound.drain().await)
        });
        Self { directory, stop, reload, configuration, served }
    }

    /// A plain channel of tonic, which other programs use.
    pub(crate) async fn channel(&self) -> Channel {
        let path = self.socket();
        let connect = tower::service_fn(move |_| {
            let path = path.clone();
            async move { Ok::<_, std::io::Error>(TokioIo::new(UnixStream::connect(path).await?)) }
        });
        Endpoint::from_static("http://localhost").connect_with_connector(connect).await.unwrap()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("run/credbroker.sock")
    }

    /// A broker on this thread is silent for the five seconds of an attempt if other tests keep the processors for as long.
    pub(crate) async fn client(&self) -> Client {
        let socket = Socket::at(self.socket());
        let connected = async {
            loop {
                match Client::connect(&socket).await {
                    Err(error) if is_silence(&error) => {}
                    answer => return answer.unwrap(),
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(60), connected).await.expect("a connection")
    }

    /// Requests `provider` on a separate connection.
    pub(crate) async fn get(&self, provider: &str) -> Result<Credential, Error> {
        self.get_with(provider, None, &[]).await
    }

    /// The same with what a caller may send along.
    pub(crate) async fn get_with(
        &self,
        provider: &str,
        cluster: Option<pb::Cluster>,
        variables: &[(&str, &str)],
    ) -> Result<Credential, Error> {
        self.client().await.credential(&reference(provider, cluster, variables)).await
    }

    /// Changes the configuration to this one, to which apiVersion and kind are added.
    pub(crate) fn configure(&self, mut sections: Value) {
        sections["apiVersion"] = json!("credbroker.io/v1alpha1");
        sections["kind"] = json!("BrokerConfig");
        std::fs::write(self.directory.path().join("config.yaml"), sections.to_string()).unwrap();
    }

    /// Activates this configuration.
    pub(crate) async fn reconfigure(&self, sections: Value) {
        let mut states = self.configuration.clone();
        let before = states.borrow_and_update().reloads;
        self.configure(sections);
        self.reload();
        let changed = states.wait_for(|state| state.reloads > before);
        tokio::time::timeout(Duration::from_secs(60), changed).await.expect("a reload").unwrap();
    }

    /// Asks for a reload as SIGHUP would.
    pub(crate) fn reload(&self) {
        self.reload.notify_one();
    }

    /// Drains as SIGTERM would.
    pub(crate) async fn stop(self) -> Drained {
        self.stop.cancel();
        let (ended, drained) = self.served.await.unwrap();
        assert_eq!(ended, None, "it serves until it drains");
        drained
    }

    /// The task whose end ends it.
    pub(crate) async fn ended(self) -> &'static str {
        let ended = tokio::time::timeout(Duration::from_secs(60), self.served).await.expect("it ends");
        ended.unwrap().0.expect("it was not stopped")
    }
}

/// The same of the client library's state.
pub(crate) fn problem_of(hub: &HubState) -> &str {
    hub.failure.as_ref().map_or("", |failure| &failure.message)
}

/// Why the hub cannot be read; empty: it can.
pub(crate) fn problem(hub: &pb::HubState) -> &str {
    hub.failure.as_ref().map_or("", |failure| &failure.message)
}

/// The same for the client library.
pub(crate) fn reference(
    provider: &str,
    cluster: Option<pb::Cluster>,
    variables: &[(&str, &str)],
) -> CredentialRef {
    request(provider, cluster, variables).r#ref.unwrap().into()
}

/// The bearer token.
pub(crate) fn token(credential: &Credential) -> &str {
    credential.token().unwrap().expose_secret()
}

pub(crate) fn request(
    provider: &str,
    cluster: Option<pb::Cluster>,
    variables: &[(&str, &str)],
) -> pb::GetCredentialRequest {
    let provider = pb::ProviderRef { name: provider.to_owned(), definition: None };
    let source = Some(pb::credential_ref::Source::Provider(provider));
    let env = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let reference = Some(pb::CredentialRef { source, cluster, env, ..Default::default() });
    pb::GetCredentialRequest { r#ref: reference, ..Default::default() }
}

/// The reason in the details of an error.
pub(crate) fn reason(status: &tonic::Status) -> Option<credbroker_proto::Reason> {
    credbroker_proto::Reason::from_name(&status.get_details_error_info()?.reason)
}
