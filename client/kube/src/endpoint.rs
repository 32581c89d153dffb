//! The cluster of a credential as a kube config.

use std::sync::Arc;

use credbroker_client::{Cluster, Destination};
use http::{
    Uri,
    uri::{InvalidUri, Scheme},
};
use kube::Config;
use rustls::pki_types::{
    CertificateDer,
    pem::{self, PemObject},
};

use crate::error::BuildError;

/// Sets all fields of `config` that say where requests go and which authorities they trust.
pub(crate) fn apply(cluster: &Cluster, config: &mut Config, plaintext: bool) -> Result<(), BuildError> {
    let refused = || BuildError::Server { server: cluster.server.clone() };
    let server: Uri = cluster.server.parse().map_err(|_invalid: InvalidUri| refused())?;
    let is_https = server.scheme() == Some(&Scheme::HTTPS);
    let is_known = is_https || server.scheme() == Some(&Scheme::HTTP);
    if !is_known || server.host().is_none_or(str::is_empty) {
        return Err(refused());
    }
    if !is_https && !plaintext {
        return Err(BuildError::Plaintext { destination: Destination::of(&server).to_string() });
    }
    config.cluster_url = server;
    config.root_cert = cluster.certificate_authority_data.as_deref().map(authorities).transpose()?;
    config.root_cert_file = None;
    config.accept_invalid_certs = cluster.insecure_skip_tls_verify;
    if config.accept_invalid_certs && config.root_cert.is_some() {
        return Err(BuildError::Unchecked);
    }
    config.tls_server_name.clone_from(&cluster.tls_server_name);
    let proxy = cluster.proxy_url.as_deref().map(str::parse).transpose();
    config.proxy_url = proxy.map_err(|_quotes_its_input: InvalidUri| BuildError::ProxyUrl)?;
    config.disable_compression = cluster.disable_compression;
    Ok(())
}

fn authorities(bundle: &[u8]) -> Result<Vec<Vec<u8>>, BuildError> {
    let certificates = CertificateDer::pem_slice_iter(bundle)
        .map(|certificate| certificate.map(|certificate| certificate.to_vec()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| BuildError::Authorities { source: Arc::new(error) })?;
    if certificates.is_empty() {
        return Err(BuildError::Authorities { source: Arc::new(pem::Error::NoItemsFound) });
    }
    Ok(certificates)
}

#[cfg(test)]
mod tests;
