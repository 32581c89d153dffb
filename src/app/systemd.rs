//! The interface to systemd: the inherited listeners, and notifications. Without systemd, both do nothing.

use std::{io, os::unix::net::UnixListener, time::Duration};

use listenfd::ListenFd;
use rustix::io::FdFlags;
use sd_notify::NotifyState;
use tracing::warn;

use credbroker_plugin::Environment;

/// The sockets that systemd passed in `LISTEN_FDS`, each with the `FileDescriptorName=` of its unit.
///
/// # Errors
///
/// systemd passed something other than listening Unix stream sockets.
pub fn inherited_listeners() -> io::Result<Vec<(String, UnixListener)>> {
    // Before the descriptors are taken, which removes the variables that both read.
    let names: Vec<_> = sd_notify::listen_fds_with_names()?.map(|(_, name)| name).collect();
    let mut passed = ListenFd::from_env();
    let mut listeners = Vec::new();
    for (index, name) in names.into_iter().enumerate() {
        let Some(listener) = passed.take_unix_listener(index)? else { continue };
        if !rustix::net::sockopt::socket_acceptconn(&listener)? {
            let message = "systemd passed a socket that does not listen; the .socket unit must have `ListenStream=` and `Accept=no`";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        // It must not reach a plugin.
        rustix::io::fcntl_setfd(&listener, FdFlags::CLOEXEC)?;
        listeners.push((name, listener));
    }
    Ok(listeners)
}

/// A notification for the service manager (`NOTIFY_SOCKET`).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ServiceNotification {
    /// The broker has answered a call, or a reload has ended.
    Ready,
    /// The configuration is being read again. [`Ready`](Self::Ready) ends it.
    Reloading,
    /// The broker drains.
    Stopping,
    /// The broker works.
    Watchdog,
}

/// The service manager that started the broker and gets notifications.
#[derive(Clone, Copy, Debug)]
pub struct ServiceManager {
    /// The time after which it restarts a broker that sends no [`ServiceNotification::Watchdog`]; `None`: it does not.
    pub watchdog: Option<Duration>,
}

impl ServiceManager {
    /// `None`: no service manager gets notifications.
    pub(super) fn of(environment: &Environment) -> Option<Self> {
        environment.set("NOTIFY_SOCKET").map(|_| Self { watchdog: sd_notify::watchdog_enabled() })
    }
}

impl ServiceNotification {
    /// Sends it. A failure is only logged.
    pub fn notify(self) {
        let sent = match self {
            Self::Ready => sd_notify::notify(&[NotifyState::Ready]),
            // By the time systemd knows which reload it is: `Type=notify-reload` requires it.
            Self::Reloading => NotifyState::monotonic_usec_now()
                .and_then(|now| sd_notify::notify(&[NotifyState::Reloading, now])),
            Self::Stopping => sd_notify::notify(&[NotifyState::Stopping]),
            Self::Watchdog => sd_notify::notify(&[NotifyState::Watchdog]),
        };
        if let Err(error) = sent {
            warn!(%error, "cannot notify the service manager: {self:?}");
        }
    }
}
