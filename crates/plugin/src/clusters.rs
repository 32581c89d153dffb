//! Compares clusters that callers send with those that the broker knows.

use std::sync::Arc;

use serde_json::Value;

use super::{provider::Provider, spec::Target};
use credbroker_credential::Cluster;

/// How `sent` differs from `known`; `None` if it is the same cluster. A value that is not sent cannot differ: older clients
/// drop the TLS name. Proxy and compression are not compared: client-go takes the proxy from the caller's environment.
pub fn difference(sent: &Cluster, known: &Cluster) -> Option<&'static str> {
    let differs = |sent: &str, known: &str| !sent.is_empty() && sent != known;
    if sent.server.trim_end_matches('/') != known.server.trim_end_matches('/') {
        Some("its server is different")
    } else if !sent.certificate_authority_data.trim_ascii().is_empty()
        && sent.certificate_authority_data.trim_ascii() != known.certificate_authority_data.trim_ascii()
    {
        Some("its certificate authorities are different")
    } else if differs(&sent.tls_server_name, &known.tls_server_name) {
        Some("its TLS server name is different")
    } else if !is_same_json(&sent.config, &known.config) {
        Some("its exec extension is different")
    } else {
        None
    }
}

/// Compares values, because Go decodes and encodes the JSON: blanks and escapes can differ.
fn is_same_json(sent: &[u8], known: &[u8]) -> bool {
    let read = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).ok();
    sent.is_empty()
        || sent == b"null"
        || sent == known
        || read(sent).is_some_and(|sent| Some(sent) == read(known))
}

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
    if !provider.verify {
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
