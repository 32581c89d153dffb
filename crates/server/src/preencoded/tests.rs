use std::time::{Duration, SystemTime};

use bytes::Bytes;
use credbroker_proto::{
    v1::watch_credentials_response,
    v1alpha1::{self, attend_credential_response::Event},
};
use http_body_util::BodyStream;
use tonic::Code;

use super::*;
use credbroker_credential::{
    ClientPair, Cluster, Generation, Lifetime, LifetimeBound, Material, Now, Sha256, Token, Validity,
};

/// The messages of a body, and the error that ends it.
pub(crate) fn messages(body: Body) -> MessageStream<Bytes> {
    let frames = BodyStream::new(body).filter_map(async |frame| match frame.unwrap().into_data() {
        Ok(message) => Some(Ok(message)),
        Err(trailers) => {
            let status = Status::from_header_map(trailers.trailers_ref().unwrap()).unwrap();
            (status.code() != Code::Ok).then_some(Err(status))
        }
    });
    frames.boxed()
}

fn material(token: Option<&str>, has_pair: bool) -> Material {
    let token = token.map(|token| Token { secret: token.into(), expires_at: None });
    let pair = has_pair.then(|| ClientPair {
        chain_pem: b"chain".to_vec().into(),
        key_pem: b"key".to_vec().into(),
        fingerprint: Sha256([0xab; 32]),
        validity: Validity { from: SystemTime::UNIX_EPOCH, to: SystemTime::UNIX_EPOCH },
    });
    Material { token, pair }
}

fn draft(material: &Material) -> Draft<'_> {
    let fetched = Now { wall: SystemTime::UNIX_EPOCH + Duration::new(1_000, 5), boot: Duration::ZERO };
    let (expires_at, bound) = (fetched.wall + Duration::from_secs(60), LifetimeBound::ExpirationTimestamp);
    let lifetime = Lifetime { expires_at, within_skew: false, bound };
    Draft { generation: Generation::new("e".into(), 7), material, fetched, lifetime, cluster: None }
}

fn text<'a>(encoded: &'a EncodedCredential, range: Option<&Range<usize>>) -> Option<&'a str> {
    range.map(|range| str::from_utf8(&encoded.frame[range.clone()]).unwrap())
}

fn message(encoded: &EncodedCredential) -> Bytes {
    super::message(&encoded.frame).unwrap()
}

#[test]
fn every_field_of_a_credential_goes_out_and_the_secrets_are_where_it_says() {
    let encoded = encode(&draft(&material(Some("a token"), true)));
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
    for length in [1, 100, 127, 128, 200, 16_383, 16_384, 70_000] {
        let token = "t".repeat(length);
        let encoded = encode(&draft(&material(Some(&token), false)));
        assert_eq!(text(&encoded, encoded.token.as_ref()), Some(token.as_str()));
        assert_eq!((encoded.certificate, encoded.key), (None, None));
    }
    let encoded = encode(&draft(&material(None, true)));
    assert_eq!((text(&encoded, encoded.key.as_ref()), &encoded.token), (Some("key"), &None));
}

#[test]
fn a_short_answer_is_the_same_answer_with_a_flag() {
    for length in [1, 100, 127, 128, 16_384, 70_000] {
        let encoded = encode(&draft(&material(Some(&"t".repeat(length)), true)));
        let plain = pb::GetCredentialResponse::decode(message(&encoded)).unwrap();
        assert!(!plain.is_short);
        let short = super::message(&short(&encoded.frame)).unwrap();
        let short = pb::GetCredentialResponse::decode(short).unwrap();
        assert_eq!(short, pb::GetCredentialResponse { is_short: true, ..plain });
    }
}

#[test]
fn one_encoding_is_the_answer_to_all_calls() {
    let material = material(Some("a token"), true);
    let cluster = Cluster { server: "https://paris".into(), ..Cluster::default() };
    let encoded = encode(&Draft { cluster: Some(&cluster), ..draft(&material) });
    let attended = Bytes::from(attended(&encoded.frame).concat());
    let attended = v1alpha1::AttendCredentialResponse::decode(super::message(&attended).unwrap()).unwrap();
    let encoded = message(&encoded);
    let get = pb::GetCredentialResponse::decode(encoded.clone()).unwrap();
    let watch = pb::WatchCredentialResponse::decode(encoded.clone()).unwrap();
    let watches = pb::WatchCredentialsResponse::decode(encoded.clone()).unwrap();
    let report = pb::ReportRejectedResponse::decode(encoded).unwrap();
    assert_eq!(get.cluster.as_ref().unwrap().server, "https://paris");
    assert_eq!((&get.credential, &get.cluster), (&watch.credential, &watch.cluster));
    let credential = get.credential.clone().map(watch_credentials_response::Result::Credential);
    assert_eq!((&credential, &get.cluster), (&watches.result, &watches.cluster));
    assert_eq!((&get.credential, &get.cluster), (&report.credential, &report.cluster));
    assert_eq!(attended.event, Some(Event::Credential(get)));
}

#[test]
fn an_answer_in_a_context_is_the_same_answer_with_its_cluster() {
    let cluster = Cluster {
        server: "https://paris".into(),
        certificate_authority_data: vec![b'c'; 2000].into(),
        ..Cluster::default()
    };
    for length in [1, 127, 128, 70_000] {
        let material = material(Some(&"t".repeat(length)), true);
        let encoded = encode(&draft(&material));
        let with = encode(&Draft { cluster: Some(&cluster), ..draft(&material) });
        let whole = super::message(&with_cluster(&encoded.frame, &cluster)).unwrap();
        let read = |bytes: Bytes| pb::GetCredentialResponse::decode(bytes).unwrap();
        assert_eq!(read(whole), read(super::message(&with.frame).unwrap()));
        let short = short(&with_cluster(&encoded.frame, &cluster));
        assert!(read(super::message(&short).unwrap()).is_short);
    }
}
