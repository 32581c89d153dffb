//! Asks an API server whether it accepts a credential that seems to be rejected.

use std::{borrow::Cow, error::Error, iter::successors, net::ToSocketAddrs as _, sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{
    HeaderValue, Request, StatusCode, Uri,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, USER_AGENT},
    uri::Scheme,
};
use kube::{Client, Config, client::Body};
use tokio::{sync::Semaphore, task::spawn_blocking, time::timeout};
use tracing::debug;
use x509_parser::pem::Pem;

use credbroker_cache::{Verdict, VerifyFn};
use credbroker_credential::{Cluster, Issued};

/// How long one request may take, and before that wait for a slot, so that an API server that hangs delays no other.
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

/// Why there is no response. Contains nothing of credential and cluster: a parser's error quotes its input.
type Unverified = &'static str;

const BROKEN: Unverified = "cannot make the request";
const LATE: Unverified = "no response in time";
const NO_CREDENTIAL: Unverified = "the credential has no token that fits a header, and no certificate";

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
        let server = server(&cluster).and_then(|server| server.authority().map(ToString::to_string));
        match self.ask(issued, cluster).await {
            Ok(status) => {
                let verdict = verdict(status);
                debug!(server, status = status.as_u16(), ?verdict, "verified a credential");
                verdict
            }
            Err(silence) => {
                // Debug format: the text may come from the server's certificate.
                debug!(server, cause = ?silence, "cannot verify a credential");
                Verdict::Unverifiable
            }
        }
    }

    async fn ask(&self, issued: Arc<Issued>, cluster: Arc<Cluster>) -> Result<StatusCode, Cow<'static, str>> {
        let slot = timeout(self.timeout, Arc::clone(&self.slots).acquire_owned()).await;
        let slot = slot.map_err(|_elapsed| LATE)?.map_err(|_never_closed| BROKEN)?;
        let asked = async {
            // A resolver or file system that hangs keeps the slot, which bounds the number of threads. The task is not on
            // the tracker, because a drain must not wait for it.
            let prepared = spawn_blocking(move || (prepare(&issued, &cluster), slot));
            let (prepared, _slot) = prepared.await.map_err(|_panicked| BROKEN)?;
            let (client, request) = prepared?;
            let response = client.send(request).await;
            // The body is not read; the connection closes.
            response.map(|response| response.status()).map_err(|error| {
                // The cause below the layers of the HTTP client. None of them contains the credential.
                let causes = successors(error.source(), |&cause| cause.source());
                causes.last().map_or_else(|| error.to_string(), ToString::to_string).into()
            })
        };
        timeout(self.timeout, asked).await.unwrap_or(Err(LATE.into()))
    }
}

/// The blocking part. Must be called within a tokio runtime.
fn prepare(issued: &Issued, cluster: &Cluster) -> Result<(Client, Request<Body>), Unverified> {
    let config = config(issued, cluster)?;
    resolve(&config)?;
    // Reads the system's certificate authorities if the cluster names none.
    let client = Client::try_from(config).map_err(|_quotes_its_input| "the connection cannot be set up: the proxy's scheme, the TLS server name, the certificate authorities, or the credential's certificate and key cannot be used")?;
    Ok((client, review(issued)?))
}

/// Resolves the name to connect to. The HTTP client does it again, on a thread that it abandons after a timeout: this bounds
/// the number of such threads.
fn resolve(config: &Config) -> Result<(), Unverified> {
    let to = config.proxy_url.as_ref().unwrap_or(&config.cluster_url);
    let host = to.host().unwrap_or_default().trim_matches(['[', ']']);
    (host, 0)
        .to_socket_addrs()
        .map(drop)
        .map_err(|_no_address| "cannot resolve the name of the server or of its proxy")
}

const PATH: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const REVIEW: &str = r#"{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}"#;
const JSON: &str = "application/json";
const PRODUCT: &str = concat!("credbroker/", env!("CARGO_PKG_VERSION"));

/// A client for `cluster`, with the certificate of `issued` if that has no token. An API server that accepts a certificate
/// does not look at a token, and clients such as those for Java and Python send only the token. Nothing comes from the
/// environment.
fn config(issued: &Issued, cluster: &Cluster) -> Result<Config, Unverified> {
    let server = server(cluster).ok_or("the cluster's server is not an https URL without a user")?;
    if cluster.insecure_skip_tls_verify {
        return Err("the cluster's server certificate is not verified (insecure-skip-tls-verify)");
    }
    let mut config = Config::new(server);
    config.root_cert = authorities(&cluster.certificate_authority_data)?;
    config.tls_server_name = Some(&cluster.tls_server_name).filter(|name| !name.is_empty()).cloned();
    config.proxy_url = match &*cluster.proxy_url {
        "" => None,
        url => Some(url.parse().map_err(|_quotes_it| "the cluster's proxy-url is not a URL")?),
    };
    if let (None, Some(chain), Some(key)) = (issued.token(), issued.certificate_pem(), issued.key_pem()) {
        config.auth_info.client_certificate_data = Some(STANDARD.encode(chain));
        config.auth_info.client_key_data = Some(STANDARD.encode(key).into());
    }
    // The caller decides when to retry.
    config.default_retry = false;
    config.disable_compression = true;
    Ok(config)
}

/// The request, with the token of `issued`, if it has one.
fn review(issued: &Issued) -> Result<Request<Body>, Unverified> {
    let request =
        Request::post(PATH).header(CONTENT_TYPE, JSON).header(ACCEPT, JSON).header(USER_AGENT, PRODUCT);
    let request = match issued.token() {
        Some(token) => {
            let value = HeaderValue::try_from(format!("Bearer {token}"));
            let mut value = value.map_err(|_holds_it| NO_CREDENTIAL)?;
            value.set_sensitive(true);
            request.header(AUTHORIZATION, value)
        }
        // An anonymous request would be answered too, and show nothing about the credential.
        None if issued.certificate_pem().is_none() => return Err(NO_CREDENTIAL),
        None => request,
    };
    request.body(Body::from(REVIEW.as_bytes().to_vec())).map_err(|_never| BROKEN)
}

fn server(cluster: &Cluster) -> Option<Uri> {
    let server: Uri = cluster.server.parse().ok()?;
    let has_user = server.authority()?.as_str().contains('@');
    (server.scheme() == Some(&Scheme::HTTPS) && !has_user).then_some(server)
}

/// The certificates of a bundle. As in Go, other blocks and broken ones are skipped. `None`: no bundle, so those of the
/// system are used, as in client-go. A bundle without certificates is an error, so that the system's are not used instead.
fn authorities(bundle: &[u8]) -> Result<Option<Vec<Vec<u8>>>, Unverified> {
    if bundle.is_empty() {
        return Ok(None);
    }
    let blocks = Pem::iter_from_buffer(bundle).filter_map(Result::ok);
    let certificates = blocks.filter(|block| block.label == "CERTIFICATE" && block.parse_x509().is_ok());
    let authorities: Vec<_> = certificates.map(|block| block.contents).collect();
    if authorities.is_empty() {
        Err("the cluster's certificate-authority-data has no certificate")
    } else {
        Ok(Some(authorities))
    }
}

#[cfg(test)]
mod tests;
