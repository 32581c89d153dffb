//! Which server may get which credential. Pure.

use http::{Uri, uri::Scheme};

use super::{destination::Destination, error::Refusal};
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
    pub(super) fn check_scheme(&self, uri: &Uri) -> Result<(), Refusal> {
        if self.plaintext || uri.scheme() == Some(&Scheme::HTTPS) {
            return Ok(());
        }
        Err(Refusal::Plaintext { destination: Destination::of(uri) })
    }

    /// Whether a credential that came with `cluster` may be sent to `uri`.
    pub(super) fn check_cluster(&self, uri: &Uri, cluster: Option<&Cluster>) -> Result<(), Refusal> {
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
            None => Err(Refusal::UnknownCluster { destination }),
            Some(expected) if expected == destination => Ok(()),
            Some(cluster) => Err(Refusal::OtherCluster { destination, cluster }),
        }
    }
}

#[cfg(test)]
mod tests;
