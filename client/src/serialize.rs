//! The JSON of states as credbroker's own programs print it: the feature `serialize`. It is not a part of the stable API.

#![expect(clippy::ref_option, reason = "serde passes fields so")]

use std::time::SystemTime;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use credbroker_proto::Reason;
use prost_types::Timestamp;
use serde::{Serialize, Serializer, ser::SerializeStruct as _};

use crate::failure::Failure;

/// RFC 3339 in whole seconds.
pub(crate) fn time<S: Serializer>(at: &Option<SystemTime>, serializer: S) -> Result<S::Ok, S::Error> {
    at.map(|at| Timestamp { nanos: 0, ..Timestamp::from(at) }.to_string()).serialize(serializer)
}

pub(crate) fn base64<S: Serializer>(data: &Option<Vec<u8>>, serializer: S) -> Result<S::Ok, S::Error> {
    data.as_ref().map(|data| STANDARD.encode(data)).serialize(serializer)
}

/// JSON in bytes as a part of the document; null if it is none.
pub(crate) fn json<S: Serializer>(data: &Option<Vec<u8>>, serializer: S) -> Result<S::Ok, S::Error> {
    let value = |data: &Vec<u8>| serde_json::from_slice::<serde_json::Value>(data).ok();
    data.as_ref().and_then(value).serialize(serializer)
}

/// The failure that a state reports.
impl Serialize for Failure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut failure = serializer.serialize_struct("Failure", 2)?;
        let reason = self.reason.map_or("ERROR_REASON_UNSPECIFIED", Reason::name);
        failure.serialize_field("reason", reason)?;
        failure.serialize_field("message", &self.message)?;
        failure.end()
    }
}
