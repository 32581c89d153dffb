//! The request to an API server, and how to connect to it. Pure.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{
    HeaderValue, Request, Uri,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, USER_AGENT},
    uri::Scheme,
};
use kube::{Config, client::Body, config::AuthInfo};
use x509_parser::pem::Pem;

use credbroker_credential::{Cluster, Issued};

const PATH: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const REVIEW: &str = r#"{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}"#;
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const PRODUCT: HeaderValue = HeaderValue::from_static(concat!("credbroker/", env!("CARGO_PKG_VERSION")));

/// Why a credential is not sent to a cluster. Contains nothing of either: a parser's error quotes its input.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(super) enum RequestError {
    #[error("the cluster's server is not an https URL without a user")]
    Server,
    #[error("the cluster's server certificate is not verified (insecure-skip-tls-verify)")]
    Insecure,
    #[error("the cluster's certificate-authority-data has no certificate")]
    Authorities,
    #[error("the cluster's proxy-url is not a URL")]
    Proxy,
    #[error("the credential has no token that fits a header, and no certificate")]
    Credential,
    #[error(
        "the connection cannot be set up: the proxy's scheme, the TLS server name, the certificate authorities, or the credential's certificate and key cannot be used"
    )]
    Connection,
}

/// A client for `cluster`, with the certificate of `issued` if that has no token. An API server that accepts a certificate
/// does not look at a token, and clients such as those for Java and Python send only the token. Nothing comes from the
/// environment.
pub(super) fn config(issued: &Issued, cluster: &Cluster) -> Result<Config, RequestError> {
    let server = server(cluster).ok_or(RequestError::Server)?;
    if cluster.insecure_skip_tls_verify {
        return Err(RequestError::Insecure);
    }
    let mut config = Config::new(server);
    config.root_cert = authorities(&cluster.certificate_authority_data)?;
    config.tls_server_name = Some(&cluster.tls_server_name).filter(|name| !name.is_empty()).cloned();
    config.proxy_url = match &*cluster.proxy_url {
        "" => None,
        url => Some(url.parse().map_err(|_quotes_it| RequestError::Proxy)?),
    };
    if issued.token().is_none() {
        config.auth_info = certificate(issued);
    }
    // The caller decides when to retry.
    config.default_retry = false;
    config.disable_compression = true;
    Ok(config)
}

/// The request, with the token of `issued`, if it has one.
pub(super) fn review(issued: &Issued) -> Result<Request<Body>, RequestError> {
    let mut request = Request::new(Body::from(REVIEW.as_bytes().to_vec()));
    *request.method_mut() = http::Method::POST;
    *request.uri_mut() = Uri::from_static(PATH);
    request.headers_mut().extend([(CONTENT_TYPE, JSON), (ACCEPT, JSON), (USER_AGENT, PRODUCT)]);
    match issued.token() {
        Some(token) => {
            let value = HeaderValue::try_from(format!("Bearer {token}"));
            let mut value = value.map_err(|_holds_it| RequestError::Credential)?;
            value.set_sensitive(true);
            request.headers_mut().insert(AUTHORIZATION, value);
        }
        // An anonymous request would be answered too, and show nothing about the credential.
        None if issued.certificate_pem().is_none() => return Err(RequestError::Credential),
        None => {}
    }
    Ok(request)
}

/// Host and port, for logs. `None`: no request is sent to such a URL.
pub(super) fn host(cluster: &Cluster) -> Option<String> {
    server(cluster)?.authority().map(ToString::to_string)
}

fn server(cluster: &Cluster) -> Option<Uri> {
    let server: Uri = cluster.server.parse().ok()?;
    let has_user = server.authority()?.as_str().contains('@');
    (server.scheme() == Some(&Scheme::HTTPS) && !has_user).then_some(server)
}

/// The certificates of a bundle. As in Go, other blocks and broken ones are skipped. `None`: no bundle, so those of the
/// system are used, as in client-go. A bundle without certificates is an error, so that the system's are not used instead.
fn authorities(bundle: &[u8]) -> Result<Option<Vec<Vec<u8>>>, RequestError> {
    if bundle.is_empty() {
        return Ok(None);
    }
    let blocks = Pem::iter_from_buffer(bundle).filter_map(Result::ok);
    let certificates = blocks.filter(|block| block.label == "CERTIFICATE" && block.parse_x509().is_ok());
    let authorities: Vec<_> = certificates.map(|block| block.contents).collect();
    if authorities.is_empty() { Err(RequestError::Authorities) } else { Ok(Some(authorities)) }
}

fn certificate(issued: &Issued) -> AuthInfo {
    let mut auth = AuthInfo::default();
    if let (Some(chain), Some(key)) = (issued.certificate_pem(), issued.key_pem()) {
        auth.client_certificate_data = Some(STANDARD.encode(chain));
        auth.client_key_data = Some(STANDARD.encode(key).into());
    }
    auth
}

#[cfg(test)]
mod tests;
