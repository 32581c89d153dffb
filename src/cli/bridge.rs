//! `credbroker bridge`: a loopback port of a network without any other way out, whose connections go to a socket of the proxy.
//!
//! Every process of the network can use it with the rights of this one, so it refuses to run in the network of the proxy.

use std::{
    fs,
    io::{self, copy},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{Builder, sleep},
    time::Duration,
};

use serde::Deserialize;
use serde_json::{Value, json};

use anyhow::Context as _;
use clap::builder::ValueParser;
use credbroker_exec::{Failure, ProxyError, ask_proxy, proxy_socket};

use super::console::Console;

/// Connections at a time. One more is closed.
const MOST: usize = 512;
/// Bytes of the stack of a thread, of which each connection has two.
const STACK: usize = 64 * 1024;
const ANSWER: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_millis(100);
/// Permission denied.
const EX_NOPERM: u8 = 77;

/// Connect a network namespace without another network to a socket of the proxy
///
/// Copies the bytes of connections to a loopback port to the socket, and prints a kubeconfig without a user. Run it in the network
/// namespace of a sandbox. Every program in that namespace can use the port with the rights of the bridge, so it refuses to run
/// in the network namespace of the proxy. The proxy has a socket if `proxy.listen` is in its configuration.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  credbroker bridge --listen 127.0.0.1:0 > kubeconfig &
  credbroker bridge --listen 127.0.0.1:8001 --socket /run/proxy/proxy.sock")]
pub(super) struct BridgeArgs {
    /// Loopback address and port to listen on; with port 0, any free port
    #[arg(long, value_name = "ADDRESS", value_parser = ValueParser::new(loopback))]
    listen: SocketAddr,
    /// Socket of the proxy [default: $XDG_RUNTIME_DIR/credbroker-proxy/sandbox/proxy.sock if it exists and the user is not root,
    /// else /run/credbroker-proxy/sandbox/proxy.sock]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Run also in the network namespace of the proxy, where every user of the machine can use the port
    #[arg(long)]
    host_network: bool,
}

fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address = text.parse().ok().filter(|address: &SocketAddr| address.ip().is_loopback());
    address.ok_or_else(|| "expected a loopback address with a port, such as 127.0.0.1:0".to_owned())
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
pub(super) fn run(args: &BridgeArgs, console: &mut Console<'_>) -> anyhow::Result<u8> {
    let environment = (&console.environment.0).into();
    let is_root = || rustix::process::geteuid().is_root();
    let named = args.socket.as_deref().map(Path::as_os_str);
    let socket = proxy_socket(named, "sandbox/proxy.sock", &environment, is_root);
    let answer = ask_proxy(&socket, "GET", "/", ANSWER).map_err(Failure::from)?;
    let list: List =
        serde_json::from_str(&answer).map_err(|_other| Failure::from(ProxyError::Foreign(socket.clone())))?;
    let own = fs::read_link("/proc/self/ns/net").ok();
    let own = own.as_deref().and_then(Path::to_str);
    if !args.host_network && !is_apart(own, list.network.as_deref()) {
        writeln!(
            console.err,
            "credbroker: this is the network of the proxy, or it is not known whether it is: every program and every user of it could send requests as this one; run the bridge in a separate network namespace, or allow it with --host-network"
        )?;
        return Ok(EX_NOPERM);
    }
    if list.targets.is_empty() {
        let uid = rustix::process::geteuid().as_raw();
        anyhow::bail!(
            "the proxy has no target for uid {uid}: no access rule gives it the verb `proxy`, or no broker answers the proxy; see `credbroker status`"
        );
    }
    let cannot = || format!("cannot listen on {}", args.listen);
    let listener = TcpListener::bind(args.listen).with_context(cannot)?;
    let address = listener.local_addr().with_context(cannot)?;
    writeln!(console.out, "{}", kubeconfig(&list.targets, &format!("http://{address}")))?;
    console.out.flush()?;
    carry(&listener, &socket)
}

/// Whether two networks are certainly different ones.
fn is_apart(own: Option<&str>, other: Option<&str>) -> bool {
    own.zip(other).is_some_and(|(own, other)| own != other)
}

/// A kubeconfig without a user: the proxy knows who connects.
fn kubeconfig(targets: &[Target], server: &str) -> Value {
    // Without TLS there is no certificate to verify. JavaScript's client uses plain HTTP only with this.
    let cluster = |path| json!({"server": format!("{server}{path}"), "insecure-skip-tls-verify": true});
    let clusters =
        targets.iter().map(|Target { name, path }| json!({"name": name, "cluster": cluster(path)}));
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

fn carry(listener: &TcpListener, socket: &Path) -> ! {
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
        let cluster =
            json!({"server": "http://127.0.0.1:1/clusters/fleet/prod", "insecure-skip-tls-verify": true});
        assert_eq!(config["clusters"][0]["cluster"], cluster);
        assert_eq!(config["contexts"][0]["context"], json!({"cluster": "fleet/prod"}));
        assert_eq!(config["current-context"], "fleet/prod");
        assert!(config.get("users").is_none());
    }
}
