//! Why there is no credential, by what the caller can do about it.

use std::{error::Error as StdError, fmt, path::PathBuf, sync::Arc, time::Duration};

#[cfg(feature = "async")]
use credbroker_proto::from_tonic;
use credbroker_proto::{Code, Reason};

use crate::{failure::Failure, lost::ConnectionLost, socket::Socket, trust::TrustError};

/// Why there is no credential. The causes are in `source()`. `Display` is one layer; only a deadline that has passed also shows
/// the last failure, which nothing else would show.
///
/// ```
/// use credbroker_client::{Error, Reason};
///
/// fn advice(error: &Error) -> &'static str {
///     match error.reason() {
///         Some(Reason::InteractionRequired) => "log in, then try again",
///         Some(Reason::UnknownClusterProfile | Reason::UnknownProvider) => "check the name",
///         _ if error.is_timeout() => "allow more time",
///         _ if error.retry_after().is_some() => "try again later",
///         _ => "see the broker's log",
///     }
/// }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
#[expect(
    clippy::error_impl_error,
    reason = "the one error of this crate; users write credbroker_client::Error"
)]
pub enum Error {
    /// The broker answered with an error.
    Failed(Box<Failure>),
    /// The deadline passed first. A plugin run that is in flight goes on: try again later.
    Timeout {
        /// The time that the caller allowed.
        limit: Duration,
        /// What was waited for: `cluster fleet/paris`, for example.
        what: Option<String>,
        /// Why it did not come before.
        last: Option<Arc<Error>>,
    },
    /// No broker listens there, it went away before it answered, or it accepts connections and sends nothing. Start or
    /// restart it.
    Unreachable {
        /// The paths that were tried.
        socket: Socket,
        /// The error of the last attempt.
        source: Arc<dyn StdError + Send + Sync>,
    },
    /// The credential from the broker cannot be used: the broker and this library are of releases that do not fit, or the
    /// plugin prints something unusual. A user has to look at it.
    Unusable {
        /// What is wrong with it. Never a part of the credential.
        problem: &'static str,
    },
    /// The process that listens there may be an impostor. Nothing was sent to it. A user has to look at it.
    Untrusted {
        /// The socket.
        path: PathBuf,
        /// The problem and its remedy.
        reason: TrustError,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(failure) => f.write_str(&failure.message),
            Self::Timeout { limit, what: None, last: None } => write!(f, "no answer within {limit:?}"),
            Self::Timeout { limit, what, last } => {
                f.write_str("credbroker: ")?;
                what.iter().try_for_each(|what| write!(f, "{what}: "))?;
                write!(f, "deadline exceeded after {limit:?}; last: ")?;
                match last {
                    None => f.write_str("no answer yet, the plugin may be running"),
                    Some(last) => {
                        last.reason().iter().try_for_each(|reason| write!(f, "{}: ", reason.name()))?;
                        write!(f, "{last}")?;
                        last.source().iter().try_for_each(|cause| write!(f, ": {cause}"))
                    }
                }
            }
            Self::Unreachable { socket, .. } => write!(f, "no broker answers on {socket}"),
            Self::Unusable { problem } => {
                write!(f, "the broker's credential cannot be used: {problem}; check what its plugin prints")
            }
            Self::Untrusted { path, reason } => {
                write!(f, "the socket {} is not trusted: {}", path.display(), reason.of(path))
            }
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Timeout { last, .. } => last.as_deref().map(|last| last as _),
            Self::Unreachable { source, .. } => Some(source.as_ref()),
            Self::Failed(_) | Self::Unusable { .. } | Self::Untrusted { .. } => None,
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        Self::Failed(Box::new(failure))
    }
}

impl Error {
    /// Whether the caller's deadline passed first. [`Self::reason`] and `source()` then have the last failure.
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::Timeout { .. })
    }

    /// The stable reason, if the broker answered with one that this release knows.
    pub fn reason(&self) -> Option<Reason> {
        self.failure()?.reason
    }

    /// The broker's answer, if there is one.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Failed(failure) => Some(failure),
            Self::Timeout { last, .. } => last.as_ref()?.failure(),
            _ => None,
        }
    }

    /// The time after which another request may succeed, if the broker said one.
    pub fn retry_after(&self) -> Option<Duration> {
        self.failure()?.retry_after
    }

    /// Whether there is no broker now, but one may be starting, so that the call is worth another attempt: nothing listens
    /// yet, its queue is full, or the previous broker is shutting down.
    #[doc(hidden)]
    pub fn may_be_starting(&self) -> bool {
        match self {
            Self::Failed(failure) => failure.reason == Some(Reason::Draining),
            Self::Unreachable { source, .. } => source.downcast_ref::<std::io::Error>().is_none_or(|error| {
                use std::io::ErrorKind::{ConnectionRefused, ConnectionReset, NotFound, WouldBlock};
                matches!(error.kind(), ConnectionRefused | ConnectionReset | NotFound | WouldBlock)
            }),
            Self::Timeout { .. } | Self::Untrusted { .. } | Self::Unusable { .. } => false,
        }
    }

    /// An error status. UNAVAILABLE without our `ErrorInfo` does not come from a broker: it counts as no answer.
    pub(crate) fn refused(socket: &Socket, code: Code, message: &str, details: &[u8]) -> Self {
        let (failure, is_ours) = Failure::decode(code, message, details);
        if !is_ours && code == Code::Unavailable {
            return Self::lost(socket, ConnectionLost::new(message));
        }
        failure.into()
    }

    /// A call that has not been answered in time.
    #[doc(hidden)]
    pub const fn timeout(limit: Duration) -> Self {
        Self::Timeout { limit, what: None, last: None }
    }

    pub(crate) fn lost(socket: &Socket, lost: ConnectionLost) -> Self {
        Self::Unreachable { socket: socket.clone(), source: Arc::new(lost) }
    }
}

