//! What an error of the broker carries beside its message: `grpc-status-details-bin`, a `google.rpc.Status`.

use std::{collections::HashMap, time::Duration};

use credbroker_proto::{DOMAIN, LIMIT, Reason};
use prost::Message;
use prost_types::Any;

/// What was found.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Details {
    /// There is an `ErrorInfo` of credbroker's domain, whether this release knows its reason or not.
    pub(crate) ours: bool,
    pub(crate) reason: Option<Reason>,
    /// Which limit is reached, of the reason that says so.
    pub(crate) limit: Option<String>,
    pub(crate) retry_after: Option<Duration>,
}

impl Details {
    /// Bytes that are not a `google.rpc.Status` say nothing.
    pub(crate) fn decode(bytes: &[u8]) -> Self {
        let mut found = Self::default();
        for any in &Status::decode(bytes).unwrap_or_default().details {
            if let Some(mut info) = unpacked::<ErrorInfo>(any, "google.rpc.ErrorInfo")
                && info.domain == DOMAIN
            {
                found.ours = true;
                found.reason = Reason::from_name(&info.reason);
                found.limit = info.metadata.remove(LIMIT);
            } else if let Some(info) = unpacked::<RetryInfo>(any, "google.rpc.RetryInfo") {
                found.retry_after = info.retry_delay.and_then(|delay| Duration::try_from(delay).ok());
            }
        }
        found
    }
}

fn unpacked<T: Message + Default>(any: &Any, name: &str) -> Option<T> {
    let (_, found) = any.type_url.rsplit_once('/')?;
    (found == name).then(|| T::decode(any.value.as_slice()).ok()).flatten()
}

/// `google.rpc.Status`, whose code and message are headers too.
#[derive(Clone, PartialEq, Message)]
struct Status {
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
mod tests {
    use tonic::Status;
    use tonic_types::{ErrorDetails, StatusExt};

    use super::*;

    fn found(details: ErrorDetails) -> Details {
        Details::decode(Status::with_error_details(tonic::Code::Unavailable, "m", details).details())
    }

    #[test]
    fn reason_and_pause_are_found_beside_what_else_there_is() {
        let mut details = ErrorDetails::with_debug_info(["x".to_owned()], "y");
        details.set_error_info("PLUGIN_EXIT", DOMAIN, HashMap::from([(LIMIT.to_owned(), "l".to_owned())]));
        details.set_retry_info(Some(Duration::from_millis(1500)));
        let pause = Some(Duration::from_millis(1500));
        let limit = Some("l".to_owned());
        let expected = Details { ours: true, reason: Some(Reason::PluginExit), limit, retry_after: pause };
        assert_eq!(found(details), expected);
    }

    #[test]
    fn a_later_reason_is_ours_and_that_of_another_domain_is_not() {
        let with = |reason, domain| found(ErrorDetails::with_error_info(reason, domain, HashMap::new()));
        assert_eq!(with("A_LATER_REASON", DOMAIN), Details { ours: true, ..Details::default() });
        assert_eq!(with("PLUGIN_EXIT", "example.com"), Details::default());
    }

    #[test]
    fn garbage_says_nothing() {
        for bytes in [&b""[..], b"\xff\xff\xff", b"\x1a\x03abc"] {
            assert_eq!(Details::decode(bytes), Details::default());
        }
    }
}
