//! An error status of the broker.

use std::{collections::HashMap, time::Duration};

use credbroker_proto::{CLUSTER, Code, DOMAIN, ID, LIMIT, PROVIDER, Reason};
use prost::Message;
use prost_types::Any;

/// Why the broker has no credential: the error of a call, or what a state reports.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Failure {
    /// The gRPC status code.
    #[doc(hidden)]
    pub code: Code,
    /// The stable reason, if the broker sent one that this release knows.
    pub reason: Option<Reason>,
    /// The cause and the remedy, for people.
    pub message: String,
    /// The time after which another request may succeed. `None`: not before something changes, or unknown, as in the
    /// states of clusters and of the hub.
    pub retry_after: Option<Duration>,
    /// The provider, where one is concerned. Only with the error of a call, as the fields below.
    pub provider: Option<String>,
    /// The `ClusterProfile`, as `NAMESPACE/NAME`.
    pub cluster_profile: Option<String>,
    /// The id of the credential at the broker.
    pub id: Option<String>,
    /// With [`Reason::Overloaded`]: the limit that is reached, by its key in the broker's configuration such as
    /// `limits.connections`, or in words such as `watches of a connection` if it is fixed.
    pub limit: Option<String>,
}

impl Failure {
    /// A failure without a reason.
    #[doc(hidden)]
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            reason: None,
            message: message.into(),
            retry_after: None,
            provider: None,
            cluster_profile: None,
            id: None,
            limit: None,
        }
    }

    /// Reads `grpc-status-details-bin`, a `google.rpc.Status`; other bytes are ignored. Also returns whether there is an
    /// `ErrorInfo` of credbroker's domain, with a known reason or an unknown one.
    pub(crate) fn decode(code: Code, message: &str, details: &[u8]) -> (Self, bool) {
        let (mut failure, mut is_ours) = (Self::new(code, message), false);
        for any in &RpcStatus::decode(details).unwrap_or_default().details {
            if let Some(mut info) = unpacked::<ErrorInfo>(any, "google.rpc.ErrorInfo")
                && info.domain == DOMAIN
            {
                is_ours = true;
                failure.reason = Reason::from_name(&info.reason);
                failure.provider = info.metadata.remove(PROVIDER);
                failure.cluster_profile = info.metadata.remove(CLUSTER);
                failure.id = info.metadata.remove(ID);
                failure.limit = info.metadata.remove(LIMIT);
            } else if let Some(info) = unpacked::<RetryInfo>(any, "google.rpc.RetryInfo") {
                failure.retry_after = info.retry_delay.and_then(|delay| Duration::try_from(delay).ok());
            }
        }
        // The reason at the end of the message is for clients that do not decode details.
        let ending = failure.reason.map(|reason| format!(" ({})", reason.name()));
        if let Some(text) = ending.and_then(|ending| failure.message.strip_suffix(&ending)) {
            failure.message = text.to_owned();
        }
        (failure, is_ours)
    }
}

#[cfg(feature = "async")]
impl Failure {
    /// The failure that a state reports.
    pub(crate) fn from_message(message: credbroker_proto::v1::Failure) -> Self {
        let reason = Reason::from_message(message.reason());
        let code = reason.map_or(Code::Unknown, Reason::code);
        let retry_after = message.retry_after.and_then(|delay| Duration::try_from(delay).ok());
        let mut metadata = message.metadata;
        Self {
            reason,
            retry_after,
            provider: metadata.remove(PROVIDER),
            cluster_profile: metadata.remove(CLUSTER),
            id: metadata.remove(ID),
            limit: metadata.remove(LIMIT),
            ..Self::new(code, message.message)
        }
    }
}

fn unpacked<T: Message + Default>(any: &Any, name: &str) -> Option<T> {
    let (_, found) = any.type_url.rsplit_once('/')?;
    (found == name).then(|| T::decode(any.value.as_slice()).ok()).flatten()
}

/// `google.rpc.Status`. Its code and message are headers too.
#[derive(Clone, PartialEq, Message)]
struct RpcStatus {
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

/// `google.rpc.ErrorInfo`.
#[derive(Clone, PartialEq, Message)]
struct ErrorInfo {
    #[prost(string, tag = "1")]
    reason: String,
    #[prost(string, tag = "2")]
    domain: String,
    #[prost(map = "string, string", tag = "3")]
    metadata: HashMap<String, String>,
}

/// `google.rpc.RetryInfo`.
#[derive(Clone, PartialEq, Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<prost_types::Duration>,
}

#[cfg(test)]
mod tests;
