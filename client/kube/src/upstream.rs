//! Connections to a cluster for credbroker's proxy, which does not use kube's client.

use std::time::Duration;

use credbroker_client::{CredentialSource, tls::Drain};
use http::Uri;
use kube::Config;
use tokio_util::sync::CancellationToken;

use crate::{body::RequestBody, error::BuildError, router::EndpointRouter, stack::StackConfig};

/// How connections to a cluster are made.
#[derive(Clone, Debug)]
pub struct Upstream {
    /// How long a busy connection stays open after its certificate was replaced.
    pub drain: Drain,
    /// How long it may take to make a connection, TLS included.
    pub connect: Duration,
    /// Connections that are kept without a request.
    pub idle: usize,
    /// All connections end when this is cancelled.
    pub ends: CancellationToken,
}

impl Upstream {
    /// Sends requests to the cluster that comes with the credentials of `source`, as a
    /// [`ClusterBuilder`](crate::ClusterBuilder) does. The URI of a request is a path. Needs a tokio runtime.
    ///
    /// # Errors
    ///
    /// None in practice: there is no config that could have a credential.
    pub fn to<B: RequestBody>(self, source: CredentialSource) -> Result<EndpointRouter<B>, BuildError> {
        let Self { drain, connect, idle, ends } = self;
        let mut config = Config::new(Uri::from_static("https://unknown.invalid"));
        config.connect_timeout = Some(connect);
        // A stream may be silent for as long as it likes.
        (config.read_timeout, config.write_timeout) = (None, None);
        let stack = StackConfig { drain, idle, ..StackConfig::new(config) };
        stack.check()?;
        Ok(EndpointRouter::until(source, stack, ends))
    }
}
