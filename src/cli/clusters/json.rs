//! `credbroker clusters -o json`.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use credbroker_client::{Cluster, ClusterState, Failure, Reason};
use serde_json::{Value, json};

use super::name;
use crate::cli::{
    fleet::{ClusterList, ClusterName},
    status,
};

pub(super) fn document(list: &ClusterList) -> Value {
    json!({
        "clusters": list.clusters.iter().map(|(name, cluster)| one(name, cluster)).collect::<Vec<_>>(),
        "hub": list.hub.as_ref().map(status::hub),
    })
}

fn one(at: &ClusterName, cluster: &ClusterState) -> Value {
    json!({
        "clusterProfile": {"namespace": at.namespace, "name": at.name},
        "displayName": cluster.display_name,
        "clusterManager": cluster.cluster_manager,
        "kubernetesVersion": cluster.kubernetes_version,
        "properties": cluster.properties.iter().map(|property| json!({
            "name": property.name,
            "value": property.value,
        })).collect::<Vec<_>>(),
        "provider": cluster.provider,
        "skippedProviders": cluster.skipped_providers.iter().map(|skipped| json!({
            "name": skipped.name,
            "message": skipped.message,
        })).collect::<Vec<_>>(),
        "cluster": cluster.cluster.as_ref().map(endpoint),
        "readiness": name(cluster.readiness),
        "failure": cluster.failure.as_ref().map(failure),
    })
}

/// A failure, as every command prints it in JSON.
pub(in crate::cli) fn failure(failure: &Failure) -> Value {
    json!({"reason": reason(failure), "message": failure.message})
}

/// The name of a failure's reason.
pub(in crate::cli) fn reason(failure: &Failure) -> &'static str {
    failure.reason.map_or("ERROR_REASON_UNSPECIFIED", Reason::name)
}

/// With the field names of `spec.cluster` of an ExecCredential.
fn endpoint(cluster: &Cluster) -> Value {
    json!({
        "server": cluster.server,
        "tlsServerName": cluster.tls_server_name,
        "insecureSkipTlsVerify": cluster.insecure_skip_tls_verify,
        "certificateAuthorityData": cluster.certificate_authority_data.as_ref().map(|data| STANDARD.encode(data)),
        "proxyUrl": cluster.proxy_url,
        "disableCompression": cluster.disable_compression,
        "config": cluster.config.as_ref().and_then(|config| serde_json::from_slice::<Value>(config).ok()),
    })
}
