//! The input of a plugin: `KUBERNETES_EXEC_INFO`, and the versions of the `ExecCredential` API.

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
    /// The extension is not JSON.
    #[error("the cluster's exec extension is not valid JSON (line {line}, column {column})")]
    Config {
        /// Where the error is.
        line: usize,
        /// Where the error is.
        column: usize,
    },
    /// Linux limits one environment variable to 128 KiB.
    #[error(
        "KUBERNETES_EXEC_INFO would have {size} bytes, of which the certificate authorities are {authorities}; the kernel allows {limit}"
    )]
    TooLarge {
        /// Bytes of the variable, name included.
        size: usize,
        /// Bytes of `certificate-authority-data` in it.
        authorities: usize,
        /// Bytes the kernel allows.
        limit: usize,
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
    let info =
        Info { kind: "ExecCredential", api_version: version.as_str(), spec: Spec { cluster, interactive } };
    let json = serde_json::to_string(&info).map_err(invalid)?;
    let value = format!("{}\n", escaped(&compact(&json)));
    let size = "KUBERNETES_EXEC_INFO=".len() + value.len() + 1;
    if size > LIMIT {
        return Err(ExecInfoError::TooLarge { size, authorities, limit: LIMIT });
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
    #[serde(skip_serializing_if = "is_false")]
    insecure_skip_tls_verify: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    certificate_authority_data: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    proxy_url: &'a str,
    #[serde(skip_serializing_if = "is_false")]
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
            config: config.map(serde_json::from_slice).transpose().map_err(invalid)?,
        })
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
fn is_false(value: &bool) -> bool {
    !value
}

/// Keeps only the position: the message may quote the extension.
#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn invalid(error: serde_json::Error) -> ExecInfoError {
    ExecInfoError::Config { line: error.line(), column: error.column() }
}

/// Removes the white space between JSON tokens: the extension may have it, and a variable should be one line.
fn compact(json: &str) -> String {
    let (mut quoted, mut escape) = (false, false);
    json.chars()
        .filter(|&character| {
            let keep = quoted || !character.is_ascii_whitespace();
            match character {
                _ if escape => escape = false,
                '\\' => escape = true,
                '"' => quoted = !quoted,
                _ => {}
            }
            keep
        })
        .collect()
}

/// Escapes the characters that Go escapes in JSON. They only occur in strings.
fn escaped(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for character in json.chars() {
        match character {
            '<' => escaped.push_str("\\u003c"),
            '>' => escaped.push_str("\\u003e"),
            '&' => escaped.push_str("\\u0026"),
            '\u{2028}' => escaped.push_str("\\u2028"),
            '\u{2029}' => escaped.push_str("\\u2029"),
            _ => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests;
