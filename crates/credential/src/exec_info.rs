//! The input of a plugin: `KUBERNETES_EXEC_INFO`, and the versions of the `ExecCredential` API.

use std::fmt::Write as _;

use base64::{display::Base64Display, prelude::BASE64_STANDARD};
use bytes::Bytes;
use serde::{Serialize, Serializer, ser::Error as _};
use serde_json::value::RawValue;

/// A version of the exec credential API. v1 and v1beta1 have the same fields.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum ApiVersion {
    /// client.authentication.k8s.io/v1
    V1,
    /// client.authentication.k8s.io/v1beta1
    V1Beta1,
    /// client.authentication.k8s.io/v1alpha1: removed from client-go; only for providers that are configured for it.
    V1Alpha1,
}

impl ApiVersion {
    /// The `apiVersion` in documents.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "client.authentication.k8s.io/v1",
            Self::V1Beta1 => "client.authentication.k8s.io/v1beta1",
            Self::V1Alpha1 => "client.authentication.k8s.io/v1alpha1",
        }
    }

    /// The version of that name, if it is supported.
    pub fn from_name(text: &str) -> Option<Self> {
        [Self::V1, Self::V1Beta1, Self::V1Alpha1].into_iter().find(|version| version.as_str() == text)
    }
}

/// The cluster that is passed to a plugin: the seven fields of `spec.cluster`. Empty means absent.
///
/// The order of the fields in JSON, and the omission of empty ones, are as in client-go.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Cluster {
    /// URL of the API server.
    pub server: String,
    /// The name to verify the server's certificate with.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub tls_server_name: String,
    /// Do not verify the server's certificate.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub insecure_skip_tls_verify: bool,
    /// PEM bundle.
    #[serde(serialize_with = "base64", skip_serializing_if = "Bytes::is_empty")]
    pub certificate_authority_data: Bytes,
    /// Proxy for all requests.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub proxy_url: String,
    /// Do not ask for compressed responses.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub disable_compression: bool,
    /// Raw JSON of the `client.authentication.k8s.io/exec` extension, passed on unchanged.
    #[serde(serialize_with = "raw")]
    pub config: Bytes,
}

fn base64<S: Serializer>(bytes: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&Base64Display::new(bytes, &BASE64_STANDARD))
}

fn raw<S: Serializer>(json: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
    let json = Some(json).filter(|json| !json.is_empty());
    let json: Option<&RawValue> =
        json.map(|json| serde_json::from_slice(json)).transpose().map_err(S::Error::custom)?;
    json.serialize(serializer)
}

/// Linux allows 32 pages for one environment variable, including the terminating NUL.
const LIMIT: usize = 128 << 10;

/// Why the cluster cannot be passed to a plugin.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ExecInfoError {
    /// The extension is not JSON. With the line and column of the error.
    #[error("the cluster's exec extension is not valid JSON (line {0}, column {1})")]
    Config(usize, usize),
    /// Linux limits one environment variable to 128 KiB. With its bytes, name included, and the bytes of the authorities in it.
    #[error(
        "KUBERNETES_EXEC_INFO would have {0} bytes, of which the certificate authorities are {1}; the kernel allows {LIMIT}"
    )]
    TooLarge(usize, usize),
}

/// The value of `KUBERNETES_EXEC_INFO`, in the shape client-go writes. `interactive`: the plugin has a terminal.
pub fn exec_info(
    version: ApiVersion,
    cluster: Option<&Cluster>,
    interactive: bool,
) -> Result<String, ExecInfoError> {
    // v1alpha1 has no cluster.
    let cluster = cluster.filter(|_| version != ApiVersion::V1Alpha1);
    let info =
        Info { kind: "ExecCredential", api_version: version.as_str(), spec: Spec { cluster, interactive } };
    let value = format!("{}\n", as_go_writes(&serde_json::to_string(&info)?));
    let size = "KUBERNETES_EXEC_INFO=".len() + value.len() + 1;
    if size > LIMIT {
        let authorities =
            cluster.map_or(0, |cluster| cluster.certificate_authority_data.len().div_ceil(3) * 4);
        return Err(ExecInfoError::TooLarge(size, authorities));
    }
    Ok(value)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Info<'a> {
    kind: &'static str,
    api_version: &'static str,
    spec: Spec<'a>,
}

#[derive(Serialize)]
struct Spec<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<&'a Cluster>,
    interactive: bool,
}

/// Keeps only the position: the message may quote the extension.
impl From<serde_json::Error> for ExecInfoError {
    fn from(error: serde_json::Error) -> Self {
        Self::Config(error.line(), error.column())
    }
}

/// Removes white space between tokens, so that the variable is one line. Escapes what Go escapes in strings.
fn as_go_writes(json: &str) -> String {
    let (mut written, mut quoted, mut escape) = (String::with_capacity(json.len()), false, false);
    for character in json.chars() {
        match character {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                let _infallible = write!(written, "\\u{:04x}", u32::from(character));
            }
            _ if quoted || !character.is_ascii_whitespace() => written.push(character),
            _ => {}
        }
        quoted ^= character == '"' && !escape;
        escape = character == '\\' && !escape;
    }
    written
}

#[cfg(test)]
mod tests;
