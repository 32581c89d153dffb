//! The proxy: apart, as `credbroker proxy`, or in the process of the broker.

use std::{
    mem::take,
    net::{SocketAddr, TcpListener as StdTcpListener},
    os::unix::net::UnixListener as StdUnixListener,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Context as _, bail};
use credbroker_client::Broker;
use credbroker_config::{AuditTo, Config, Listen, ProxySection, ProxyTls};
use credbroker_observe::{
    audit::Audit,
    clock::{Beat, Clock},
    metrics::Proxied,
};
use credbroker_plugin::{ContextId, Environment, ProviderUpdate, Providers, access::Policy};
use credbroker_proxy::{
    AUTHORITY, HANDLES, Keys, ListenerParts, Listeners, Observed, Options, PolicyRights, Port, PortOptions,
    Proxy, Rights,
};
use credbroker_runner::ProcessRunner;
use credbroker_server::{Monitor, MonitorParts, ReloadState, WriteMetrics, principal};
use credbroker_uds_server::{Keeper, Limits, SocketError};
use futures_util::FutureExt as _;
use rustix::process::geteuid;
use tokio::{
    net::TcpListener,
    sync::{Notify, watch},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::info;

use super::{
    NotifyState,
    build::{Daemon, Drained, Essentials, GRACE, audit, end_records, run, withdraw},
    edges::Edges,
    reload::{Adopt, Adopted, Follower},
    sockets::{Listening, OpenSocket, SocketSource, reach, serve_metrics, socket_options},
    systemd::{Inherited, notify},
};

/// Bytes of one connection in the account of its peer. Places are divided by the number of connections alone.
const CONNECTION: usize = 64 * 1024;
/// The socket of a listener without a path, in the directory of the proxy. Its own directory has nothing else, because
/// containers mount it.
pub const PROXY_SOCKET: &str = "sandbox/proxy.sock";

/// How a proxy is started.
#[derive(Debug)]
pub struct ProxyOptions {
    /// Where it listens.
    pub section: ProxySection,
    /// The directory of its keys.
    pub directory: PathBuf,
    /// Its sockets that systemd holds.
    pub inherited: Inherited,
}

impl ProxyOptions {
    /// What `config` says, or the defaults.
    pub fn new(section: Option<ProxySection>, environment: &Environment, inherited: Inherited) -> Self {
        let section = section.unwrap_or_default();
        let of_systemd =
            environment.set("RUNTIME_DIRECTORY").map(Path::new).filter(|path| path.is_absolute());
        let of_systemd = of_systemd.filter(|_| section.directory.is_none()).map(Path::to_owned);
        let directory = of_systemd.unwrap_or_else(|| section.directory(environment, geteuid().is_root()));
        Self { section, directory, inherited }
    }
}

/// What a proxy needs of its process.
pub(super) struct ProxyParts {
    pub(super) options: ProxyOptions,
    pub(super) broker: Broker,
    /// The active access rules.
    pub(super) policies: watch::Receiver<Arc<Policy>>,
    /// The active providers.
    pub(super) providers: Box<dyn Fn() -> Arc<Providers> + Send + Sync>,
    /// The most connections.
    pub(super) connections: usize,
    pub(super) audit: Audit,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) beat: Beat,
    pub(super) tasks: TaskTracker,
    pub(super) draining: CancellationToken,
}

/// A proxy whose tasks run.
#[derive(Debug)]
pub(super) struct RunningProxy {
    proxy: Arc<Proxy>,
    counts: Arc<Proxied>,
    sockets: Vec<OpenSocket>,
    closing: CancellationToken,
}

impl RunningProxy {
    /// Ends what is in progress without a loss.
    pub(super) async fn drain(&self) {
        self.proxy.drain(&self.closing).await;
    }

    /// Writes the metrics.
    pub(super) fn metrics(&self) -> WriteMetrics {
        let (proxy, counts) = (Arc::clone(&self.proxy), Arc::clone(&self.counts));
        Box::new(move |to| counts.write(to, proxy.open_requests() as u64))
    }

