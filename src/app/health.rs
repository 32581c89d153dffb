//! The health that gRPC reports: that of the services, of the hub, and of the configuration.

use std::sync::Arc;

use tokio::sync::watch;
use tonic_health::{ServingStatus, server::HealthReporter};

use credbroker_fleet::{Fleet, HubState, resolver::Resolver};
use credbroker_server::ReloadState;

/// The gRPC services under whose names health is reported, beside the empty one.
pub(super) const SERVICES: [&str; 2] =
    ["credbroker.v1.CredentialBroker", "credbroker.v1.CredentialBrokerAdmin"];
/// The same of the hub that ClusterProfiles are read from.
const HUB_SERVICE: &str = "hub";
/// The same of the files of the configuration.
const CONFIGURATION_SERVICE: &str = "configuration";

/// Reports the health of the hub under a separate name: the broker itself continues without the hub.
pub(super) async fn report_hub(fleet: &Fleet, resolver: &Resolver, health: &HealthReporter) {
    let mut states = fleet.hub_states();
    loop {
        let HubState { synced, problem } = states.borrow_and_update().clone();
        match problem {
            _ if resolver.fleet().is_none() => health.clone().clear_service_status(HUB_SERVICE).await,
            None if synced => health.set_service_status(HUB_SERVICE, ServingStatus::Serving).await,
            _ => health.set_service_status(HUB_SERVICE, ServingStatus::NotServing).await,
        }
        // The fleet keeps the sender alive.
        drop(states.changed().await);
    }
}

/// Reports whether the files are in force as they are, under a separate name: the broker continues with those before.
pub(super) async fn report_configuration(
    mut states: watch::Receiver<Arc<ReloadState>>,
    health: &HealthReporter,
) {
    loop {
        let is_current = states.borrow_and_update().failure.is_none();
        let serving = if is_current { ServingStatus::Serving } else { ServingStatus::NotServing };
        health.set_service_status(CONFIGURATION_SERVICE, serving).await;
        // The broker keeps the sender alive.
        drop(states.changed().await);
    }
}
