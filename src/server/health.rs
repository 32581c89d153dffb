//! gRPC health with watches that use little memory.

use std::pin::Pin;

use futures_util::{Stream, StreamExt as _};
use tonic::{Request, Response, Status};
use tonic_health::{
    pb::{self, HealthCheckRequest, HealthCheckResponse},
    server::{HealthReporter, HealthService},
};

use super::preencoded::{self, Preencoded};

/// Wraps tonic's service to avoid its buffers: each of its watches keeps 8 KiB to encode messages of two bytes.
#[derive(Debug)]
pub(super) struct Health(HealthService);

impl Health {
    pub(super) fn of(reporter: HealthReporter) -> Self {
        Self(HealthService::from_health_reporter(reporter))
    }
}

#[tonic::async_trait]
impl pb::health_server::Health for Health {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        self.0.check(request).await
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let states = self.0.watch(request).await?.into_inner();
        // The stream never fails, and ends with the reporter.
        let states = states.take_while(|state| std::future::ready(state.is_ok()));
        Ok(Preencoded::response(states.filter_map(async |state| Some(Ok(preencoded::frame(&state.ok()?))))))
    }
}
