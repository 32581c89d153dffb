//! The answer to gets, watches and reports, and the last of an attended get, encoded once for each generation of each key.
//!
//! `GetCredentialResponse`, `WatchCredentialResponse`, `AttendCredentialResponse` and `ReportRejectedResponse` share the
//! encoded fields, so one encoding serves all four. A test checks this.

use std::ops::Range;

use credbroker_proto::v1 as pb;
use prost::{Message as _, encoding::encoded_len_varint};

use super::{convert, preencoded};
use crate::credential::{Draft, EncodedCredential};

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
mod tests {
    use std::{
        sync::Arc,
        time::{Duration, SystemTime},
    };

    use bytes::Bytes;

    use super::*;
    use crate::credential::{Cluster, Fingerprint, Generation};

    fn draft(generation: &Generation) -> Draft<'_> {
        Draft {
            generation,
            token: Some("a token"),
            pair: Some((b"chain", b"key")),
            fingerprint: Some(Fingerprint([0xab; 32])),
            expires_at: SystemTime::UNIX_EPOCH + Duration::new(1_060, 5),
            lifetime: Duration::from_secs(60),
            cluster: None,
        }
    }

    fn text<'a>(encoded: &'a EncodedCredential, range: Option<&Range<usize>>) -> Option<&'a str> {
        range.map(|range| str::from_utf8(&encoded.frame[range.clone()]).unwrap())
    }

    fn message(encoded: &EncodedCredential) -> Bytes {
        preencoded::message(&encoded.frame).unwrap()
    }

    #[test]
    fn every_field_of_a_credential_goes_out_and_the_secrets_are_where_it_says() {
        let generation = Generation::new(Arc::from("e"), 7);
        let encoded = encode(&draft(&generation));
        let sent = pb::GetCredentialResponse::decode(message(&encoded)).unwrap();
        let credential = sent.credential.unwrap();
        assert_eq!(credential.generation, "e-7");
        assert_eq!(credential.token.as_deref(), Some("a token"));
        assert_eq!(credential.client_certificate_data.as_deref(), Some(&b"chain"[..]));
        assert_eq!(credential.client_key_data.as_deref(), Some(&b"key"[..]));
        assert_eq!(credential.certificate_fingerprint, Some("ab".repeat(32)));
        let expiry = credential.expiration_time.unwrap();
        assert_eq!((expiry.seconds, expiry.nanos), (1_060, 5));
        assert_eq!(credential.lifetime.unwrap().seconds, 60);
        assert_eq!(text(&encoded, encoded.token.as_ref()), Some("a token"));
        assert_eq!(text(&encoded, encoded.certificate.as_ref()), Some("chain"));
        assert_eq!(text(&encoded, encoded.key.as_ref()), Some("key"));
    }

    #[test]
    fn secrets_of_any_length_are_found_and_absent_ones_have_no_place() {
        let generation = Generation::new(Arc::from("e"), 7);
        for length in [1, 100, 127, 128, 200, 16_383, 16_384, 70_000] {
            let token = "t".repeat(length);
            let encoded = encode(&Draft { token: Some(&token), pair: None, ..draft(&generation) });
            assert_eq!(text(&encoded, encoded.token.as_ref()), Some(token.as_str()));
            assert_eq!((encoded.certificate, encoded.key), (None, None));
        }
        let encoded = encode(&Draft { token: None, ..draft(&generation) });
        assert_eq!((text(&encoded, encoded.key.as_ref()), &encoded.token), (Some("key"), &None));
    }

    #[test]
    fn one_encoding_is_the_answer_to_all_four_calls() {
        let generation = Generation::new(Arc::from("e"), 7);
        let cluster = Cluster { server: "https://paris".into(), ..Cluster::default() };
        let encoded = message(&encode(&Draft { cluster: Some(&cluster), ..draft(&generation) }));
        let get = pb::GetCredentialResponse::decode(encoded.clone()).unwrap();
        let watch = pb::WatchCredentialResponse::decode(encoded.clone()).unwrap();
        let attended = pb::AttendCredentialResponse::decode(encoded.clone()).unwrap();
        let report = pb::ReportRejectedResponse::decode(encoded).unwrap();
        assert_eq!(get.cluster.as_ref().unwrap().server, "https://paris");
        assert_eq!((&get.credential, &get.cluster), (&watch.credential, &watch.cluster));
        assert_eq!((&get.credential, &get.cluster), (&attended.credential, &attended.cluster));
        assert_eq!((&get.credential, &get.cluster), (&report.credential, &report.cluster));
    }
}
