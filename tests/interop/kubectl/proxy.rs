//! A client that lives on: `kubectl proxy` is client-go with its own transport, cache and reaction to a 401.

use std::{
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use credbroker_test_support::{Accepts, ApiServer, Broker, FakePlugin, Kubeconfig};
use serde_json::json;

use super::{Kubectl, NO_KUBECTL, newest_api_version};
use crate::programs::{broker, shim_stanza};

/// A rejection of a credential younger than this starts no plugin run.
const MINIMUM_AGE: Duration = Duration::from_secs(10);
const BETWEEN_REQUESTS: Duration = Duration::from_millis(100);
/// For what takes a moment: the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn a_revoked_token_is_replaced_for_a_client_that_keeps_running() {
    let setup = Setup::start();
    let proxy = setup.proxy();
    assert_eq!(proxy.version(), 200);
    // Measured from after the run: the broker counts from its start.
    let issued = Instant::now();
    while issued.elapsed() < MINIMUM_AGE {
        assert_eq!(proxy.version(), 200);
        sleep(BETWEEN_REQUESTS);
    }
    assert_eq!(setup.plugin.runs(), 1);

    setup.rotate();
    // client-go shows the 401 that it learns from, and has the new token before it does.
    assert_eq!([proxy.version(), proxy.version(), proxy.version()], [401, 200, 200]);
    assert_eq!(setup.plugin.runs(), 2);
    assert_eq!(setup.last_token(), "token-2");
}

/// The worst case: every request runs the shim again, and the plugin is spared until its token has the age.
#[test]
fn a_token_revoked_at_once_is_replaced_by_one_run_when_it_is_old_enough() {
    let setup = Setup::start();
    let proxy = setup.proxy();
    let before = Instant::now();
    assert_eq!(proxy.version(), 200);
    setup.rotate();
    let revoked = Instant::now();
    let mut refused = 0;
    while proxy.version() != 200 {
        refused += 1;
        assert!(revoked.elapsed() < PATIENCE, "{refused} requests were refused");
        sleep(BETWEEN_REQUESTS);
    }
    println!("healed after {:?} and {refused} requests", revoked.elapsed());
    assert!(before.elapsed() >= MINIMUM_AGE, "a young token is not asked for again: {:?}", before.elapsed());
    assert_eq!(setup.plugin.runs(), 2);
    assert_eq!(setup.last_token(), "token-2");
}

struct Setup {
    server: ApiServer,
    plugin: FakePlugin,
    kubectl: Kubectl,
    kubeconfig: PathBuf,
    _broker: Broker,
}

impl Setup {
    fn start() -> Self {
        let server = ApiServer::start(Accepts::Tokens);
        server.accept_token("token-1");
        let plugin = FakePlugin::builder().token_per_run().expires_in(3600).build();
        let broker = Broker::builder(broker())
            .providers(&json!([{"name": "corp", "execConfig": plugin.exec_stanza()}]))
            .start();
        let kubectl = Kubectl::new();
        let kubeconfig = kubectl.dir().join("config");
        let stanza = shim_stanza(newest_api_version(), "corp", &broker.socket());
        Kubeconfig::for_server(&server, "prod", &stanza).write(&kubeconfig);
        Self { server, plugin, kubectl, kubeconfig, _broker: broker }
    }

    fn proxy(&self) -> Proxy {
        Proxy::start(&self.kubectl, &self.kubeconfig)
    }

    /// From now on the server knows the plugin's second token only.
    fn rotate(&self) {
        self.server.accept_token("token-2");
        self.server.revoke_token("token-1");
    }

    fn last_token(&self) -> String {
        self.server.requests().last().unwrap().token.clone().unwrap()
    }
}

/// `kubectl proxy`; killed when dropped.
pub(crate) struct Proxy {
    child: Child,
    socket: PathBuf,
}

impl Proxy {
    pub(crate) fn start(kubectl: &Kubectl, kubeconfig: &Path) -> Self {
        Self::with(kubectl, kubeconfig, &[])
    }

    pub(crate) fn with(kubectl: &Kubectl, kubeconfig: &Path, more: &[&str]) -> Self {
        let socket = kubectl.dir().join("proxy.sock");
        let address = format!("--unix-socket={}", socket.display());
        let mut command = kubectl.command(kubeconfig, &[&["proxy", &*address], more].concat());
        let child = command.stdout(Stdio::null()).spawn().expect(NO_KUBECTL);
        let mut proxy = Self { child, socket };
        let started = Instant::now();
        while UnixStream::connect(&proxy.socket).is_err() {
            assert_eq!(proxy.child.try_wait().unwrap(), None, "kubectl proxy ended");
            assert!(started.elapsed() < PATIENCE, "kubectl proxy does not listen");
            sleep(Duration::from_millis(10));
        }
        proxy
    }

    /// The status of `GET /version` through the proxy.
    pub(crate) fn version(&self) -> u16 {
        status_of_get(&self.socket, "/version")
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn status_of_get(socket: &Path, path: &str) -> u16 {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3));
    status.and_then(|code| code.parse().ok()).unwrap_or_else(|| panic!("no answer of HTTP: {answer}"))
}
