//! Asks an API server whether it accepts a credential that seems to be rejected.

mod request;
#[cfg(test)]
mod tests;

use std::{error::Error, net::ToSocketAddrs as _, sync::Arc, time::Duration};

use http::{Request, StatusCode};
use kube::{Client, Config, client::Body};
use tokio::{sync::Semaphore, task::spawn_blocking, time::timeout};
use tracing::debug;

use crate::credential::{Cluster, Issued};

use request::Refusal;

/// How long one question may take, with the wait for its turn.
const PATIENCE: Duration = Duration::from_secs(3);

/// Questions at a time, to all API servers together.
const AT_ONCE: usize = 16;

/// What an API server says of a credential.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// 401: it does not authenticate.
    Rejected,
    /// 2xx, 403, 404 or 405: it authenticates a user, who may or may not be allowed to ask.
    Accepted,
    /// Nothing can be concluded: there was no question, no answer, or another one.
    Unverifiable,
}

impl Verdict {
    /// What an answer with this status means. An API server authenticates before it authorizes, and authorizes before
    /// it looks whether it serves the API at all.
    fn of(status: StatusCode) -> Self {
        match status {
            StatusCode::UNAUTHORIZED => Self::Rejected,
            StatusCode::FORBIDDEN | StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => Self::Accepted,
            status if status.is_success() => Self::Accepted,
            _ => Self::Unverifiable,
        }
    }
}

/// Asks an API server whether it accepts a credential. Tests give the cache one that asks nothing.
pub trait Verifier: Send + Sync + 'static {
    /// Asks the API server of `cluster`, which must be one that the broker knows, since the credential is sent there.
    /// Takes a bounded time and never fails: what cannot be found out is [`Verdict::Unverifiable`].
    fn verify(&self, issued: Arc<Issued>, cluster: Arc<Cluster>) -> impl Future<Output = Verdict> + Send;
}

/// Asks by a `SelfSubjectReview`, which every authenticated user may create, on a connection that is used once.
///
/// The credential goes only to a server whose certificate was checked: never by `http://`, never with
/// `insecure-skip-tls-verify`, and not where a redirect leads. Proxies are the cluster's, never the environment's.
#[derive(Debug)]
pub struct ApiVerifier {
    slots: Arc<Semaphore>,
    patience: Duration,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
enum Silence {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("the request could not be made")]
    Broken,
    #[error("the name of the server, or of its proxy, cannot be resolved")]
    Unresolved,
    #[error("{}", root_cause(.0))]
    Failed(kube::Error),
    #[error("no answer in time")]
    Late,
}

impl ApiVerifier {
    async fn ask(&self, issued: Arc<Issued>, cluster: Arc<Cluster>) -> Result<StatusCode, Silence> {
        let slot = Arc::clone(&self.slots).acquire_owned().await.map_err(|_never_closed| Silence::Broken)?;
        // A resolver or a file system that hangs keeps the slot, so it takes so many threads and no more. On no tracker:
        // no drain is to wait for that.
        let prepared = spawn_blocking(move || (prepare(&issued, &cluster), slot));
        let (prepared, _slot) = prepared.await.map_err(|_panicked| Silence::Broken)?;
        let (client, request) = prepared?;
        let response = client.send(request).await.map_err(Silence::Failed)?;
        // The body goes unread, and the connection with it.
        Ok(response.status())
    }
}

/// One for the whole broker.
impl Default for ApiVerifier {
    fn default() -> Self {
        Self { slots: Arc::new(Semaphore::new(AT_ONCE)), patience: PATIENCE }
    }
}

impl Verifier for ApiVerifier {
    async fn verify(&self, issued: Arc<Issued>, cluster: Arc<Cluster>) -> Verdict {
        let host = request::host(&cluster);
        let asked = timeout(self.patience, self.ask(issued, cluster)).await;
        match asked.unwrap_or(Err(Silence::Late)) {
            Ok(status) => {
                let verdict = Verdict::of(status);
                debug!(
                    server = host,
                    status = status.as_u16(),
                    ?verdict,
                    "asked whether a credential is accepted"
                );
                verdict
            }
            Err(silence) => {
                // The text may come from the server's certificate.
                let cause = silence.to_string();
                debug!(server = host, ?cause, "cannot find out whether a credential is accepted");
                Verdict::Unverifiable
            }
        }
    }
}

/// What blocks. Must be called within a tokio runtime.
fn prepare(issued: &Issued, cluster: &Cluster) -> Result<(Client, Request<Body>), Silence> {
    let config = request::config(issued, cluster)?;
    resolve(&config)?;
    // Reads the system's certificate authorities if the cluster names none.
    let client = Client::try_from(config).map_err(|_quotes_its_input| Refusal::Connection)?;
    Ok((client, request::review(issued)?))
}

/// Looks up the name that is connected to. The HTTP client does so again: on a thread that it leaves behind when the
/// time is over.
fn resolve(config: &Config) -> Result<(), Silence> {
    let to = config.proxy_url.as_ref().unwrap_or(&config.cluster_url);
    let host = to.host().unwrap_or_default().trim_matches(['[', ']']);
    (host, 0).to_socket_addrs().map(drop).map_err(|_no_address| Silence::Unresolved)
}

/// What lies below the layers of the HTTP client. None of them knows the credential.
fn root_cause(error: &kube::Error) -> String {
    let mut cause: &dyn Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
