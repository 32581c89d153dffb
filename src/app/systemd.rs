//! The interface to systemd: the inherited listener, and notifications. Without systemd, both do nothing.

use std::{io, os::unix::net::UnixListener};

use listenfd::ListenFd;
use rustix::io::FdFlags;
use sd_notify::NotifyState;
use tracing::warn;

/// The listener that systemd passed in `LISTEN_FDS`, if any.
///
/// # Errors
///
/// systemd passed something other than one listening Unix stream socket.
pub fn inherited_listener() -> io::Result<Option<UnixListener>> {
    let mut passed = ListenFd::from_env();
    if passed.len() > 1 {
        let message = format!("systemd passed {} sockets; the broker listens on one", passed.len());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let Some(listener) = passed.take_unix_listener(0)? else { return Ok(None) };
    if !rustix::net::sockopt::socket_acceptconn(&listener)? {
        let message = "systemd passed a socket that does not listen; the .socket unit must have `ListenStream=` and `Accept=no`";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    // It must not reach a plugin.
    rustix::io::fcntl_setfd(&listener, FdFlags::CLOEXEC)?;
    Ok(Some(listener))
}

/// A notification for the service manager (`NOTIFY_SOCKET`).
#[derive(Clone, Copy, Debug)]
pub enum ServiceNotification {
    /// The socket is open.
    Ready,
    /// The broker reads its configuration again. [`Ready`](Self::Ready) follows.
    Reloading,
    /// The broker drains.
    Stopping,
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
        };
        if let Err(error) = sent {
            warn!(%error, "cannot notify the service manager: {self:?}");
        }
    }
}
