//! Whether the broker and its providers are ready, and the reason if they are not; and gRPC health, which reports it: of the
//! broker, of its services, and of each provider under its name. Watches use little memory.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;
use credbroker_proto::Reason;
use tokio::time::sleep;
use tonic::{Request, Response, Status};
use tonic_health::pb::{
    HealthCheckRequest, HealthCheckResponse, health_check_response::ServingStatus, health_server,
};

use super::{
    access::{Access, Policies},
    broker::Broker,
    preencoded::{self, Follow, MessageStream},
    status,
};
use credbroker_cache::ProviderSummary;
use credbroker_fleet::Fleet;
use credbroker_plugin::access::CallTarget;
use credbroker_runner::PluginRunner;

/// The names under which the health of the broker and of its services is reported. Providers have no part in it.
const OWN: [&str; 4] = [
    "",
    "credbroker.v1.CredentialBroker",
    "credbroker.v1alpha1.CredentialBrokerAdmin",
    "credbroker.v1alpha1.CredentialBrokerLogin",
];
/// How often the state of anything else is read for a watch.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The name of a provider that is checked, and why it is not ready.
pub(super) type ProviderChecks = BTreeMap<Arc<str>, Option<Reason>>;

#[derive(Debug, Eq, PartialEq)]
pub(super) struct Checks {
    /// The broker itself, and the hub if there is one, and why they are not ready.
    pub(super) parts: Vec<(&'static str, Option<Reason>)>,
    pub(super) providers: ProviderChecks,
}

impl Checks {
    /// Replaces the providers by one of the name `*`, which is ready if all are.
    pub(super) fn merge_providers(&mut self) {
        let merged = self.providers.values().fold(None, |first, reason| first.or(*reason));
        self.providers = ProviderChecks::from([("*".into(), merged)]);
    }

    /// Whether everything is ready, except the providers in `excluded`.
    pub(super) fn is_ready(&self, excluded: &[String]) -> bool {
        let counts = |name: &str| !excluded.iter().any(|excluded| excluded == name);
        let mut providers = self.providers.iter().filter(|(name, _)| counts(name));
        self.parts.iter().all(|(_, reason)| reason.is_none()) && providers.all(|(_, reason)| reason.is_none())
    }
}

impl<R: PluginRunner> Broker<R> {
    pub(super) async fn checks(&self) -> Checks {
        let (providers, _) = self.provider_checks(None).await;
        // After the first read the known profiles stay in use, also while the hub is not available.
        let hub = |fleet: Arc<Fleet>| ("hub", (!fleet.hub().synced).then_some(Reason::HubUnavailable));
        let parts = [("broker", self.draining())].into_iter().chain(self.resolver.fleet().map(hub)).collect();
        Checks { parts, providers }
    }

    /// Checks one provider, or all, and returns what was read for it. A provider is ready while it has a valid
    /// credential, also if a later run failed; else if its plugin is installed and its last run did not fail.
    pub(super) async fn provider_checks(
        &self,
        only: Option<&str>,
    ) -> (ProviderChecks, BTreeMap<Arc<str>, ProviderSummary>) {
        let summaries = self.cache.summaries(only).await;
        let mut checks = ProviderChecks::new();
        let providers = self.resolver.providers();
        for provider in providers.iter().filter(|provider| only.is_none_or(|only| *provider.name == *only)) {
            let summary = summaries.get(&provider.name);
            let reason = match (summary, providers.is_runnable(provider)) {
                _ if self.draining().is_some() => self.draining(),
                (Some(summary), _) if summary.holds_valid() => None,
                (_, Err(error)) => Some(status::resolve_reason(&error)),
                (Some(ProviderSummary { failed: Some(failed), .. }), Ok(())) => {
                    Some(status::cache_reason(&failed.error))
                }
                _ => None,
            };
            // Of several definitions of one name, one that is not ready counts.
            let check = checks.entry(Arc::clone(&provider.name)).or_default();
            *check = check.or(reason);
        }
        (checks, summaries)
    }

    fn draining(&self) -> Option<Reason> {
        self.cache.is_draining().then_some(Reason::Draining)
    }
}

/// The gRPC service. Not tonic's, each of whose watches keeps 8 KiB to encode messages of two bytes.
#[derive(Debug)]
pub(super) struct Health<R>(pub(super) Arc<Broker<R>>);

/// The state of what has this `name`; `None`: there is no such thing, or the peer has no right to it. Names of the broker's
/// own come before those of providers.
async fn state<R: PluginRunner>(broker: &Broker<R>, access: &Access, name: &str) -> Option<ServingStatus> {
    let is_well = match (name, broker.resolver.fleet()) {
        (own, _) if OWN.contains(&own) => !broker.stopping.is_cancelled(),
        ("hub", Some(fleet)) => {
            let hub = fleet.hub();
            hub.synced && hub.problem.is_none()
        }
        ("configuration", _) => broker.configuration.borrow().problems.is_empty(),
        // The broker with all of its providers.
        ("ready", _) => broker.checks().await.is_ready(&[]),
        _ if access.rights().reach(CallTarget::Provider(name)) => {
            broker.provider_checks(Some(name)).await.0.get(name)?.is_none()
        }
        _ => return None,
    };
    Some(if is_well { ServingStatus::Serving } else { ServingStatus::NotServing })
}

fn unknown() -> Status {
    Status::not_found("service not registered")
}

#[tonic::async_trait]
impl<R: PluginRunner> health_server::Health for Health<R> {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let state = state(&self.0, Access::of(&request)?, &request.get_ref().service).await;
        state.map(|state| Response::new(HealthCheckResponse { status: state.into() })).ok_or_else(unknown)
    }

    type WatchStream = MessageStream<HealthCheckResponse>;

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let (access, broker) = (Arc::clone(Access::of(&request)?), Arc::clone(&self.0));
        let (policies, name) = (access.changes(), request.into_inner().service);
        state(&broker, &access, &name).await.ok_or_else(unknown)?;
        Ok(HealthStream { broker, access, policies, name, last: None }.response())
    }
}

/// A watch: the state now, then each change of it. It ends once a provider is no longer configured, or the peer has no right
/// to it: that looks the same.
struct HealthStream<R> {
    broker: Arc<Broker<R>>,
    access: Arc<Access>,
    policies: Policies,
    name: String,
    last: Option<ServingStatus>,
}

impl<R: PluginRunner> Follow for HealthStream<R> {
    async fn next(&mut self) -> Option<Result<Bytes, Status>> {
        let stopping = &self.broker.stopping;
        let look = if OWN.contains(&&*self.name) { Duration::MAX } else { LOOK_EVERY };
        loop {
            let Some(now) = state(&self.broker, &self.access, &self.name).await else {
                return Some(Err(unknown()));
            };
            if self.last.replace(now) != Some(now) {
                return Some(Ok(preencoded::frame(&HealthCheckResponse { status: now.into() })));
            }
            tokio::select! {
                () = sleep(look) => {}
                () = stopping.cancelled(), if !stopping.is_cancelled() => {}
                Ok(()) = self.policies.changed() => {}
            }
        }
    }
}
