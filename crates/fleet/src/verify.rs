//! Asks an API server whether it accepts a credential that seems to be rejected.

mod request;
#[cfg(test)]
mod tests;

use std::{error::Error, net::ToSocketAddrs as _, sync::Arc, time::Duration};

use http::{Request, StatusCode};
use kube::{Client, Config, client::Body};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::spawn_blocking,
    time::timeout,
};
use tracing::debug;

use credbroker_cache::{Verdict, VerifyFn};
use credbroker_credential::{Cluster, Issued};

use request::RequestError;

/// How long one request may take, and how long it may wait for a slot before that: an API server that hangs takes no time
/// from the requests to others.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Requests at a time, to all API servers together.
const AT_ONCE: usize = 16;

/// The meaning of a response with this status. An API server authenticates before it authorizes, and authorizes before it
/// checks whether it serves the API: 403, 404 and 405 are for a user that it knows.
fn verdict(status: StatusCode) -> Verdict {
    match status {
        StatusCode::UNAUTHORIZED => Verdict::Rejected,
        StatusCode::FORBIDDEN | StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => Verdict::Accepted,
        status if status.is_success() => Verdict::Accepted,
        _ => Verdict::Unverifiable,
    }
}

/// Sends a `SelfSubjectReview`, which every authenticated user may create, on a separate connection.
///
/// The credential goes only to a server whose certificate is verified: never over `http://`, never with
/// `insecure-skip-tls-verify`, and never to the target of a redirect. The proxy is the cluster's, never that of the
/// environment.
#[derive(Debug)]
pub struct ApiVerifier {
    slots: Arc<Semaphore>,
    timeout: Duration,
}

/// Why there is no response.
#[derive(Debug, thiserror::Error)]
enum VerifyError {
    #[error(transparent)]
    Refused(#[from] RequestError),
    #[error("cannot make the request")]
    Broken,
    #[error("cannot resolve the name of the server or of its proxy")]
    Unresolved,
    #[error("{}", root_cause(.0))]
    Failed(kube::Error),
    #[error("no response in time")]
    Late,
}

impl ApiVerifier {
    async fn ask(&self, issued: Arc<Issued>, cluster: Arc<Cluster>) -> Result<StatusCode, VerifyError> {
        let slot = timeout(self.timeout, Arc::clone(&self.slots).acquire_owned()).await;
        let slot =
            slot.map_err(|_elapsed| VerifyError::Late)?.map_err(|_never_closed| VerifyError::Broken)?;
        let asked = self.send(slot, issued, cluster);
        timeout(self.timeout, asked).await.unwrap_or(Err(VerifyError::Late))
    }

    async fn send(
        &self,
        slot: OwnedSemaphorePermit,
        issued: Arc<Issued>,
        cluster: Arc<Cluster>,
    ) -> Result<StatusCode, VerifyError> {
        // A resolver or file system that hangs keeps the slot, which bounds the number of threads. The task is not on the
        // tracker, because a drain must not wait for it.
        let prepared = spawn_blocking(move || (prepare(&issued, &cluster), slot));
        let (prepared, _slot) = prepared.await.map_err(|_panicked| VerifyError::Broken)?;
        let (client, request) = prepared?;
        let response = client.send(request).await.map_err(VerifyError::Failed)?;
        // The body is not read; the connection closes.
        Ok(response.status())
    }
}

impl Default for ApiVerifier {
    fn default() -> Self {
        Self { slots: Arc::new(Semaphore::new(AT_ONCE)), timeout: TIMEOUT }
    }
}

impl ApiVerifier {
    /// For the cache. All verifications share the slots of one verifier.
    pub fn function() -> VerifyFn {
        let verifier = Arc::new(Self::default());
        Arc::new(move |issued, cluster| {
            let verifier = Arc::clone(&verifier);
            Box::pin(async move { verifier.verify(issued, cluster).await })
        })
    }

    /// Asks the API server of `cluster`. The credential is sent there, so the cluster must come from the broker's
    /// configuration or fleet. Takes a bounded time; a failure is [`Verdict::Unverifiable`].
    async fn verify(&self, issued: Arc<Issued>, cluster: Arc<Cluster>) -> Verdict {
        let host = request::host(&cluster);
        match self.ask(issued, cluster).await {
            Ok(status) => {
                let verdict = verdict(status);
                debug!(server = host, status = status.as_u16(), ?verdict, "verified a credential");
                verdict
            }
            Err(silence) => {
                // Debug format: the text may come from the server's certificate.
                let cause = silence.to_string();
                debug!(server = host, ?cause, "cannot verify a credential");
                Verdict::Unverifiable
            }
        }
    }
}

/// The blocking part. Must be called within a tokio runtime.
fn prepare(issued: &Issued, cluster: &Cluster) -> Result<(Client, Request<Body>), VerifyError> {
    let config = request::config(issued, cluster)?;
    resolve(&config)?;
    // Reads the system's certificate authorities if the cluster names none.
    let client = Client::try_from(config).map_err(|_quotes_its_input| RequestError::Connection)?;
    Ok((client, request::review(issued)?))
}

/// Resolves the name to connect to. The HTTP client resolves it again, on a thread that it abandons after a timeout; doing
/// it here first bounds the number of such threads.
fn resolve(config: &Config) -> Result<(), VerifyError> {
    let to = config.proxy_url.as_ref().unwrap_or(&config.cluster_url);
    let host = to.host().unwrap_or_default().trim_matches(['[', ']']);
    (host, 0).to_socket_addrs().map(drop).map_err(|_no_address| VerifyError::Unresolved)
}

/// The cause below the layers of the HTTP client. None of them contains the credential.
fn root_cause(error: &kube::Error) -> String {
    let mut cause: &dyn Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