#[cfg(feature = "async")]
impl Error {
    /// After a deadline: what was waited for, and why it did not come before.
    pub(crate) fn waited_for(self, what: impl fmt::Display, last: impl FnOnce() -> Option<Self>) -> Self {
        match self {
            Self::Timeout { limit, what: None, last: None } => {
                Self::Timeout { limit, what: Some(what.to_string()), last: last().map(Arc::new) }
            }
            other => other,
        }
    }

    /// A stream that must not end has ended.
    pub(crate) fn ended(socket: &Socket) -> Self {
        Self::lost(socket, ConnectionLost::new("the watch ended"))
    }

    /// Whether the connection of the call can no longer be used.
    pub(crate) fn ends_connection(&self) -> bool {
        matches!(self, Self::Unreachable { .. }) || self.reason() == Some(Reason::Draining)
    }

    /// No credential so far is to be used: the definition that they come from was changed or removed, or the broker has evicted
    /// the last one. The next watch brings the next one.
    ///
    /// [`Reason::UnknownProvider`] and [`Reason::UnknownDefinition`] do not say that: a broker that restarts while a
    /// kubeconfig is being written does not know its users at first.
    pub(crate) fn withdraws(&self) -> bool {
        self.reason() == Some(Reason::ProviderChanged)
    }

    /// The other end accepted the connection and then sent nothing.
    pub(crate) fn silent(socket: &Socket, limit: Duration) -> Self {
        let silence = format!("it accepted the connection and sent nothing for {limit:?}");
        let source = Arc::new(std::io::Error::new(std::io::ErrorKind::TimedOut, silence));
        Self::Unreachable { socket: socket.clone(), source }
    }

    /// Whether it is [`Self::silent`]: another attempt takes as long again.
    pub(crate) fn is_silence(&self) -> bool {
        let Self::Unreachable { source, .. } = self else { return false };
        source
            .downcast_ref::<std::io::Error>()
            .is_some_and(|error| error.kind() == std::io::ErrorKind::TimedOut)
    }

    pub(crate) fn from_status(socket: &Socket, status: &tonic::Status) -> Self {
        match status.source().and_then(|source| source.downcast_ref::<ConnectionLost>()) {
            Some(lost) => Self::lost(socket, lost.clone()),
            None => Self::refused(socket, from_tonic(status.code()), status.message(), status.details()),
        }
    }
}

#[cfg(all(test, feature = "async"))]
mod tests {
    use std::collections::HashMap;

    use credbroker_proto::{DOMAIN, to_tonic};
    use tonic::{Code, Status};
    use tonic_types::{ErrorDetails, StatusExt};

    use super::*;

    fn converted(code: Code, domain: &str, reason: &str) -> Error {
        let mut details = ErrorDetails::with_error_info(reason, domain, HashMap::new());
        details.set_retry_info(Some(Duration::from_secs(7)));
        let status = Status::with_error_details(code, format!("the plugin failed ({reason})"), details);
        Error::from_status(&Socket::at("/s"), &status)
    }

    #[test]
    fn a_status_keeps_its_reason_and_its_retry_time() {
        for reason in Reason::all() {
            let error = converted(to_tonic(reason.code()), DOMAIN, reason.name());
            assert_eq!(error.reason(), Some(reason));
            assert_eq!(error.retry_after(), Some(Duration::from_secs(7)));
            assert_eq!(error.to_string(), "the plugin failed");
        }
    }

    #[test]
    fn unavailable_that_does_not_come_from_a_broker_is_unreachable() {
        let foreign = converted(Code::Unavailable, "example.com", "PLUGIN_EXIT");
        assert!(matches!(foreign, Error::Unreachable { .. }), "{foreign:?}");
        let bare = Error::from_status(&Socket::at("/s"), &Status::unavailable("no"));
        assert!(matches!(bare, Error::Unreachable { .. }), "{bare:?}");
        let unknown = converted(Code::Unavailable, DOMAIN, "A_LATER_REASON");
        assert!(matches!(unknown, Error::Failed(_)), "{unknown:?}");
        let denied = Error::from_status(&Socket::at("/s"), &Status::permission_denied("no"));
        assert_eq!(denied.failure().unwrap().code, credbroker_proto::Code::PermissionDenied);
    }

    #[test]
    fn only_a_broker_that_may_be_starting_is_tried_again() {
        let unreachable = |kind: std::io::ErrorKind| Error::Unreachable {
            socket: Socket::at("/s"),
            source: Arc::new(std::io::Error::from(kind)),
        };
        assert!(unreachable(std::io::ErrorKind::NotFound).may_be_starting());
        assert!(unreachable(std::io::ErrorKind::ConnectionRefused).may_be_starting());
        assert!(!unreachable(std::io::ErrorKind::PermissionDenied).may_be_starting());
        assert!(converted(Code::Unavailable, DOMAIN, "DRAINING").may_be_starting());
        assert!(!converted(Code::Unavailable, DOMAIN, "PLUGIN_EXIT").may_be_starting());
    }
}
