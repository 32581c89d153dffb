//! Metrics and health over HTTP, for Prometheus and for probes. It answers with stable reasons, and never with a message,
//! which may have the output of a plugin. With access rules, answers on a loopback address have no names of providers.

mod gather;
mod http;
mod places;

use std::{
    io,
    os::unix::net::UnixListener as StdUnixListener,
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, UnixListener},
    sync::watch,
    time::{sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{debug, warn};

use self::places::MonitorPlaces;
use super::{access::Policies, overview::ReloadState, readiness::HealthChecks};
use credbroker_observe::metrics::Metrics;
use credbroker_runner::PluginRunner;

/// How long a connection lives: one request.
const EXCHANGE: Duration = Duration::from_secs(10);
/// The pause after a failed accept.
const PAUSE: Duration = Duration::from_secs(1);

/// Where the monitor listens.
#[derive(Debug)]
pub enum MonitorListener {
    /// A loopback address. Browsers of this machine can reach it.
    Loopback(TcpListener),
    /// A Unix socket.
    Unix(UnixListener),
}

/// The parts of the monitor.
#[derive(Debug)]
pub struct MonitorParts<R> {
    /// What is ready.
    pub health: HealthChecks<R>,
    /// What was counted.
    pub metrics: Arc<Metrics>,
    /// Which configuration is in force.
    pub configuration: watch::Receiver<Arc<ReloadState>>,
    /// Whether answers have the names of providers.
    pub names: ProviderNames,
    /// When the broker started.
    pub started: SystemTime,
    /// Owns the connections.
    pub tasks: TaskTracker,
    /// When cancelled, no more connections are accepted.
    pub draining: CancellationToken,
}

/// Whether answers have the names of providers.
#[derive(Debug)]
pub struct ProviderNames {
    /// The access rules in force.
    pub policies: Policies,
    /// As configured; `None`: unless there are rules and the address is a loopback one.
    pub setting: Option<bool>,
}

/// Answers over HTTP.
#[derive(Debug)]
pub struct Monitor<R> {
    parts: MonitorParts<R>,
    places: Arc<MonitorPlaces>,
}

impl MonitorListener {
    /// Takes a Unix listener.
    ///
    /// # Errors
    ///
    /// The runtime cannot use it.
    pub fn unix(listener: StdUnixListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        UnixListener::from_std(listener).map(Self::Unix)
    }
}

impl<R: PluginRunner> Monitor<R> {
    /// Creates a monitor that does not listen yet.
    pub fn new(parts: MonitorParts<R>) -> Self {
        Self { parts, places: Arc::default() }
    }

    /// Whether answers have the names of providers. The mode of a Unix socket admits the operator; a process of any user
    /// can connect to a loopback address.
    fn names_providers(&self, is_loopback: bool) -> bool {
        let ProviderNames { policies, setting } = &self.parts.names;
        setting.unwrap_or_else(|| !is_loopback || !policies.borrow().has_rules())
    }

    /// Accepts connections until the broker drains.
    pub async fn run(self: Arc<Self>, listener: MonitorListener) {
        let draining = self.parts.draining.clone();
        let accepting = async {
            loop {
                let accepted = match &listener {
                    MonitorListener::Loopback(listener) => {
                        listener.accept().await.map(|(stream, _)| self.serve(stream, true))
                    }
                    MonitorListener::Unix(listener) => {
                        listener.accept().await.map(|(stream, _)| self.serve(stream, false))
                    }
                };
                if let Err(error) = accepted {
                    warn!(%error, "a connection to the metrics cannot be accepted");
                    sleep(PAUSE).await;
                }
            }
        };
        draining.run_until_cancelled(accepting).await;
    }

    fn serve(
        self: &Arc<Self>,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        is_loopback: bool,
    ) {
        let Some(place) = self.places.take() else {
            return debug!("a connection to the metrics was closed: all others are being answered");
        };
        let (monitor, place) = (Arc::clone(self), Arc::new(place));
        self.parts.tasks.spawn(async move {
            let exchange = http::exchange(monitor, stream, Arc::clone(&place), is_loopback);
            // Without an answer in time, the connection is closed.
            let _ended = place.displaced().run_until_cancelled(timeout(EXCHANGE, exchange)).await;
        });
    }
}
