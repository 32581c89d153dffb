//! gRPC health: of the broker, of its services, and of each provider under its name. Watches use little memory.

use std::{pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use tokio::time::sleep;
use tonic::{Code, Request, Response, Status};
use tonic_health::{
    ServingStatus,
    pb::{self, HealthCheckRequest, HealthCheckResponse},
    server::{HealthReporter, HealthService, WatchStream},
};

use super::{
    access::{Access, Policies},
    preencoded::{self, Follow},
    readiness::HealthChecks,
};
use credbroker_plugin::access::CallTarget;
use credbroker_runner::PluginRunner;

/// The name under which the readiness of the broker with all of its providers is reported.
const READY: &str = "ready";
/// How often the state of a provider is read for a watch.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Wraps tonic's service to avoid its buffers: each of its watches keeps 8 KiB to encode messages of two bytes. The names
/// of the broker's own services come before those of providers.
#[derive(Debug)]
pub(super) struct Health<R> {
    fixed: HealthService,
    readiness: Arc<HealthChecks<R>>,
}

impl<R: PluginRunner> Health<R> {
    pub(super) fn of(reporter: HealthReporter, readiness: HealthChecks<R>) -> Self {
        Self { fixed: HealthService::from_health_reporter(reporter), readiness: Arc::new(readiness) }
    }
}

/// The state of a provider, or of everything; `None`: there is no such provider, or the peer has no right to it.
async fn state<R: PluginRunner>(
    readiness: &HealthChecks<R>,
    access: &Access,
    name: &str,
) -> Option<ServingStatus> {
    if name != READY && !access.rights().reach(CallTarget::Provider(name)) {
        return None;
    }
    let is_ready = if name == READY {
        readiness.all().await.is_ready(&[])
    } else {
        readiness.providers(Some(name)).await.0.get(name)?.is_none()
    };
    Some(if is_ready { ServingStatus::Serving } else { ServingStatus::NotServing })
}

fn message(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: pb::health_check_response::ServingStatus::from(status).into() }
}

#[tonic::async_trait]
impl<R: PluginRunner> pb::health_server::Health for Health<R> {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let (access, name) = (Arc::clone(Access::of(&request)?), request.get_ref().service.clone());
        match self.fixed.check(request).await {
            Err(unknown) if unknown.code() == Code::NotFound => state(&self.readiness, &access, &name)
                .await
                .map(|status| Response::new(message(status)))
                .ok_or(unknown),
            answer => answer,
        }
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let (access, name) = (Arc::clone(Access::of(&request)?), request.get_ref().service.clone());
        match self.fixed.watch(request).await {
            Err(unknown) if unknown.code() == Code::NotFound => {
                if state(&self.readiness, &access, &name).await.is_none() {
                    return Err(unknown);
                }
                let (readiness, policies) = (Arc::clone(&self.readiness), access.changes());
                Ok(ProviderHealth { readiness, access, policies, name, last: None, unknown }.response())
            }
            fixed => Ok(fixed?.into_inner().response()),
        }
    }
}

/// A watch of a service of the broker's own.
impl Follow for WatchStream {
    async fn next(&mut self) -> Option<Result<Bytes, Status>> {
        // The stream never fails, and ends with the reporter.
        let state = StreamExt::next(self).await?.ok()?;
        Some(Ok(preencoded::frame(&state)))
    }
}

/// A watch of one provider: its state now, then each change of it. The stream ends with `unknown` once the provider is no
/// longer configured, or the peer has no right to it: that looks the same.
struct ProviderHealth<R> {
    readiness: Arc<HealthChecks<R>>,
    access: Arc<Access>,
    /// Notified when the access rules change.
    policies: Policies,
    name: String,
    last: Option<ServingStatus>,
    unknown: Status,
}

impl<R: PluginRunner> Follow for ProviderHealth<R> {
    async fn next(&mut self) -> Option<Result<Bytes, Status>> {
        loop {
            let Some(now) = state(&self.readiness, &self.access, &self.name).await else {
                return Some(Err(self.unknown.clone()));
            };
            if self.last.replace(now) != Some(now) {
                return Some(Ok(preencoded::frame(&message(now))));
            }
            tokio::select! {
                () = sleep(LOOK_EVERY) => {}
                Ok(()) = self.policies.changed() => {}
            }
        }
    }
}
