//! The input of a plugin: `KUBERNETES_EXEC_INFO`, and the versions of the `ExecCredential` API.

use std::fmt::Write as _;

use base64::prelude::{BASE64_STANDARD, Engine};
use bytes::Bytes;
use serde::Serialize;
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
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Cluster {
    /// URL of the API server.
    pub server: String,
    /// The name to verify the server's certificate with.
    pub tls_server_name: String,
    /// Do not verify the server's certificate.
    pub insecure_skip_tls_verify: bool,
    /// PEM bundle.
    pub certificate_authority_data: Bytes,
    /// Proxy for all requests.
    pub proxy_url: String,
    /// Do not ask for compressed responses.
    pub disable_compression: bool,
    /// Raw JSON of the `client.authentication.k8s.io/exec` extension, passed on unchanged.
    pub config: Bytes,
}

/// Linux allows 32 pages for one environment variable, including the terminating NUL.
const LIMIT: usize = 128 << 10;

/// Why the cluster cannot be passed to a plugin.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ExecInfoError {
    /// The extension is not JSON. With the line and column of the error.
    #[error("the cluster's exec extension is not valid JSON (line {0}, column {1})")]
    Config(usize, usize),
    /// Linux limits one environment variable to 128 KiB.
    #[error(
        "KUBERNETES_EXEC_INFO would have {size} bytes, of which the certificate authorities are {authorities}; the kernel allows {LIMIT}"
    )]
    TooLarge {
        /// Bytes of the variable, name included.
        size: usize,
        /// Bytes of `certificate-authority-data` in it.
        authorities: usize,
    },
}

/// The value of `KUBERNETES_EXEC_INFO`, in the shape client-go writes. `interactive`: the plugin has a terminal.
pub fn exec_info(
    version: ApiVersion,
    cluster: Option<&Cluster>,
    interactive: bool,
) -> Result<String, ExecInfoError> {
    // v1alpha1 has no cluster.
    let cluster = cluster.filter(|_| version != ApiVersion::V1Alpha1).map(WireCluster::of).transpose()?;
    let authorities = cluster.as_ref().map_or(0, |cluster| cluster.certificate_authority_data.len());
    let spec = Spec { cluster, interactive };
    let info = Info { kind: "ExecCredential", api_version: version.as_str(), spec };
    let value = format!("{}\n", as_go_writes(&serde_json::to_string(&info)?));
    let size = "KUBERNETES_EXEC_INFO=".len() + value.len() + 1;
    if size > LIMIT {
        return Err(ExecInfoError::TooLarge { size, authorities });
    }
    Ok(value)
}

// The order of the fields, and the omission of empty ones, are those of client-go.

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
    cluster: Option<WireCluster<'a>>,
    interactive: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct WireCluster<'a> {
    server: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    tls_server_name: &'a str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    insecure_skip_tls_verify: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    certificate_authority_data: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    proxy_url: &'a str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    disable_compression: bool,
    config: Option<&'a RawValue>,
}

impl<'a> WireCluster<'a> {
    fn of(cluster: &'a Cluster) -> Result<Self, ExecInfoError> {
        let config = Some(&*cluster.config).filter(|config| !config.is_empty());
        Ok(Self {
            server: &cluster.server,
            tls_server_name: &cluster.tls_server_name,
            insecure_skip_tls_verify: cluster.insecure_skip_tls_verify,
            certificate_authority_data: BASE64_STANDARD.encode(&cluster.certificate_authority_data),
            proxy_url: &cluster.proxy_url,
            disable_compression: cluster.disable_compression,
            config: config.map(serde_json::from_slice).transpose()?,
        })
    }
}

/// Keeps only the position: the message may quote the extension.
impl From<serde_json::Error> for ExecInfoError {
    fn from(error: serde_json::Error) -> Self {
        Self::Config(error.line(), error.column())
    }
}

/// Removes the white space between tokens, which the extension may have: a variable should be one line. Escapes what Go escapes
/// in strings; it occurs nowhere else.
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
