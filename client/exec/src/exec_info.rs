//! `KUBERNETES_EXEC_INFO`: the version that the client reads, and its cluster.

use base64::{Engine, engine::general_purpose::STANDARD};
use credbroker_client::Cluster;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::document::ApiVersion;

/// The content of the variable.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ExecInfo {
    pub(crate) version: ApiVersion,
    pub(crate) cluster: Option<Cluster>,
    /// Whether the plugin may use standard input.
    pub(crate) interactive: bool,
}

/// The value of the variable is not valid. The error shows nothing of it but the apiVersion: it may contain secrets.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ExecInfoError {
    /// The certificate authorities are not base64.
    #[error("KUBERNETES_EXEC_INFO: certificate-authority-data is not base64")]
    Authorities,
    /// Another kind of document.
    #[error("KUBERNETES_EXEC_INFO is not of kind ExecCredential")]
    Kind,
    /// Not JSON, or a field has another type.
    #[error("KUBERNETES_EXEC_INFO is not a JSON ExecCredential (line {line}, column {column})")]
    Syntax {
        /// Line of the error.
        line: usize,
        /// Column of the error.
        column: usize,
    },
    /// A version that this release cannot print.
    #[error(
        "KUBERNETES_EXEC_INFO has apiVersion {0:?}; client.authentication.k8s.io/v1 and /v1beta1 are supported"
    )]
    Version(String),
}

#[derive(Deserialize)]
struct ExecInfoDocument<'a> {
    #[serde(rename = "apiVersion", default)]
    api_version: String,
    kind: Option<String>,
    #[serde(borrow)]
    spec: Option<Spec<'a>>,
}

#[derive(Default, Deserialize)]
struct Spec<'a> {
    #[serde(default)]
    interactive: Option<bool>,
    #[serde(borrow)]
    cluster: Option<ClusterDocument<'a>>,
}

/// `null` means absent in every field, as in Go.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct ClusterDocument<'a> {
    server: Option<String>,
    tls_server_name: Option<String>,
    insecure_skip_tls_verify: Option<bool>,
    certificate_authority_data: Option<String>,
    proxy_url: Option<String>,
    disable_compression: Option<bool>,
    #[serde(borrow)]
    config: Option<&'a RawValue>,
}

/// Blanks around the document are ignored: client-go ends it with a newline.
pub(crate) fn parse(text: &str) -> Result<ExecInfo, ExecInfoError> {
    let text = text.trim();
    if !text.starts_with('{') {
        return Err(ExecInfoError::Syntax { line: 1, column: 1 });
    }
    let document: ExecInfoDocument<'_> = serde_json::from_str(text)
        .map_err(|error| ExecInfoError::Syntax { line: error.line(), column: error.column() })?;
    if document.kind.is_some_and(|kind| kind != "ExecCredential") {
        return Err(ExecInfoError::Kind);
    }
    let version =
        ApiVersion::from_name(&document.api_version).ok_or(ExecInfoError::Version(document.api_version))?;
    let spec = document.spec.unwrap_or_default();
    let interactive = spec.interactive.unwrap_or_default();
    Ok(ExecInfo { version, interactive, cluster: spec.cluster.map(cluster).transpose()? })
}

impl ExecInfo {
    /// What the variable has for a plugin that did not ask for the cluster, as client-go writes it.
    pub(crate) fn without_cluster(version: ApiVersion, interactive: bool) -> String {
        let version = version.name();
        format!(
            r#"{{"kind":"ExecCredential","apiVersion":"{version}","spec":{{"interactive":{interactive}}}}}"#
        )
    }
}

fn cluster(document: ClusterDocument<'_>) -> Result<Cluster, ExecInfoError> {
    let decode = |authorities| STANDARD.decode(authorities).ok().ok_or(ExecInfoError::Authorities);
    let authorities = present(document.certificate_authority_data).map(decode).transpose()?;
    let mut cluster = Cluster::at(document.server.unwrap_or_default());
    cluster.tls_server_name = present(document.tls_server_name);
    cluster.insecure_skip_tls_verify = document.insecure_skip_tls_verify.unwrap_or_default();
    cluster.certificate_authority_data = authorities;
    cluster.proxy_url = present(document.proxy_url);
    cluster.disable_compression = document.disable_compression.unwrap_or_default();
    cluster.config = document.config.map(|config| config.get().to_owned().into());
    Ok(cluster)
}

/// Empty means absent: client-go leaves out empty fields.
fn present(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests;