    /// Those of the sockets that have names.
    pub(super) fn keepers(&self) -> impl Iterator<Item = Keeper> {
        self.sockets.iter().filter_map(|socket| socket.keeper.clone())
    }
}

/// Listens, and returns the tasks without which the proxy cannot go on. Must be called within a tokio runtime.
pub(super) fn start(parts: ProxyParts) -> anyhow::Result<(RunningProxy, Essentials)> {
    let ProxyParts { options, broker, policies, providers, connections, audit, .. } = parts;
    let ProxyParts { clock, beat, tasks, draining, .. } = parts;
    let ProxyOptions { section, directory, mut inherited } = options;
    let keys = section.tls.map(|_| Keys::open(&directory)).transpose()?;
    let rights = PolicyRights::new(
        policies,
        Box::new(move |name, digest| {
            let id = ContextId { name: name.into(), digest: digest.into() };
            providers().context(&id).ok().map(|context| Arc::clone(&context.user))
        }),
    );
    let counts = Arc::<Proxied>::default();
    let records = Arc::new(Observed { audit, counts: Arc::clone(&counts) });
    let options = Options { clock: Arc::clone(&clock), records, ..Options::default() };
    let proxy = Proxy::new(broker, Arc::clone(&rights) as Arc<dyn Rights>, options);
    let (accepting, closing) = (tasks.clone(), CancellationToken::new());
    let listeners = Listeners::new(ListenerParts {
        serve: Arc::clone(&proxy),
        identify: principal,
        limits: Limits { connections, bytes: connections.saturating_mul(CONNECTION), runs: 0 },
        clock,
        tasks,
        draining,
        closing: closing.clone(),
    });
    let mut essentials = Essentials::new();
    essentials.push(("proxy's access rules", async move { rights.follow().await }.boxed()));

    let handles = take_named(&mut inherited.unix, |_, path| path.is_some_and(|path| path.ends_with(HANDLES)));
    let mut open = Vec::new();
    for (listener, listen) in section.sockets.iter().enumerate() {
        let is_only = section.sockets.len() == 1;
        let passed = take_named(&mut inherited.unix, |name, _| name == listen.name || is_only);
        let socket = open_socket(listener, listen, &directory.join(PROXY_SOCKET), passed)?;
        let (served, newest) = (Arc::clone(&listeners), socket.newest.subscribe());
        essentials
            .push(("proxy's accept loop", served.serve_socket(listen.name.as_str().into(), newest).boxed()));
        open.push(socket);
    }
    if let (Some(tls), Some(keys)) = (section.tls, keys) {
        let ProxyTls { listen, handle_lifetime, require_uid } = tls;
        let name = ProxyTls::NAME.into();
        let port = listeners.port(PortOptions { name, keys, handle_lifetime, require_uid })?;
        // Who may have a handle is decided for each.
        let for_all = Listen { mode: 0o666, ..Listen::default() };
        let socket = open_socket(section.sockets.len(), &for_all, &directory.join(HANDLES), handles)?;
        let (served, newest) = (Arc::clone(&listeners), socket.newest.subscribe());
        essentials.push(("proxy's handles", served.serve_handles(Arc::clone(&port), newest).boxed()));
        open.push(socket);
        serve_port(&listeners, &port, listen, take(&mut inherited.tcp), &accepting, &mut essentials)?;
        info!("the authority of the proxy is {}", directory.join(AUTHORITY).display());
    } else if handles.is_some() || !inherited.tcp.is_empty() {
        bail!(
            "systemd passed the port or the socket for handles, and the proxy has no port; add `tls: {{}}` to `proxy`"
        );
    }
    if let Some((name, _)) = inherited.unix.first() {
        bail!("systemd passed a socket with the name `{name}`, which no listener of `proxy.listen` has");
    }
    for socket in &open {
        if let Some(keeper) = socket.keeper.clone() {
            let newest = socket.newest.clone();
            let kept = async move { keeper.run(&newest, |period| beat.next(period), || false).await };
            essentials.push(("proxy's socket watcher", kept.boxed()));
        }
    }
    Ok((RunningProxy { proxy, counts, sockets: open, closing }, essentials))
}

