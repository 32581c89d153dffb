//! The bridge: a loopback port of a network without any other way out, whose connections go to a socket of the proxy.
//!
//! Every process of the network can use it with the rights of this one, so it refuses to run in the network of the proxy.

use std::{
    fs,
    io::{self, copy},
    net::{Shutdown, TcpListener, TcpStream},
    os::unix::net::UnixStream,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{Builder, sleep},
    time::Duration,
};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    arguments::BridgeArguments,
    edges::Edges,
    failure::Failure,
    proxy::{request, socket},
};

/// Connections at a time. One more is closed.
const MOST: usize = 512;
/// Bytes of the stack of a thread, of which each connection has two.
const STACK: usize = 64 * 1024;
const ANSWER: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_millis(100);

/// Why there is no bridge.
#[derive(Debug, thiserror::Error)]
pub enum BridgeError {
    /// It cannot listen.
    #[error("cannot listen on {0}")]
    Listen(std::net::SocketAddr, #[source] io::Error),
    /// Other programs of the machine could use it.
    #[error(
        "this is the network of the proxy, or it is not known whether it is: every program and every user of it could send requests as this one; run the bridge in a network namespace of its own, or allow it with --host-network"
    )]
    Network,
}

/// What the proxy says about itself.
#[derive(Deserialize)]
struct List {
    targets: Vec<Target>,
    network: Option<String>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    path: String,
}

/// Listens, prints a kubeconfig, and copies bytes for as long as the process runs.
pub(crate) fn run(arguments: &BridgeArguments, edges: &mut Edges) -> Failure {
    match start(arguments, edges) {
        Ok((listener, socket)) => carry(&listener, &socket),
        Err(failure) => failure,
    }
}

fn start(arguments: &BridgeArguments, edges: &mut Edges) -> Result<(TcpListener, PathBuf), Failure> {
    let BridgeArguments { listen, socket: named, host_network } = arguments;
    let socket = socket(named.as_deref(), "sandbox/proxy.sock", &edges.environment, edges.is_root);
    let list: List = request(&socket, "GET", "/", ANSWER)?;
    let own = fs::read_link("/proc/self/ns/net").ok();
    let own = own.as_deref().and_then(|network| network.to_str());
    if !host_network && !is_apart(own, list.network.as_deref()) {
        return Err(BridgeError::Network.into());
    }
    let cannot = |error| BridgeError::Listen(*listen, error);
    let listener = TcpListener::bind(listen).map_err(cannot)?;
    let address = listener.local_addr().map_err(cannot)?;
    let line = format!("{}\n", kubeconfig(&list.targets, &format!("http://{address}")));
    edges.print(&line).map_err(|error| Failure::Output(Arc::new(error)))?;
    Ok((listener, socket))
}

/// Whether two networks are certainly different ones.
fn is_apart(own: Option<&str>, other: Option<&str>) -> bool {
    own.zip(other).is_some_and(|(own, other)| own != other)
}

/// A kubeconfig without a user: the proxy knows who connects.
fn kubeconfig(targets: &[Target], server: &str) -> Value {
    let clusters = targets
        .iter()
        .map(|Target { name, path }| json!({"name": name, "cluster": {"server": format!("{server}{path}")}}));
    let contexts =
        targets.iter().map(|Target { name, .. }| json!({"name": name, "context": {"cluster": name}}));
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": clusters.collect::<Vec<_>>(),
        "contexts": contexts.collect::<Vec<_>>(),
        "current-context": targets.first().map(|target| &target.name),
    })
}

fn carry(listener: &TcpListener, socket: &PathBuf) -> Failure {
    let open = Arc::new(AtomicUsize::new(0));
    loop {
        match listener.accept() {
            Ok((client, _)) if open.load(Ordering::Relaxed) < MOST => {
                // The proxy is restarting, or the machine has no thread: the client tries again.
                if let Ok(proxy) = UnixStream::connect(socket) {
                    drop(join(client, proxy, &open));
                }
            }
            Ok(_one_too_many) => {}
            // Without descriptors, an immediate retry would only use CPU time.
            Err(_) => sleep(PAUSE),
        }
    }
}

/// Copies in both directions, each until its end, which the other side then sees.
fn join(client: TcpStream, proxy: UnixStream, open: &Arc<AtomicUsize>) -> io::Result<()> {
    client.set_nodelay(true)?;
    let (mut from_client, mut to_proxy) = (client.try_clone()?, proxy.try_clone()?);
    let (mut from_proxy, mut to_client) = (proxy, client);
    let counted = Counted::new(open);
    let other = counted.clone();
    let thread = || Builder::new().stack_size(STACK);
    thread().spawn(move || {
        let _counted = counted;
        drop(copy(&mut from_client, &mut to_proxy));
        drop(to_proxy.shutdown(Shutdown::Write));
    })?;
    thread().spawn(move || {
        let _counted = other;
        drop(copy(&mut from_proxy, &mut to_client));
        drop(to_client.shutdown(Shutdown::Both));
    })?;
    Ok(())
}

/// A connection among those that are open, until the last clone is dropped.
#[derive(Clone)]
struct Counted(#[expect(dead_code, reason = "dropping it ends the count")] Arc<One>);

struct One(Arc<AtomicUsize>);

impl Counted {
    fn new(open: &Arc<AtomicUsize>) -> Self {
        open.fetch_add(1, Ordering::Relaxed);
        Self(Arc::new(One(Arc::clone(open))))
    }
}

impl Drop for One {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl From<BridgeError> for Failure {
    fn from(error: BridgeError) -> Self {
        Self::Bridge(Arc::new(error))
    }
}

impl BridgeError {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Listen(..) => 1,
            Self::Network => 77,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_network_that_is_certainly_another_one_is_apart() {
        assert!(is_apart(Some("net:[1]"), Some("net:[2]")));
        assert!(!is_apart(Some("net:[1]"), Some("net:[1]")));
        assert!(
            !is_apart(None, Some("net:[1]")) && !is_apart(Some("net:[1]"), None) && !is_apart(None, None)
        );
    }

    #[test]
    fn a_kubeconfig_names_each_target_and_no_user() {
        let target = Target { name: "fleet/prod".into(), path: "/clusters/fleet/prod".into() };
        let config = kubeconfig(&[target], "http://127.0.0.1:1");
        assert_eq!(config["clusters"][0]["cluster"]["server"], "http://127.0.0.1:1/clusters/fleet/prod");
        assert_eq!(config["contexts"][0]["context"], json!({"cluster": "fleet/prod"}));
        assert_eq!(config["current-context"], "fleet/prod");
        assert!(config.get("users").is_none());
    }
}
