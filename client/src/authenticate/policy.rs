//! Which server may get which credential. Pure.

use http::{Uri, uri::Scheme};

use super::{destination::Destination, error::AuthenticateError};
use crate::cluster::Cluster;

/// The limits on where credentials are sent.
#[derive(Clone, Debug, Default)]
pub(super) struct Policy {
    /// Without TLS too.
    pub(super) plaintext: bool,
    /// To every server.
    pub(super) any_host: bool,
    /// The server for credentials that come without a cluster.
    pub(super) server: Option<Destination>,
}

impl Policy {
    /// What can be checked before there is a credential.
    pub(super) fn check_scheme(&self, uri: &Uri) -> Result<(), AuthenticateError> {
        if self.plaintext || uri.scheme() == Some(&Scheme::HTTPS) {
            return Ok(());
        }
        Err(AuthenticateError::Plaintext { destination: Destination::of(uri) })
    }

    /// Whether a credential that came with `cluster` may be sent to `uri`.
    pub(super) fn check_cluster(
        &self,
        uri: &Uri,
        cluster: Option<&Cluster>,
    ) -> Result<(), AuthenticateError> {
        if self.any_host {
            return Ok(());
        }
        let destination = Destination::of(uri);
        let expected = match cluster {
            // A URL that cannot be parsed names no server.
            Some(cluster) => Destination::parse(&cluster.server),
            None => self.server.clone(),
        };
        match expected {
            None => Err(AuthenticateError::UnknownCluster { destination }),
            Some(expected) if expected == destination => Ok(()),
            Some(cluster) => Err(AuthenticateError::OtherCluster { destination, cluster }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARIS: &str = "https://paris.example:6443/prefix";

    fn policy(server: Option<&str>) -> Policy {
        Policy { server: server.map(|server| Destination::parse(server).unwrap()), ..Policy::default() }
    }

    fn check(policy: &Policy, uri: &'static str, cluster: Option<&str>) -> &'static str {
        let mut cluster = cluster.map(Cluster::at);
        if let Some(cluster) = &mut cluster {
            // It says how the server proves its name, not where it is.
            cluster.tls_server_name = Some("evil.example".into());
        }
        match policy.check_cluster(&Uri::from_static(uri), cluster.as_ref()) {
            Ok(()) => "sent",
            Err(AuthenticateError::OtherCluster { .. }) => "other cluster",
            Err(AuthenticateError::UnknownCluster { .. }) => "unknown cluster",
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn a_credential_is_sent_to_its_own_cluster_only() {
        let policy = policy(None);
        for (uri, expected) in [
            ("https://paris.example:6443/version", "sent"),
            ("https://PARIS.example.:6443/", "sent"),
            ("https://paris.example/version", "other cluster"),
            ("http://paris.example:6443/version", "other cluster"),
            ("https://evil.example:6443/version", "other cluster"),
            ("/version", "other cluster"),
        ] {
            assert_eq!(check(&policy, uri, Some(PARIS)), expected, "{uri}");
        }
    }

    #[test]
    fn a_credential_without_a_cluster_is_sent_to_the_named_server_only() {
        assert_eq!(check(&policy(None), PARIS, None), "unknown cluster");
        assert_eq!(check(&policy(Some(PARIS)), PARIS, None), "sent");
        assert_eq!(check(&policy(Some(PARIS)), "https://evil.example", None), "other cluster");
    }

    #[test]
    fn the_cluster_of_the_credential_wins_over_the_named_server() {
        let lyon = Some("https://lyon.example");
        assert_eq!(check(&policy(Some(PARIS)), PARIS, lyon), "other cluster");
        assert_eq!(check(&policy(Some(PARIS)), "https://lyon.example", lyon), "sent");
    }

    #[test]
    fn a_cluster_whose_url_is_not_valid_gets_nothing() {
        for server in ["", "paris.example", "https://", "not a url"] {
            assert_eq!(check(&policy(Some(PARIS)), PARIS, Some(server)), "unknown cluster", "{server}");
        }
    }

    #[test]
    fn any_host_is_every_server() {
        let policy = Policy { any_host: true, ..Policy::default() };
        assert_eq!(check(&policy, "https://evil.example", Some(PARIS)), "sent");
        assert_eq!(check(&policy, "https://evil.example", None), "sent");
    }
}
