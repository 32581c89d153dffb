//! Why there is no credential, by what the caller can do about it.

use std::{error::Error as StdError, path::PathBuf, sync::Arc, time::Duration};

use credbroker_proto::{Code, Reason};

use crate::{Distrust, Socket, details::Details, lost::ConnectionLost};

/// The name of the broker's limit that concerns one connection; all others concern the broker.
const WATCHES_PER_CONNECTION: &str = "limits.watchesPerConnection";

/// Why there is no credential. `Display` is one layer; what lies below is its `source()`.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(
    clippy::error_impl_error,
    reason = "the one error of this crate; users write credbroker_client::Error"
)]
pub enum Error {
    /// The broker answered: no. Whether asking again helps is in `retry_after`.
    #[error("{message}")]
    Failed {
        /// The gRPC status code.
        code: Code,
        /// Which of the stable reasons, if the broker gave one that this release knows.
        reason: Option<Reason>,
        /// With [`OVERLOADED`](Reason::Overloaded): which limit of the broker is reached, by its name in the broker's
        /// configuration, for example `limits.watchesPerConnection`.
        limit: Option<String>,
        /// What failed and what to do about it, in the broker's words.
        message: String,
        /// When asking again may help; `None`: not before somebody changes something.
        retry_after: Option<Duration>,
    },
    /// The answer took longer than allowed. The plugin run, if there is one, goes on: ask again later.
    #[error("no answer within {limit:?}")]
    Timeout {
        /// What was allowed.
        limit: Duration,
    },
    /// No broker is there, it went away before it answered, or it accepts connections and sends nothing. Start it, or
    /// start it again.
    #[error("no broker answers on {socket}")]
    Unreachable {
        /// Where it was looked for.
        socket: Socket,
        /// What the last attempt met.
        source: Arc<dyn StdError + Send + Sync>,
    },
    /// The broker's credential cannot be used. It and this library are of releases that do not fit, or its plugin
    /// prints something odd; a person has to look at it.
    #[error("the broker's credential cannot be used: {problem}; see what its plugin prints")]
    Unusable {
        /// What is wrong; nothing of the credential itself.
        problem: &'static str,
    },
    /// Whoever listens there may be an impostor; nothing was sent. A person has to look at it.
    #[error("the socket {} is not trusted: {distrust}", path.display())]
    Untrusted {
        /// The socket.
        path: PathBuf,
        /// What is wrong and how to mend it.
        distrust: Distrust,
    },
}

impl Error {
    /// The exit code that credbroker's own commands end with: 1 the broker answered with a failure, 69 unreachable,
    /// 75 out of time, 77 denied (by the broker, or the broker by us).
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Failed { reason: Some(reason), .. } => reason.exit_code(),
            Self::Failed { code: Code::PermissionDenied, .. } | Self::Untrusted { .. } => 77,
            Self::Failed { .. } | Self::Unusable { .. } => 1,
            Self::Unreachable { .. } => 69,
            Self::Timeout { .. } => 75,
        }
    }

    /// No broker now, but one may be starting: nothing listens yet, its queue is full, or its predecessor is leaving.
    pub(crate) fn may_be_starting(&self) -> bool {
        match self {
            Self::Failed { reason, .. } => *reason == Some(Reason::Draining),
            Self::Unreachable { source, .. } => source.downcast_ref::<std::io::Error>().is_none_or(|error| {
                use std::io::ErrorKind::{ConnectionRefused, ConnectionReset, NotFound, WouldBlock};
                matches!(error.kind(), ConnectionRefused | ConnectionReset | NotFound | WouldBlock)
            }),
            Self::Timeout { .. } | Self::Untrusted { .. } | Self::Unusable { .. } => false,
        }
    }

    /// The broker's no: status code, message and `grpc-status-details-bin`. UNAVAILABLE that our `ErrorInfo` does not
    /// explain comes from no broker of ours: it counts as none.
    pub(crate) fn refused(socket: &Socket, code: Code, message: &str, details: &[u8]) -> Self {
        let Details { ours, reason, limit, retry_after } = Details::decode(details);
        if !ours && code == Code::Unavailable {
            return Self::lost(socket, ConnectionLost::new(message));
        }
        // The reason at the end is for clients that do not decode details.
        let ending = reason.map(|reason| format!(" ({})", reason.name()));
        let message = ending.and_then(|ending| message.strip_suffix(&ending)).unwrap_or(message).to_owned();
        Self::Failed { code, reason, limit, message, retry_after }
    }

    pub(crate) fn lost(socket: &Socket, lost: ConnectionLost) -> Self {
        Self::Unreachable { socket: socket.clone(), source: Arc::new(lost) }
    }
}

