//! Why the hub cannot be read.

use std::{error::Error, fmt::Write as _};

use kube::config::KubeconfigError;

use super::bounds::Excess;
use crate::{cache::Failed, plugin::ResolveError, text::sanitize};

/// Letters of a problem; more say nothing more.
const LONGEST: usize = 400;

/// Why the hub cannot be read. It may heal by itself: everything is tried again.
#[derive(Debug, thiserror::Error)]
pub(super) enum HubError {
    /// Of the pod's service account.
    #[error("the service account of this pod cannot be used")]
    InCluster(#[source] kube::config::InClusterError),
    /// Of a kubeconfig.
    #[error("the hub's kubeconfig cannot be used")]
    Kubeconfig(#[source] KubeconfigError),
    /// kube's own error quotes the file, and any secret that stands near the mistake: only the place is kept.
    #[error(
        "the hub's kubeconfig cannot be understood (line {line}, column {column}); `credbroker validate` says more"
    )]
    Malformed {
        /// From 1; 0: unknown.
        line: u64,
        /// From 1; 0: unknown.
        column: u64,
    },
    /// kube would run its command itself: without a limit, and with its output in errors.
    #[error(
        "the user of the hub's kubeconfig has an `auth-provider`, which is not supported; use an exec plugin"
    )]
    AuthProvider,
    /// The kubeconfig was changed while the broker ran.
    #[error("the user of the hub's kubeconfig runs a plugin since it was changed; start the broker again")]
    NewPlugin,
    /// The kubeconfig was changed while the broker ran.
    #[error(
        "the user of the hub's kubeconfig runs no plugin any more since it was changed; start the broker again"
    )]
    NoPlugin,
    /// The hub's own plugin cannot be run.
    #[error("the plugin of the hub's user cannot be run")]
    Plugin(#[source] ResolveError),
    /// The hub's own plugin gave nothing.
    #[error("the plugin of the hub's user gave no credential")]
    Credential(#[source] Failed),
    /// kube's own error shows the proxy with its password.
    #[error("the hub's proxy has a scheme that is not known here; use http, https or socks5")]
    Proxy,
    /// Address, authorities or credential are of no use.
    #[error("the hub cannot be connected to")]
    Client(#[source] kube::Error),
    /// The hub's answer, or none.
    #[error("the ClusterProfiles cannot be read")]
    Watch(#[source] kube::runtime::watcher::Error),
    /// What the hub says is too much. What was known before stays in use.
    #[error("the ClusterProfiles cannot be read")]
    Excess(#[source] Excess),
    /// A stream of the library's that never ends has ended.
    #[error("the ClusterProfiles are no longer followed")]
    Ended,
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

    /// The error and its causes in one line that may stand in a log and at a terminal.
    pub(super) fn line(&self) -> String {
        let mut line = self.to_string();
        let mut cause = self.source();
        while let Some(error) = cause {
            let text = error.to_string();
            // kube's errors repeat their sources.
            if !line.contains(&text) {
                let _infallible = write!(line, ": {text}");
            }
            cause = error.source();
        }
        let one_line = |letter: char| if letter.is_control() { ' ' } else { letter };
        sanitize(&line).chars().map(one_line).take(LONGEST).collect()
    }

    /// Whether the hub says that the credential is none.
    pub(super) fn is_unauthorized(&self) -> bool {
        self.code() == Some(401)
    }

    /// Whether the hub has forgotten what changed since the last look: an ordinary event, after which one lists anew.
    pub(super) fn is_expired(&self) -> bool {
        self.code() == Some(410)
    }

    /// What it is too much of, if that is the cause.
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

    /// The status in the hub's answer.
    fn code(&self) -> Option<u16> {
        use kube::runtime::watcher::Error as Watch;
        let Self::Watch(error) = self else { return None };
        match error {
            Watch::InitialListFailed(error) | Watch::WatchStartFailed(error) | Watch::WatchFailed(error) => {
                let kube::Error::Api(status) = error else { return None };
                Some(status.code)
            }
            Watch::WatchError(status) => Some(status.code),
            Watch::NoResourceVersion => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::{core::Status, runtime::watcher};

    use super::*;

    fn refused(code: u16) -> HubError {
        let status = Status { code, message: "no".to_owned(), ..Status::default() };
        HubError::Watch(watcher::Error::InitialListFailed(kube::Error::Api(status.boxed())))
    }

    #[test]
    fn only_who_is_not_known_is_unauthorized() {
        assert!(refused(401).is_unauthorized());
        let begun = watcher::Error::WatchError(Status { code: 401, ..Status::default() }.boxed());
        assert!(HubError::Watch(begun).is_unauthorized());
        for other in [refused(403), refused(410), refused(500), HubError::Ended, HubError::NewPlugin] {
            assert!(!other.is_unauthorized(), "{other:?}");
        }
    }

    #[test]
    fn a_problem_is_one_short_line_with_each_cause_once() {
        let line = refused(403).line();
        assert!(line.starts_with("the ClusterProfiles cannot be read: "), "{line}");
        assert_eq!(line.matches("ApiError").count(), 1, "{line}");
        let message = format!("\u{1b}[31mred\nsecond {}", "x".repeat(1_000));
        let status = Status { code: 500, message, ..Status::default() };
        let line = HubError::Watch(watcher::Error::WatchFailed(kube::Error::Api(status.boxed()))).line();
        assert!(line.contains("U+001B[31mred second") && !line.contains(char::is_control), "{line}");
        assert_eq!(line.chars().count(), LONGEST);
    }
}
