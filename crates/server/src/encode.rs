//! The answer to gets, watches and reports, and the last of an attended get, encoded once for each generation of each key.
//!
//! `GetCredentialResponse`, `WatchCredentialResponse`, `AttendCredentialResponse` and `ReportRejectedResponse` share the
//! encoded fields, so one encoding serves all four. A test checks this.

use std::ops::Range;

use credbroker_proto::v1 as pb;
use prost::{Message as _, encoding::encoded_len_varint};

use super::{convert, preencoded};
use credbroker_credential::{Draft, EncodedCredential};

/// Encodes `draft` as a `GetCredentialResponse`, framed for gRPC.
pub fn encode(draft: &Draft<'_>) -> EncodedCredential {
    let (chain, key) = draft.pair.unzip();
    let credential = pb::Credential {
        generation: draft.generation.to_string(),
        token: draft.token.map(str::to_owned),
        client_certificate_data: chain.map(<[u8]>::to_vec),
        client_key_data: key.map(<[u8]>::to_vec),
        expiration_time: convert::timestamp(draft.expires_at),
        certificate_fingerprint: draft.fingerprint.map(|print| print.to_string()),
        lifetime: convert::duration(draft.lifetime),
    };
    // prost writes fields in the order of their numbers, each as tag, length and bytes, and omits absent ones.
    let mut end = preencoded::HEAD + head(credential.encoded_len());
    let mut field = |value: Option<&[u8]>| -> Option<Range<usize>> {
        let length = value?.len();
        let start = end + head(length);
        end = start + length;
        Some(start..end)
    };
    field(Some(credential.generation.as_bytes()));
    let token = field(credential.token.as_ref().map(String::as_bytes));
    let certificate = field(credential.client_certificate_data.as_deref());
    let key = field(credential.client_key_data.as_deref());
    let cluster = draft.cluster.map(convert::cluster_message);
    let message = pb::GetCredentialResponse { credential: Some(credential), cluster };
    EncodedCredential { frame: preencoded::frame(&message), token, certificate, key }
}

/// Length in bytes of a tag with a field number below 16 and of the length that follows it.
fn head(length: usize) -> usize {
    1 + encoded_len_varint(length as u64)
}

#[cfg(test)]
mod tests;
