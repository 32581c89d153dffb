//! Why the hub cannot be read, and the limits of what is read.

use std::{error::Error, path::PathBuf, time::Duration};

use kube::config::KubeconfigError;

use credbroker_cache::Failed;
use credbroker_credential::text::{chain, one_line};
use credbroker_plugin::ResolveError;

/// Bytes of one response, without compression. An API server stores objects of 1.5 MiB at most.
pub(super) const PAGE: usize = 16 << 20;
/// Bytes of one watch event: an object, and what the API server adds to it.
pub(super) const EVENT: usize = 2 << 20;
/// Number of known ClusterProfiles.
pub(super) const PROFILES: usize = 20_000;
/// Bytes of all known ClusterProfiles.
pub(super) const TOTAL: usize = 256 << 20;

/// An exceeded limit.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(super) enum Excess {
    #[error("a response is larger than the limit of {} MiB", PAGE >> 20)]
    Page,
    #[error("a watch event is larger than the limit of {} MiB", EVENT >> 20)]
    Event,
    /// Of one response, or of a whole list.
    #[error("the request took longer than the limit of {0:?}")]
    Time(Duration),
    #[error(
        "the list does not end: the hub sent {0} pages in a row without a new ClusterProfile, each with a `continue` token"
    )]
    EmptyPages(u32),
    #[error(
        "the hub has more than {PROFILES} ClusterProfiles, which is the limit; select fewer with `namespaces` or `labelSelector`"
    )]
    Profiles,
    #[error(
        "the ClusterProfiles are larger than the limit of {} MiB in total; select fewer with `namespaces` or `labelSelector`",
        TOTAL >> 20
    )]
    Total,
}

/// Characters of a problem that are shown.
const LONGEST: usize = 400;

/// Why the hub cannot be read. Everything is retried, so any of them may be temporary.
#[derive(Debug, thiserror::Error)]
pub(super) enum HubError {
    #[error("the service account of this pod cannot be used")]
    InCluster(#[from] kube::config::InClusterError),
    #[error("the hub's kubeconfig cannot be used")]
    Kubeconfig(#[source] KubeconfigError),
    /// kube's own error quotes the file, and with it any secret near the mistake, so only the position is kept, which is 0
    /// if it is unknown.
    #[error(
        "the hub's kubeconfig is not valid (line {line}, column {column}); run `credbroker validate` for details"
    )]
    Malformed { line: u64, column: u64 },
    /// Other users can change the kubeconfig, or the certificate authorities that it names. `problem` says how, with the
    /// remedy.
    #[error("{}: {problem}", .path.display())]
    Unsafe { path: PathBuf, problem: String },
    /// kube would run its command itself, without a limit and with its output in errors.
    #[error(
        "the user of the hub's kubeconfig has an `auth-provider`, which is not supported; use an exec plugin"
    )]
    AuthProvider,
    #[error(
        "the user of the hub's kubeconfig now has another exec plugin, or no exec plugin; the change applies after the broker has read the file again"
    )]
    OtherPlugin,
    #[error("the plugin of the hub's user cannot be run")]
    Plugin(#[from] ResolveError),
    #[error("the plugin of the hub's user returned no credential")]
    Credential(#[from] Failed),
    /// kube's own error shows the proxy URL with its password.
    #[error("the scheme of the hub's proxy is not supported; use http, https or socks5")]
    Proxy,
    #[error("cannot connect to the hub")]
    Client(#[source] kube::Error),
    #[error("the ClusterProfiles cannot be read")]
    Watch(#[from] kube::runtime::watcher::Error),
    /// What was read before stays in use.
    #[error("the ClusterProfiles cannot be read")]
    Excess(#[from] Excess),
}

impl HubError {
    /// Why a kubeconfig cannot be used.
    pub(super) fn of_kubeconfig(error: KubeconfigError) -> Self {
        match error {
            KubeconfigError::Parse(error) => {
                let (line, column) = error.location().map_or((0, 0), |at| (at.line(), at.column()));
                Self::Malformed { line, column }
            }
            error => Self::Kubeconfig(error),
        }
    }

    /// Why there is no client.
    pub(super) fn of_client(error: kube::Error) -> Self {
        match error {
            kube::Error::ProxyProtocolUnsupported { .. } | kube::Error::ProxyProtocolDisabled { .. } => {
                Self::Proxy
            }
            error => Self::Client(error),
        }
    }

    /// The error and its causes in one line, safe for a log and a terminal.
    pub(super) fn line(&self) -> String {
        one_line(&chain(self)).chars().take(LONGEST).collect()
    }

    /// The exceeded limit, if that is the cause.
    pub(super) fn excess(&self) -> Option<Excess> {
        let mut cause: Option<&(dyn Error + 'static)> = Some(self);
        while let Some(error) = cause {
            if let Some(excess) = error.downcast_ref() {
                return Some(*excess);
            }
            // An I/O error displays its cause, and skips it in the chain.
            let inner = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
            cause = inner.map(|inner| inner as _).or_else(|| error.source());
        }
        None
    }

    /// The HTTP status of the hub's response.
    pub(super) fn code(&self) -> Option<u16> {
        use kube::{Error::Api, runtime::watcher::Error as Watch};
        let Self::Watch(error) = self else { return None };
        match error {
            Watch::InitialListFailed(Api(status))
            | Watch::WatchStartFailed(Api(status))
            | Watch::WatchFailed(Api(status))
            | Watch::WatchError(status) => Some(status.code),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
