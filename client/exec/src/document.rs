//! The `ExecCredential` that a client reads.

use std::time::SystemTime;

use credbroker_client::{Credential, Error, ExposeSecret};
use serde::Serialize;

use crate::expiry::expiration_for_client;

/// The version of the printed document. v1 and v1beta1 have the same fields.
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

    /// The version of that name; `None`: it is not supported.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::V1, Self::V1Beta1].into_iter().find(|version| version.name() == name)
    }

    pub(crate) fn from_short_name(name: &str) -> Option<Self> {
        [("v1", Self::V1), ("v1beta1", Self::V1Beta1)].into_iter().find(|row| row.0 == name).map(|row| row.1)
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PrintedCredential<'a> {
    kind: &'static str,
    api_version: &'static str,
    status: Status<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Status<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    expiration_timestamp: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client_certificate_data: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client_key_data: Option<&'a str>,
}

/// One line of JSON, with its newline: what an exec plugin prints.
///
/// # Errors
///
/// The certificate or the key is not UTF-8, so it is not PEM.
pub fn document(version: ApiVersion, credential: &Credential, now: SystemTime) -> Result<String, Error> {
    let identity = credential.identity();
    let status = Status {
        expiration_timestamp: expiration_for_client(credential.expires_at(), credential.lifetime(), now)
            .map(|timestamp| timestamp.to_string()),
        token: credential.token().map(ExposeSecret::expose_secret),
        client_certificate_data: identity.map(|identity| text(identity.chain_pem())).transpose()?,
        client_key_data: identity.map(|identity| text(identity.key_pem().expose_secret())).transpose()?,
    };
    let document = PrintedCredential { kind: "ExecCredential", api_version: version.name(), status };
    // Strings with fixed names always serialize.
    let mut line = serde_json::to_string(&document).ok().ok_or(NOT_TEXT)?;
    line.push('\n');
    Ok(line)
}

const NOT_TEXT: Error = Error::Unusable { problem: "its certificate or its key is not text" };

fn text(pem: &[u8]) -> Result<&str, Error> {
    str::from_utf8(pem).ok().ok_or(NOT_TEXT)
}

#[cfg(test)]
mod tests;