/// The first of `sockets` that is meant, by its name of systemd's and by its path.
fn take_named(
    sockets: &mut Vec<(String, StdUnixListener)>,
    is_meant: impl Fn(&str, Option<&Path>) -> bool,
) -> Option<StdUnixListener> {
    let is_it = |(name, socket): &(String, StdUnixListener)| {
        let address = socket.local_addr().ok();
        is_meant(name, address.as_ref().and_then(|address| address.as_pathname()))
    };
    let found = sockets.iter().position(is_it)?;
    Some(sockets.remove(found).1)
}

fn open_socket(
    listener: usize,
    listen: &Listen,
    default: &Path,
    passed: Option<StdUnixListener>,
) -> anyhow::Result<OpenSocket> {
    let source = if let Some(socket) = passed {
        SocketSource::Inherited(socket)
    } else {
        let path = listen.socket.as_deref().unwrap_or(default);
        SocketSource::Publish(socket_options(listen, path)?)
    };
    let socket = Listening { listener, source, variable: None }.open().map_err(|error| {
        match error.downcast_ref() {
            Some(SocketError::AlreadyRunning(path)) => anyhow::anyhow!(
                "a proxy is already running on {}; stop it, or set another `proxy.directory` and another port in `proxy.tls.listen`",
                path.display()
            ),
            _ => error,
        }
    })?;
    if let Some(path) = &socket.path {
        info!("the proxy is listening on {}", path.display());
    }
    Ok(socket)
}

fn serve_port(
    listeners: &Arc<Listeners<Proxy>>,
    port: &Arc<Port>,
    address: SocketAddr,
    inherited: Vec<(String, StdTcpListener)>,
    tasks: &TaskTracker,
    essentials: &mut Essentials,
) -> anyhow::Result<()> {
    let sockets: Vec<_> = if inherited.is_empty() {
        let socket = StdTcpListener::bind(address);
        vec![socket.with_context(|| format!("cannot listen on {address} (`proxy.tls.listen`)"))?]
    } else {
        inherited.into_iter().map(|(_, socket)| socket).collect()
    };
    for socket in sockets {
        let address = socket.local_addr().context("cannot listen on the socket from systemd")?;
        if !address.ip().is_loopback() {
            bail!(
                "systemd passed {address} to the proxy, which other hosts can reach; set `ListenStream=127.0.0.1:PORT` in its .socket unit"
            );
        }
        socket.set_nonblocking(true)?;
        let socket = Arc::new(TcpListener::from_std(socket)?);
        let served = Arc::clone(listeners).serve_port(Arc::clone(port), socket);
        // Essential tasks end when the drain begins, and this one goes on.
        let served = tasks.spawn(served);
        essentials.push(("proxy's port", served.map(drop).boxed()));
        info!("the proxy is listening on https://{address}");
    }
    Ok(())
}

/// A proxy in a separate process, which listens but does not serve yet.
#[expect(missing_debug_implementations, reason = "its tasks have none")]
pub struct BoundProxy {
    running: RunningProxy,
    essentials: Essentials,
    audit: Audit,
    reload: Arc<Notify>,
    tasks: TaskTracker,
    draining: CancellationToken,
}

