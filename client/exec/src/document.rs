//! The `ExecCredential` that a client reads.

use std::time::SystemTime;

use credbroker_client::{Credential, Error, ExposeSecret};

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
    /// Its name, as `apiVersion` has it.
    pub const fn name(self) -> &'static str {
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
        [Self::V1, Self::V1Beta1].into_iter().find(|version| version.short_name() == name)
    }

    pub(crate) fn short_name(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V1Beta1 => "v1beta1",
        }
    }
}

/// One line of JSON, with its newline: what an exec plugin prints.
///
/// # Errors
///
/// The certificate or the key is not UTF-8, so it is not PEM.
pub fn document(version: ApiVersion, credential: &Credential, now: SystemTime) -> Result<String, Error> {
    let identity = credential.identity();
    let expiry = expiration_for_client(credential.expires_at(), credential.lifetime(), now)
        .map(|timestamp| timestamp.to_string());
    written(
        version,
        &[
            ("expirationTimestamp", expiry.as_deref()),
            ("token", credential.token().map(ExposeSecret::expose_secret)),
            ("clientCertificateData", identity.map(|identity| text(identity.chain_pem())).transpose()?),
            ("clientKeyData", identity.map(|identity| text(identity.key_pem().expose_secret())).transpose()?),
        ],
    )
}

/// The document with these fields of its status.
pub(crate) fn written(version: ApiVersion, fields: &[(&str, Option<&str>)]) -> Result<String, Error> {
    // Once as large as it becomes, so that the secret is not copied.
    let length = fields.iter().filter_map(|(_, value)| *value).map(str::len).sum::<usize>();
    let mut line = String::with_capacity(length + length / 16 + 256);
    line.push_str(r#"{"kind":"ExecCredential","apiVersion":""#);
    line.push_str(version.name());
    line.push_str(r#"","status":{"#);
    let mut separator = "\"";
    for &(name, value) in fields {
        if let Some(value) = value {
            line.push_str(separator);
            line.push_str(name);
            line.push_str("\":");
            push_json(&mut line, value)?;
            separator = ",\"";
        }
    }
    line.push_str("}}\n");
    Ok(line)
}

/// A token has nothing to escape, and `serde_json` looks at each of its bytes for longer than the call takes.
fn push_json(line: &mut String, text: &str) -> Result<(), Error> {
    if text.bytes().any(|byte| matches!(byte, ..b' ' | b'"' | b'\\')) {
        // A string always serializes.
        line.push_str(&serde_json::to_string(text).ok().ok_or(NOT_TEXT)?);
    } else {
        line.push('"');
        line.push_str(text);
        line.push('"');
    }
    Ok(())
}

const NOT_TEXT: Error = Error::Unusable { problem: "its certificate or its key is not text" };

fn text(pem: &[u8]) -> Result<&str, Error> {
    str::from_utf8(pem).ok().ok_or(NOT_TEXT)
}

#[cfg(test)]
mod tests;
