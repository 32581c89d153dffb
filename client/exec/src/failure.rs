//! Why there is no credential: one line for people, and the exit code.

use std::{error::Error, io, path::Path, sync::Arc};

use credbroker_client::{Code, Socket, SocketError};
use rustix::process::geteuid;

use crate::{
    arguments::UsageError, exec_info::ExecInfoError, exit_code, fallback::FallbackError,
    forward::ForwardError, notice::visible, on_demand::OnDemandError, proxy::ProxyError, source::Source,
};

/// Why a user's own broker may not be found.
const OWN: &str = "; your own broker is only looked for if XDG_RUNTIME_DIR is set, which it is not after su and in cron: \
                   set it to /run/user/UID";

/// Why the shim printed no credential.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// No answer of the broker, or an error.
    #[error(transparent)]
    Broker(#[from] credbroker_client::Error),
    /// `KUBERNETES_EXEC_INFO` is not valid.
    #[error(transparent)]
    ExecInfo(#[from] ExecInfoError),
    /// The original plugin may run without a broker, and cannot.
    #[error(transparent)]
    Fallback(Arc<FallbackError>),
    /// A variable cannot be sent.
    #[error(transparent)]
    Forward(#[from] ForwardError),
    /// `credbroker setup` recorded a broker, and it cannot be started.
    #[error("no broker runs, and it cannot be started")]
    OnDemand(#[from] OnDemandError),
    /// The credential could not be printed.
    #[error("cannot write to standard output")]
    Output(#[source] Arc<io::Error>),
    /// No answer of the proxy, or an error.
    #[error(transparent)]
    Proxy(Arc<ProxyError>),
    /// The flag or the variable for the socket is not valid.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The command line is not valid.
    #[error(transparent)]
    Usage(#[from] UsageError),
}

impl Failure {
    /// The exit code of this failure.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Fallback(_) | Self::Output(_) => 1,
            Self::Broker(error) => exit_code::of_call(error),
            Self::Proxy(error) => error.exit_code(),
            Self::OnDemand(_) => 69,
            Self::Usage(_) => 2,
            Self::Socket(error) if error.origin.starts_with('-') => 2,
            Self::ExecInfo(_) | Self::Forward(_) | Self::Socket(_) => 78,
        }
    }

    /// Source, cause and remedy in one line without a newline, safe to show on a terminal.
    pub fn line(&self, source: Option<&Source>) -> String {
        let mut text = self.to_string();
        if let Some(source) = source.filter(|source| !names(&text, source)) {
            text = format!("{source}: {text}");
        }
        let mut below = self.source();
        while let Some(error) = below {
            text.push_str(": ");
            text.push_str(&error.to_string());
            below = error.source();
        }
        text.push_str(&self.addition());
        visible(&on_one_line(&text))
    }

    /// What follows the error and its causes: the remedy, the reason, and when to try again.
    fn addition(&self) -> String {
        use credbroker_client::Error::{Failed, Timeout, Unreachable};
        match self {
            Self::Usage(_) => "; see credbroker-exec --help".into(),
            Self::Proxy(error) if matches!(**error, ProxyError::Unreachable(..)) => {
                "; start it with `credbroker proxy`, or with `credbroker serve --proxy` if no broker runs, or name its socket with --socket".into()
            }
            Self::OnDemand(_) => "; run `credbroker setup` again, or start it with `credbroker serve`".into(),
            Self::Broker(Unreachable { source, .. }) if hangs(&**source) => {
                "; run `credbroker restart`, or name another socket with --socket or CREDBROKER_SOCKET".into()
            }
            Self::Broker(Unreachable { socket, .. }) => {
                let own = if is_only_the_systems(socket) { OWN } else { "" };
                format!(
                    "; start it with `credbroker serve`, or run `credbroker setup` once, or name its socket with --socket or CREDBROKER_SOCKET{own}"
                )
            }
            Self::Broker(Timeout { .. }) => "; try again later, or wait longer with --timeout".into(),
            Self::Broker(Failed(failure)) if failure.code == Code::OutOfRange && failure.reason.is_none() => {
                "; the cluster's data and the variables that choose an identity are too large together".into()
            }
            Self::Broker(Failed(failure)) => {
                let (reason, retry_after) = (failure.reason, failure.retry_after);
                let reason = reason.map(|reason| format!(" ({})", reason.name())).unwrap_or_default();
                let retry = retry_after
                    .filter(|after| !after.is_zero())
                    .map(|after| format!("; try again in {} s", after.as_secs().max(1)));
                reason + &retry.unwrap_or_default()
            }
            _ => String::new(),
        }
    }
}

/// Whether a user who is not root looks for the system's broker only, and no other one is named.
fn is_only_the_systems(socket: &Socket) -> bool {
    let has_other = socket.ignored_runtime_directory().is_some();
    socket.candidates().eq([Path::new(Socket::SYSTEM)]) && !has_other && !geteuid().is_root()
}

/// Whether the process that listens accepts connections and sends nothing.
fn hangs(error: &(dyn Error + 'static)) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::TimedOut)
}

/// Whether the broker's message names the provider.
fn names(text: &str, source: &Source) -> bool {
    matches!(source, Source::Provider { name, .. } if text.contains(&format!("provider `{name}`")))
}

/// Replaces line breaks and control characters by spaces: a message may quote a plugin's stderr.
fn on_one_line(text: &str) -> String {
    let blank = |character: char| character.is_control() || matches!(character, '\u{2028}' | '\u{2029}');
    text.split(blank).map(str::trim).filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
