//! systemd: the listeners that it passes, notifications, and calls of the broker to itself. systemd waits for the first
//! answer, and restarts a broker that does not answer. Without systemd, nothing is done.

use std::{
    future::pending,
    io, mem,
    net::TcpListener,
    os::{fd::AsFd, unix::net::UnixListener},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http::{Request, header::CONTENT_TYPE};
use http_body_util::Full;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use listenfd::ListenFd;
use rustix::io::FdFlags;
use sd_notify::NotifyState;
use tokio::{
    net::UnixStream,
    time::{sleep, timeout},
};
use tracing::warn;

use credbroker_plugin::Environment;
use credbroker_runner::ProcessRunner;
use credbroker_server::Gate;
use credbroker_uds_server::Acceptor;

const CHECK: &str = "http://localhost/grpc.health.v1.Health/Check";
/// An empty message: the health of the broker itself.
const EMPTY: &[u8] = &[0; 5];

const LONGEST: Duration = Duration::from_secs(20);
/// Time between two calls of a broker that has not answered one yet.
const SOON: Duration = Duration::from_secs(1);

/// Listeners of systemd, each with the `FileDescriptorName=` of its unit.
#[derive(Debug, Default)]
pub struct Inherited {
    /// Unix stream sockets.
    pub unix: Vec<(String, UnixListener)>,
    /// TCP sockets, which only the proxy has.
    pub tcp: Vec<(String, TcpListener)>,
}

/// The sockets that systemd passed in `LISTEN_FDS`.
///
/// # Errors
///
/// systemd passed something other than listening stream sockets.
pub fn inherited_listeners() -> io::Result<Inherited> {
    // Before the descriptors are taken, which removes the variables that both read.
    let names: Vec<_> = sd_notify::listen_fds_with_names()?.map(|(_, name)| name).collect();
    let mut passed = ListenFd::from_env();
    let mut listeners = Inherited::default();
    for (index, name) in names.into_iter().enumerate() {
        // Of another kind of socket, it stays in its place.
        if let Ok(Some(listener)) = passed.take_tcp_listener(index) {
            check(&listener)?;
            listeners.tcp.push((name, listener));
        } else if let Some(listener) = passed.take_unix_listener(index)? {
            check(&listener)?;
            listeners.unix.push((name, listener));
        }
    }
    Ok(listeners)
}

fn check(listener: &impl AsFd) -> io::Result<()> {
    if !rustix::net::sockopt::socket_acceptconn(listener)? {
        let message = "systemd passed a socket that does not listen; the .socket unit must have `ListenStream=` and `Accept=no`";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    // It must not reach a plugin.
    Ok(rustix::io::fcntl_setfd(listener, FdFlags::CLOEXEC)?)
}

/// The service manager that started the broker and gets notifications.
#[derive(Clone, Copy, Debug)]
pub struct ServiceManager {
    /// The time after which it restarts a broker that gets no [`NotifyState::Watchdog`]; `None`: it does not.
    pub watchdog: Option<Duration>,
}

impl ServiceManager {
    pub(super) fn of(environment: &Environment) -> Option<Self> {
        environment.set("NOTIFY_SOCKET").map(|_| Self { watchdog: sd_notify::watchdog_enabled() })
    }
}

/// Notifies the service manager (`NOTIFY_SOCKET`). A failure is only logged.
pub fn notify(state: &NotifyState<'_>) {
    let sent = match state {
        // By the time systemd knows which reload it is: `Type=notify-reload` requires it.
        NotifyState::Reloading => NotifyState::monotonic_usec_now()
            .and_then(|now| sd_notify::notify(&[NotifyState::Reloading, now])),
        state => sd_notify::notify(std::slice::from_ref(state)),
    };
    if let Err(error) = sent {
        warn!(%error, "cannot notify the service manager: {state:?}");
    }
}

/// Notifies systemd that the broker is ready when it has answered a call on its own socket; and from then on, three times
/// in `period`, that it still answers. `period` is the time after which systemd restarts a broker without notifications;
/// `None`: it does not.
pub(super) async fn report<F: Future<Output = io::Result<UnixStream>>>(
    connect: impl Fn() -> F,
    period: Option<Duration>,
    notify: impl Fn(&NotifyState<'_>),
) {
    let turn = period.map_or(LONGEST, |period| period / 3);
    let mut is_ready = false;
    loop {
        match timeout(turn, async { call(connect().await?).await }).await {
            Ok(Ok(())) => {
                if !mem::replace(&mut is_ready, true) {
                    notify(&NotifyState::Ready);
                }
                if period.is_none() {
                    return pending().await;
                }
                notify(&NotifyState::Watchdog);
            }
            Ok(Err(error)) => {
                warn!(%error, "the broker cannot call itself; systemd restarts it if that lasts");
            }
            Err(_late) => warn!("the broker does not answer itself; systemd restarts it if that lasts"),
        }
        sleep(if is_ready { turn } else { turn.min(SOON) }).await;
    }
}

/// Connects as a client does. The socket of a system service may be for other users only: then the acceptor gets the
/// connection directly.
pub(super) async fn connect(
    socket: Option<PathBuf>,
    acceptor: Arc<Acceptor<Gate<ProcessRunner>>>,
) -> io::Result<UnixStream> {
    let Some(socket) = socket else { return acceptor.connect() };
    match UnixStream::connect(socket).await {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => acceptor.connect(),
        connected => connected,
    }
}

/// Calls the broker. Any answer is an answer: one that refuses the call for lack of room, too.
async fn call(stream: UnixStream) -> io::Result<()> {
    let (mut sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.map_err(io::Error::other)?;
    let request = Request::post(CHECK).header(CONTENT_TYPE, "application/grpc");
    let request = request.body(Full::new(Bytes::from_static(EMPTY))).map_err(io::Error::other)?;
    tokio::select! {
        answer = sender.send_request(request) => answer.map(drop).map_err(io::Error::other),
        ended = connection => {
            ended.map_err(io::Error::other)?;
            Err(io::ErrorKind::ConnectionAborted.into())
        }
    }
}

#[cfg(test)]
mod tests;
