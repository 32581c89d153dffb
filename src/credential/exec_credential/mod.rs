//! The `ExecCredential` documents of client.authentication.k8s.io: what a plugin is told, and what it must print.

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
    /// client.authentication.k8s.io/v1alpha1: removed from client-go; only for a provider that says so.
    V1Alpha1,
}

impl ApiVersion {
    /// The `apiVersion` as documents carry it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "client.authentication.k8s.io/v1",
            Self::V1Beta1 => "client.authentication.k8s.io/v1beta1",
            Self::V1Alpha1 => "client.authentication.k8s.io/v1alpha1",
        }
    }

    /// The version that `text` names, if it is one of ours.
    pub fn from_name(text: &str) -> Option<Self> {
        [Self::V1, Self::V1Beta1, Self::V1Alpha1].into_iter().find(|version| version.as_str() == text)
    }
}

/// The cluster a plugin is told about: the seven fields of `spec.cluster`. Empty means absent.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Cluster {
    /// URL of the API server.
    pub server: String,
    /// Name to check the server's certificate against.
    pub tls_server_name: String,
    /// Do not check the server's certificate.
    pub insecure_skip_tls_verify: bool,
    /// PEM bundle.
    pub certificate_authority_data: Bytes,
    /// Proxy for all requests.
    pub proxy_url: String,
    /// Do not ask for compressed responses.
    pub disable_compression: bool,
    /// Raw JSON of the `client.authentication.k8s.io/exec` extension, passed on as it is.
    pub config: Bytes,
}
