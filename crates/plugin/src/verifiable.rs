//! Which API server the broker may ask whether it accepts a credential.

use std::sync::Arc;

use super::{behaviour::Verify, matching::difference, provider::Provider, target::Target};
use credbroker_credential::Cluster;

/// The cluster whose API server the broker may ask about a credential of `provider`, or of the ClusterProfile `target`.
/// `sent` is the cluster that the caller sent.
///
/// The result is always the broker's own value: a caller only selects among known clusters, so no caller can have a
/// credential sent to an address of its choice. `None`: the cluster is not known, or must not be asked.
pub fn verifiable_at(
    provider: &Provider,
    target: Option<&Arc<Target>>,
    sent: Option<&Cluster>,
) -> Option<Arc<Cluster>> {
    if provider.verify == Verify::Never {
        return None;
    }
    let fits = |known: &Cluster| sent.is_none_or(|sent| difference(sent, known).is_none());
    if let Some(target) = target {
        return fits(&target.endpoint).then(|| Arc::clone(&target.endpoint));
    }
    let mut fitting = provider.clusters.iter().filter(|known| fits(known));
    let first = fitting.next()?;
    fitting.all(|other| is_same_place(first, other)).then(|| Arc::new(first.clone()))
}

/// Whether the same server would be asked in the same way.
fn is_same_place(one: &Cluster, other: &Cluster) -> bool {
    one.server.trim_end_matches('/') == other.server.trim_end_matches('/')
        && one.certificate_authority_data.trim_ascii() == other.certificate_authority_data.trim_ascii()
        && one.tls_server_name == other.tls_server_name
        && one.proxy_url == other.proxy_url
        && one.insecure_skip_tls_verify == other.insecure_skip_tls_verify
}

#[cfg(test)]
mod tests;
