//! How to reach a cluster.

use std::fmt;

use credbroker_proto::v1;

/// How to reach a cluster: the fields of `spec.cluster` in client.authentication.k8s.io/v1.
///
/// `Debug` shows neither the proxy, which may have a password, nor `config`.
///
/// ```
/// use credbroker_client::{Cluster, CredentialRef};
///
/// let mut cluster = Cluster::at("https://paris.example:6443");
/// cluster.tls_server_name = Some("paris.internal".into());
/// let reference = CredentialRef::provider("gke").cluster(cluster);
/// ```
#[derive(Clone, Default, Eq, PartialEq)]
#[cfg_attr(feature = "_serialize", derive(serde::Serialize), serde(rename_all = "camelCase"))]
#[non_exhaustive]
pub struct Cluster {
    /// URL of the API server.
    pub server: String,
    /// The name that the server's certificate must have. `None`: the host of `server`.
    pub tls_server_name: Option<String>,
    /// Do not check the server's certificate.
    pub insecure_skip_tls_verify: bool,
    /// The certificate authorities of the server, in PEM. `None`: those that the machine trusts.
    #[cfg_attr(feature = "_serialize", serde(serialize_with = "crate::serialize::base64"))]
    pub certificate_authority_data: Option<Vec<u8>>,
    /// URL of the proxy for all requests.
    pub proxy_url: Option<String>,
    /// Do not ask the server for compressed responses.
    pub disable_compression: bool,
    /// JSON of the extension `client.authentication.k8s.io/exec` of the cluster in a kubeconfig, for the plugin.
    #[cfg_attr(feature = "_serialize", serde(serialize_with = "crate::serialize::json"))]
    pub config: Option<Vec<u8>>,
}

impl Cluster {
    /// The cluster whose API server has this URL. Everything else is unset.
    pub fn at(server: impl Into<String>) -> Self {
        Self { server: server.into(), ..Self::default() }
    }

    /// Whether requests go to the same place and trust the same authorities. The fields for the plugin and the compression
    /// do not count.
    pub(crate) fn has_same_endpoint(&self, other: &Self) -> bool {
        let Self {
            server,
            tls_server_name,
            insecure_skip_tls_verify,
            certificate_authority_data,
            proxy_url,
            disable_compression: _,
            config: _,
        } = self;
        *server == other.server
            && *tls_server_name == other.tls_server_name
            && *insecure_skip_tls_verify == other.insecure_skip_tls_verify
            && *certificate_authority_data == other.certificate_authority_data
            && *proxy_url == other.proxy_url
    }

    pub(crate) fn from_message(message: v1::Cluster) -> Self {
        let v1::Cluster {
            server,
            tls_server_name,
            insecure_skip_tls_verify,
            certificate_authority_data,
            proxy_url,
            disable_compression,
            config,
        } = message;
        Self {
            server,
            tls_server_name,
            insecure_skip_tls_verify,
            certificate_authority_data: certificate_authority_data.map(Vec::from),
            proxy_url,
            disable_compression,
            config: config.map(Vec::from),
        }
    }

    pub(crate) fn into_message(self) -> v1::Cluster {
        let Self {
            server,
            tls_server_name,
            insecure_skip_tls_verify,
            certificate_authority_data,
            proxy_url,
            disable_compression,
            config,
        } = self;
        v1::Cluster {
            server,
            tls_server_name,
            insecure_skip_tls_verify,
            certificate_authority_data: certificate_authority_data.map(Into::into),
            proxy_url,
            disable_compression,
            config: config.map(Into::into),
        }
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.clone().into_message().fmt(f)
    }
}

#[cfg(test)]
mod tests;
