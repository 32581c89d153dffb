//! Sends a request with the credential of its target.

use std::{pin::pin, time::Duration};

use credbroker_client::tls::ResponseBody;
use credbroker_kube::{EndpointRouter, RequestBody as _};
use http::{Method, Request, Response, StatusCode};
use tokio::time::timeout;
use tower::Service as _;

use crate::{
    failure::{is_lost, no_credential, not_answered},
    forward::Times,
    request_body::RequestBody,
    status::Refused,
    target::UsedTarget,
};

/// How often a request is sent again. More than one certificate can expire while an API server hangs.
const AGAIN: u32 = 3;

impl UsedTarget {
    /// Waits up to `limit` for a credential.
    pub(crate) async fn ready(&self, limit: Duration) -> Result<(), credbroker_client::Error> {
        if self.source.current().is_none() {
            self.source.ready_within(limit).await?;
        }
        Ok(())
    }

    /// Sends a request, if there is a credential.
    pub(crate) async fn answer(
        &self,
        request: Request<RequestBody>,
        is_upgrade: bool,
        is_long: bool,
        times: Times,
    ) -> Result<Response<ResponseBody>, Refused> {
        self.ready(times.credential).await.map_err(|error| no_credential(&self.known, &error))?;
        let progress = request.body().progress();
        let router = if is_upgrade { &self.tunnels } else { &self.requests };
        let sent = self.send(router, request, !is_upgrade);
        if is_long {
            return sent.await;
        }
        let mut sent = pin!(sent);
        let mut received = 0;
        loop {
            if let Ok(answer) = timeout(times.answer, &mut sent).await {
                return answer;
            }
            // The API server waits for a client that is slow.
            if !progress.is_complete() && progress.received() > received {
                received = progress.received();
                continue;
            }
            let message = format!("{} did not answer within {:?}", self.known, times.answer);
            return Err(Refused::new(StatusCode::GATEWAY_TIMEOUT, message));
        }
    }

    /// Sends a request, and sends it again on another connection while connections are lost and it changes nothing. That is so
    /// only if `may_repeat`: clients use GET also for a tunnel to a command, which would run twice.
    async fn send(
        &self,
        router: &EndpointRouter<RequestBody>,
        mut request: Request<RequestBody>,
        may_repeat: bool,
    ) -> Result<Response<ResponseBody>, Refused> {
        let changes_nothing = may_repeat
            && matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS)
            && http_body::Body::is_end_stream(request.body());
        let mut left = if changes_nothing { AGAIN } else { 0 };
        loop {
            let again = if left > 0 { copy(&request) } else { None };
            match (router.clone().call(request).await, again) {
                (Err(error), Some(again)) if is_lost(&*error) => {
                    tracing::debug!(target_name = %self.known, "a connection was lost before the answer");
                    (request, left) = (again, left - 1);
                }
                (answer, _) => return answer.map_err(|error| not_answered(&self.known, &*error)),
            }
        }
    }
}

fn copy(request: &Request<RequestBody>) -> Option<Request<RequestBody>> {
    let mut copy = Request::new(request.body().again()?);
    copy.method_mut().clone_from(request.method());
    copy.uri_mut().clone_from(request.uri());
    copy.headers_mut().clone_from(request.headers());
    copy.extensions_mut().clone_from(request.extensions());
    Some(copy)
}