/// Builds the proxy of `config`, a client of `broker`. Must be called within a tokio runtime.
///
/// # Errors
///
/// It cannot listen, or has no keys.
pub fn build_proxy(
    mut config: Config,
    options: ProxyOptions,
    broker: Broker,
    edges: Edges,
) -> anyhow::Result<BoundProxy> {
    let (tasks, draining, beat) = (TaskTracker::new(), CancellationToken::new(), Beat::start());
    let mut essentials = Essentials::new();
    let ProxySection { audit: own, metrics, .. } = config.proxy.clone().unwrap_or_default();
    let audit = match own {
        Some(path) => audit(&AuditTo::File(path), "`proxy.audit.file`", &edges.clock, &mut essentials)?,
        None => audit(
            &config.audit,
            "`audit.file`; a proxy with a separate user needs `proxy.audit.file`",
            &edges.clock,
            &mut essentials,
        )?,
    };
    let files = take(&mut config.files);
    let adopter = Arc::new(ProxyAdopter {
        policies: watch::Sender::new(Arc::new(Policy::new(take(&mut config.access)))),
        providers: Mutex::new(Arc::new(take(&mut config.providers))),
        started: config.proxy.take(),
        connections: config.limits.connections.get(),
    });
    let known = Arc::clone(&adopter);
    let parts = ProxyParts {
        options,
        broker,
        policies: adopter.policies.subscribe(),
        providers: Box::new(move || known.providers()),
        connections: config.limits.connections.get(),
        audit: audit.clone(),
        clock: Arc::clone(&edges.clock),
        beat,
        tasks: tasks.clone(),
        draining: draining.clone(),
    };
    let (running, of_proxy) = start(parts)?;
    essentials.extend(of_proxy);
    if let Some(address) = metrics {
        let parts = MonitorParts::<ProcessRunner> {
            broker: None,
            proxy: Some(running.metrics()),
            started: edges.clock.now().wall,
            reach: reach(&address),
            names: None,
            tasks: tasks.clone(),
            draining: draining.clone(),
        };
        essentials.push(("metrics server", serve_metrics(&address, Monitor::new(parts))?.boxed()));
    }
    let log = edges.log.map(|log| ("log writer", async move { log.ended().await }.boxed()));
    essentials.extend(log);
    let reload = Arc::<Notify>::default();
    if let Some((place, sources)) = edges.follow {
        let state = watch::Sender::new(Arc::new(ReloadState::started(files, edges.clock.now().wall)));
        let follower = Follower::new(place, sources, adopter, edges.clock, Arc::clone(&reload), state);
        essentials.push(("configuration follower", async move { follower.run().await }.boxed()));
    }
    if edges.service_manager.is_some() {
        notify(&NotifyState::Ready);
    }
    Ok(BoundProxy { running, essentials, audit, reload, tasks, draining })
}

impl Daemon for BoundProxy {
    async fn serve(&mut self) -> &'static str {
        run(take(&mut self.essentials), &self.tasks, &self.draining).await
    }

    fn reload_request(&self) -> Arc<Notify> {
        Arc::clone(&self.reload)
    }

    /// Shuts down: watches end between two events, and tunnels have ten seconds. So long, the port goes on to accept.
    async fn drain(self) -> Drained {
        withdraw(self.running.keepers().collect()).await;
        self.draining.cancel();
        self.tasks.close();
        self.running.drain().await;
        let drained = tokio::time::timeout(GRACE, self.tasks.wait()).await;
        end_records(self.audit).await;
        drained.map_or(Drained::CutOff { left: self.tasks.len() }, |()| Drained::Whole)
    }
}

/// What a configuration changes in a proxy that runs.
#[derive(Debug)]
struct ProxyAdopter {
    policies: watch::Sender<Arc<Policy>>,
    providers: Mutex<Arc<Providers>>,
    started: Option<ProxySection>,
    connections: usize,
}

impl Adopt for ProxyAdopter {
    fn providers(&self) -> Arc<Providers> {
        Arc::clone(&self.providers.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Providers first: a rule is about names, and which user a context has never changes.
    fn adopt(&self, config: Config) -> Adopted {
        let keys = [
            ("proxy", self.started != config.proxy),
            ("limits.connections", self.connections != config.limits.connections.get()),
        ];
        let restart_needed = keys.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key).collect();
        let Config { providers, access, .. } = config;
        let update = ProviderUpdate::of(providers, &self.providers());
        *self.providers.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&update.providers);
        let is_other = !self.policies.borrow().is_of(&access);
        if is_other {
            self.policies.send_replace(Arc::new(Policy::new(access)));
        }
        let is_change = is_other || !update.changes.is_empty();
        Adopted { providers: update.changes, is_change, restart_needed }
    }
}
