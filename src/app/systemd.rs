//! The service manager: a listener from it, and how far we are to it. Without one, both do nothing.

use std::{io, os::unix::net::UnixListener};

use listenfd::ListenFd;
use rustix::io::FdFlags;
use sd_notify::NotifyState;
use tracing::warn;

/// The listener that systemd passed (`LISTEN_FDS`), if it did.
///
/// # Errors
///
/// What it passed is not one listening Unix stream socket.
pub fn inherited_listener() -> io::Result<Option<UnixListener>> {
    let mut passed = ListenFd::from_env();
    if passed.len() > 1 {
        let message = format!("systemd passed {} sockets; the broker listens on one", passed.len());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let Some(listener) = passed.take_unix_listener(0)? else { return Ok(None) };
    if !rustix::net::sockopt::socket_acceptconn(&listener)? {
        let message =
            "systemd passed a socket that does not listen (`ListenStream=` and `Accept=no`, please)";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    // It must not reach a plugin.
    rustix::io::fcntl_setfd(&listener, FdFlags::CLOEXEC)?;
    Ok(Some(listener))
}

/// What the service manager (`NOTIFY_SOCKET`) is told.
#[derive(Clone, Copy, Debug)]
pub enum Readiness {
    /// The socket is open.
    Ready,
    /// The broker drains.
    Stopping,
}

impl Readiness {
    /// Tells it; a service manager that does not listen is no reason to stop.
    pub fn tell(self) {
        let state = match self {
            Self::Ready => NotifyState::Ready,
            Self::Stopping => NotifyState::Stopping,
        };
        if let Err(error) = sd_notify::notify(&[state]) {
            warn!(%error, "the service manager cannot be told: {self:?}");
        }
    }
}
