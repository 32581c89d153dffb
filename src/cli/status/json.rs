//! `credbroker status -o json`.

use credbroker_client::{
    HubState,
    admin::{BrokerInfo, ProviderState},
};
use serde_json::{Value, json};

use super::overview::Overview;
use crate::cli::{clusters::failure, configuration, credentials, time::rfc3339};

pub(super) fn document(overview: &Overview) -> Value {
    json!({
        "broker": broker(&overview.broker),
        "configuration": overview.broker.configuration.as_ref().map(configuration::json),
        "providers": overview.providers.iter().map(provider).collect::<Vec<_>>(),
        "credentials": credentials::json(&overview.credentials),
    })
}

fn broker(broker: &BrokerInfo) -> Value {
    json!({
        "version": broker.version,
        "commit": broker.commit,
        "startTime": broker.started_at.map(rfc3339),
        "configFiles": broker.config_files,
        "sockets": broker.sockets,
        "hub": broker.hub.as_ref().map(hub),
    })
}

/// The hub, as every command prints it.
pub(in crate::cli) fn hub(hub: &HubState) -> Value {
    json!({
        "synced": hub.synced,
        "failure": hub.failure.as_ref().map(failure),
        "sinceTime": hub.since.map(rfc3339),
    })
}

fn provider(provider: &ProviderState) -> Value {
    json!({
        "name": provider.name,
        "definition": provider.definition,
        "command": provider.command,
        "servesClusterProfiles": provider.serves_cluster_profiles,
        "failure": provider.failure.as_ref().map(failure),
    })
}
