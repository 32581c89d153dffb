//! The `ExecCredential` documents of client.authentication.k8s.io: the input and the output of plugins.

mod error;
mod input;
mod output;

use bytes::Bytes;

pub use error::DecodeError;
pub use input::{ExecInfoError, exec_info};
pub use output::{Decoded, decode};

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
