//! The `ExecCredential` that a client reads.

use std::time::SystemTime;

use credbroker_proto::v1::Credential;
use serde::Serialize;

use crate::expiry::expiration_for_client;

/// The version that the answer is in. v1 and v1beta1 have the same fields.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ApiVersion {
    /// client.authentication.k8s.io/v1
    #[default]
    V1,
    /// client.authentication.k8s.io/v1beta1
    V1Beta1,
}

impl ApiVersion {
    const fn name(self) -> &'static str {
        match self {
            Self::V1 => "client.authentication.k8s.io/v1",
            Self::V1Beta1 => "client.authentication.k8s.io/v1beta1",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        [Self::V1, Self::V1Beta1].into_iter().find(|version| version.name() == name)
    }

    pub(crate) fn from_short_name(name: &str) -> Option<Self> {
        [("v1", Self::V1), ("v1beta1", Self::V1Beta1)].into_iter().find(|row| row.0 == name).map(|row| row.1)
    }
}

/// An answer of the broker that no client could use. With it, a client would continue as an anonymous user.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum AnswerError {
    /// Neither a token nor a certificate.
    #[error("the broker's answer holds no credential; its version may not fit this one's")]
    Empty,
    /// One half of a pair.
    #[error("the broker's answer holds a certificate or a key without the other")]
    HalfPair,
    /// Certificate or key is not UTF-8, so it is not PEM.
    #[error("the broker's answer holds a certificate or a key that is not text")]
    NotText,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    kind: &'static str,
    api_version: &'static str,
    status: Status<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Status<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    expiration_timestamp: Option<String>,
    #[serde(skip_serializing_if = "str::is_empty")]
    token: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    client_certificate_data: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    client_key_data: &'a str,
}

/// One line of JSON, with its newline: what an exec plugin prints.
///
/// # Errors
///
/// The credential is one that no client could use.
pub fn document(
    version: ApiVersion,
    credential: &Credential,
    now: SystemTime,
) -> Result<String, AnswerError> {
    let text = |bytes: Option<_>| str::from_utf8(bytes.unwrap_or_default()).ok().ok_or(AnswerError::NotText);
    let status = Status {
        expiration_timestamp: expiration_for_client(credential.expiration_time, credential.lifetime, now)
            .map(|timestamp| timestamp.to_string()),
        token: credential.token.as_deref().unwrap_or_default(),
        client_certificate_data: text(credential.client_certificate_data.as_deref())?,
        client_key_data: text(credential.client_key_data.as_deref())?,
    };
    match (status.client_certificate_data.is_empty(), status.client_key_data.is_empty()) {
        (true, true) if status.token.is_empty() => return Err(AnswerError::Empty),
        (certificate, key) if certificate != key => return Err(AnswerError::HalfPair),
        _ => {}
    }
    let document = Document { kind: "ExecCredential", api_version: version.name(), status };
    // Strings under fixed names: there is nothing in it that could fail.
    let mut line = serde_json::to_string(&document).ok().ok_or(AnswerError::NotText)?;
    line.push('\n');
    Ok(line)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use prost_types::Timestamp;

    use super::*;

    fn printed(credential: &Credential) -> Result<String, AnswerError> {
        document(ApiVersion::V1, credential, UNIX_EPOCH + Duration::from_secs(1_800_000_000))
    }

    #[test]
    fn a_token_with_its_expiry_is_one_line_of_json() {
        let credential = Credential {
            token: Some("t\"<é\n".into()),
            expiration_time: Some(Timestamp { seconds: 1_800_003_600, nanos: 5 }),
            ..Credential::default()
        };
        assert_eq!(
            printed(&credential).unwrap(),
            concat!(
                r#"{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":"#,
                r#"{"expirationTimestamp":"2027-01-15T08:59:30Z","token":"t\"<é\n"}}"#,
                "\n"
            )
        );
    }

    #[test]
    fn a_pair_is_printed_as_it_came_and_in_the_version_asked_for() {
        let credential = Credential {
            client_certificate_data: Some(b"-----BEGIN\r\n".to_vec()),
            client_key_data: Some(b"KEY\n".to_vec()),
            ..Credential::default()
        };
        assert_eq!(
            document(ApiVersion::V1Beta1, &credential, UNIX_EPOCH).unwrap(),
            concat!(
                r#"{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1beta1","status":"#,
                r#"{"clientCertificateData":"-----BEGIN\r\n","clientKeyData":"KEY\n"}}"#,
                "\n"
            )
        );
    }

    #[test]
    fn what_would_make_a_client_anonymous_is_refused() {
        let pem = |certificate: &[u8], key: &[u8]| Credential {
            client_certificate_data: Some(certificate.to_vec()),
            client_key_data: Some(key.to_vec()),
            ..Credential::default()
        };
        assert_eq!(printed(&Credential::default()), Err(AnswerError::Empty));
        assert_eq!(printed(&pem(b"c", b"")), Err(AnswerError::HalfPair));
        assert_eq!(printed(&pem(b"", b"k")), Err(AnswerError::HalfPair));
        assert_eq!(printed(&pem(b"\xff", b"k")), Err(AnswerError::NotText));
    }
}
