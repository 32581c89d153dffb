//! `KUBERNETES_EXEC_INFO`: the version that the client reads, and its cluster.

use std::{collections::BTreeMap, ffi::OsStr};

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

#[derive(Deserialize)]
struct Spec<'a> {
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
    let cluster = document.spec.and_then(|spec| spec.cluster).map(cluster).transpose()?;
    Ok(ExecInfo { version, cluster })
}

/// The value of the variable without the cluster, for a plugin that did not ask for it.
pub(crate) fn without_cluster(info: &OsStr) -> Result<String, ExecInfoError> {
    type Object<'a> = BTreeMap<String, &'a RawValue>;
    let syntax =
        |error: &serde_json::Error| ExecInfoError::Syntax { line: error.line(), column: error.column() };
    let text = info.to_str().ok_or(ExecInfoError::Syntax { line: 1, column: 1 })?;
    let mut document: Object<'_> = serde_json::from_str(text).map_err(|error| syntax(&error))?;
    let Some(spec) = document.get("spec") else { return Ok(text.to_owned()) };
    let mut spec: Object<'_> = serde_json::from_str(spec.get()).map_err(|error| syntax(&error))?;
    spec.remove("cluster");
    let spec = serde_json::value::to_raw_value(&spec).map_err(|error| syntax(&error))?;
    document.insert("spec".to_owned(), &spec);
    serde_json::to_string(&document).map_err(|error| syntax(&error))
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
