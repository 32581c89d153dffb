//! `Debug` of the messages that carry secrets: what is there and how long it is, never what it says.

use std::fmt;

use crate::v1::{Cluster, Credential, CredentialRef, credential_ref::Source};

/// Stands for a value of so many bytes.
struct Redacted(usize);

impl fmt::Debug for Redacted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[redacted, {} bytes]", self.0)
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential")
            .field("generation", &self.generation)
            .field("token", &Redacted(self.token.len()))
            .field("client_certificate_data", &Redacted(self.client_certificate_data.len()))
            .field("client_key_data", &Redacted(self.client_key_data.len()))
            .field("expiration_timestamp", &self.expiration_timestamp)
            .field("certificate_fingerprint", &self.certificate_fingerprint)
            .field("lifetime", &self.lifetime)
            .finish()
    }
}

/// The caller's environment may hold anything: its names are shown, its values are not.
impl fmt::Debug for CredentialRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CredentialRef")
            .field("source", &self.source)
            .field("cluster", &self.cluster)
            .field("env", &self.env.keys())
            .finish()
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Provider(name) => f.debug_tuple("Provider").field(name).finish(),
            Self::ClusterProfile(profile) => f.debug_tuple("ClusterProfile").field(profile).finish(),
        }
    }
}

/// A proxy URL may hold a password, and `config` is whatever the plugin wants.
impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("server", &self.server)
            .field("tls_server_name", &self.tls_server_name)
            .field("insecure_skip_tls_verify", &self.insecure_skip_tls_verify)
            .field("certificate_authority_data", &Redacted(self.certificate_authority_data.len()))
            .field("proxy_url", &Redacted(self.proxy_url.len()))
            .field("disable_compression", &self.disable_compression)
            .field("config", &Redacted(self.config.len()))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_message_shows_a_secret() {
        let canary = "c4n4ry";
        let credential = Credential {
            token: canary.into(),
            client_certificate_data: canary.into(),
            client_key_data: canary.into(),
            ..Credential::default()
        };
        let reference = CredentialRef {
            source: Some(Source::Provider("gke".into())),
            cluster: Some(Cluster {
                proxy_url: canary.into(),
                config: canary.into(),
                certificate_authority_data: canary.into(),
                ..Cluster::default()
            }),
            env: [("AWS_PROFILE".to_owned(), canary.to_owned())].into(),
        };
        let text = format!("{credential:?} {reference:?} {credential:#?} {reference:#?}");
        assert!(!text.contains(canary), "{text}");
        assert!(text.contains("gke") && text.contains("AWS_PROFILE") && text.contains("[redacted, 6 bytes]"));
    }
}
