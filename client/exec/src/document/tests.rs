use std::time::{Duration, UNIX_EPOCH};

use credbroker_proto::v1;
use prost_types::Timestamp;

use super::*;

fn printed(version: ApiVersion, credential: v1::Credential) -> Result<String, Error> {
    document(version, &credential.try_into()?, UNIX_EPOCH + Duration::from_secs(1_800_000_000))
}

#[test]
fn a_token_with_its_expiry_is_one_line_of_json() {
    let credential = v1::Credential {
        token: Some("t\"<".into()),
        expiration_time: Some(Timestamp { seconds: 1_800_003_600, nanos: 5 }),
        ..v1::Credential::default()
    };
    assert_eq!(
        printed(ApiVersion::V1, credential).unwrap(),
        concat!(
            r#"{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":"#,
            r#"{"expirationTimestamp":"2027-01-15T08:59:30Z","token":"t\"<"}}"#,
            "\n"
        )
    );
}

#[test]
fn a_pair_is_printed_as_it_came_and_in_the_version_asked_for() {
    let credential = v1::Credential {
        client_certificate_data: Some(b"-----BEGIN\r\n".to_vec()),
        client_key_data: Some(b"KEY\n".to_vec()),
        ..v1::Credential::default()
    };
    assert_eq!(
        printed(ApiVersion::V1Beta1, credential).unwrap(),
        concat!(
            r#"{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1beta1","status":"#,
            r#"{"clientCertificateData":"-----BEGIN\r\n","clientKeyData":"KEY\n"}}"#,
            "\n"
        )
    );
}

#[test]
fn a_pair_that_is_not_text_is_refused() {
    for (certificate, key) in [(&b"\xff"[..], &b"k"[..]), (b"c", b"\xff")] {
        let credential = v1::Credential {
            client_certificate_data: Some(certificate.to_vec()),
            client_key_data: Some(key.to_vec()),
            ..v1::Credential::default()
        };
        let refused = printed(ApiVersion::V1, credential);
        assert!(matches!(refused, Err(Error::Unusable { .. })), "{refused:?}");
    }
}