#[cfg(feature = "async")]
impl Error {
    /// A stream that should not have ended did.
    pub(crate) fn ended(socket: &Socket) -> Self {
        Self::lost(socket, ConnectionLost::new("the watch ended"))
    }

    /// Whether the connection that it came over is of no further use.
    pub(crate) fn ends_connection(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Failed { reason: Some(Reason::Draining), .. })
    }

    /// Something accepted the connection and then sent nothing.
    pub(crate) fn silent(socket: &Socket, limit: Duration) -> Self {
        let silence = format!("it accepted the connection and sent nothing for {limit:?}");
        let source = Arc::new(std::io::Error::new(std::io::ErrorKind::TimedOut, silence));
        Self::Unreachable { socket: socket.clone(), source }
    }

    /// Whether it is [`Self::silent`]: to ask again at once costs as long again.
    pub(crate) fn is_silence(&self) -> bool {
        let Self::Unreachable { source, .. } = self else { return false };
        source
            .downcast_ref::<std::io::Error>()
            .is_some_and(|error| error.kind() == std::io::ErrorKind::TimedOut)
    }

    /// Whether the connection that it came over has all the watches that the broker allows it.
    pub(crate) fn fills_connection(&self) -> bool {
        matches!(self, Self::Failed { limit: Some(limit), .. } if limit == WATCHES_PER_CONNECTION)
    }

    pub(crate) fn from_status(socket: &Socket, status: &tonic::Status) -> Self {
        match status.source().and_then(|source| source.downcast_ref::<ConnectionLost>()) {
            Some(lost) => Self::lost(socket, lost.clone()),
            None => Self::refused(socket, status.code().into(), status.message(), status.details()),
        }
    }
}

#[cfg(all(test, feature = "async"))]
mod tests {
    use std::collections::HashMap;

    use credbroker_proto::{DOMAIN, LIMIT};
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
    fn a_status_with_our_reason_keeps_it_and_its_exit_code() {
        for reason in Reason::all() {
            let error = converted(reason.code(), DOMAIN, reason.name());
            assert!(
                matches!(&error, Error::Failed { reason: Some(found), retry_after: Some(after), .. }
                    if *found == reason && after.as_secs() == 7),
                "{error:?}"
            );
            assert_eq!(error.exit_code(), reason.exit_code());
            assert_eq!(error.to_string(), "the plugin failed");
        }
    }

    #[test]
    fn only_the_limit_of_watches_concerns_the_connection() {
        let overloaded = |domain: &str, limit: &str| {
            let metadata = HashMap::from([(LIMIT.to_owned(), limit.to_owned())]);
            let details = ErrorDetails::with_error_info(Reason::Overloaded.name(), domain, metadata);
            let status = Status::with_error_details(Code::ResourceExhausted, "too much", details);
            Error::from_status(&Socket::at("/s"), &status)
        };
        let full = overloaded(DOMAIN, "limits.watchesPerConnection");
        assert!(
            matches!(&full, Error::Failed { limit: Some(limit), .. } if limit == "limits.watchesPerConnection")
        );
        assert!(full.fills_connection());
        assert!(!overloaded(DOMAIN, "limits.entries").fills_connection());
        assert!(!overloaded("example.com", "limits.watchesPerConnection").fills_connection());
        assert!(!converted(Code::ResourceExhausted, DOMAIN, "OVERLOADED").fills_connection());
    }

    #[test]
    fn unavailable_from_somebody_else_is_unreachable() {
        let foreign = converted(Code::Unavailable, "example.com", "PLUGIN_EXIT");
        assert_eq!(foreign.exit_code(), 69, "{foreign:?}");
        let bare = Error::from_status(&Socket::at("/s"), &Status::unavailable("no"));
        assert!(matches!(bare, Error::Unreachable { .. }), "{bare:?}");
        let unknown = converted(Code::Unavailable, DOMAIN, "A_LATER_REASON");
        assert_eq!(unknown.exit_code(), 1, "{unknown:?}");
        let denied = Error::from_status(&Socket::at("/s"), &Status::permission_denied("no"));
        assert_eq!(denied.exit_code(), 77);
    }

    #[test]
    fn only_what_may_be_a_starting_broker_is_tried_again() {
        let met = |kind: std::io::ErrorKind| Error::Unreachable {
            socket: Socket::at("/s"),
            source: Arc::new(std::io::Error::from(kind)),
        };
        assert!(met(std::io::ErrorKind::NotFound).may_be_starting());
        assert!(met(std::io::ErrorKind::ConnectionRefused).may_be_starting());
        assert!(!met(std::io::ErrorKind::PermissionDenied).may_be_starting());
        assert!(converted(Code::Unavailable, DOMAIN, "DRAINING").may_be_starting());
        assert!(!converted(Code::Unavailable, DOMAIN, "PLUGIN_EXIT").may_be_starting());
    }
}
