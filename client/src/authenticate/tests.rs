use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header::AUTHORIZATION};
use http_body_util::Full;
use tower::{BoxError, Layer, Service};
use tower_test::mock::{self, Handle, Mock};

use super::*;
use crate::{
    error::Error,
    source::handle::{
        CredentialSource,
        tests::{Fake, HOUR, credential, credential_at},
    },
};

type Body = Full<Bytes>;
type Api = Mock<Request<Body>, Response<Body>>;
type Server = Handle<Request<Body>, Response<Body>>;

fn request(uri: &str, body: &'static str) -> Request<Body> {
    Request::builder().uri(uri).body(Body::from(body)).unwrap()
}

/// The next request's `Authorization`, answered with `status`.
async fn answer(server: &mut Server, status: StatusCode) -> Option<HeaderValue> {
    let (request, respond) = server.next_request().await.unwrap();
    respond.send_response(Response::builder().status(status).body(Body::default()).unwrap());
    request.headers().get(AUTHORIZATION).cloned()
}

async fn send<R: Repeat<Body>>(
    service: &mut Authenticated<Api, R>,
    request: Request<Body>,
) -> Result<StatusCode, BoxError> {
    let outcome = async {
        std::future::poll_fn(|cx| service.poll_ready(cx)).await?;
        Ok(service.call(request).await?.status())
    };
    tokio::time::timeout(HOUR, outcome).await.expect("an answer, or an error")
}

async fn ready() -> (Fake, tokio::sync::mpsc::UnboundedSender<Result<crate::credential::Credential, Error>>) {
    let fake = Fake::new();
    let broker = fake.broker();
    broker.send(Ok(credential("1", HOUR))).unwrap();
    fake.source.ready().await.unwrap();
    (fake, broker)
}

fn refusal(error: &BoxError) -> &error::Refusal {
    &error.downcast_ref::<AuthenticateError>().unwrap().0
}

const URI: &str = "https://api.example/version";

/// A layer for credentials that come without a cluster.
fn layer(source: &CredentialSource) -> Authenticate {
    Authenticate::new(source.clone()).server(&http::Uri::from_static(URI))
}

#[tokio::test(start_paused = true)]
async fn a_request_gets_the_current_token_marked_as_sensitive() {
    let (fake, broker) = ready().await;
    let (api, mut server) = mock::pair();
    let mut service = layer(&fake.source).layer(api);
    let (status, header) =
        tokio::join!(send(&mut service, request(URI, "")), answer(&mut server, StatusCode::OK));
    assert_eq!(status.unwrap(), StatusCode::OK);
    let header = header.unwrap();
    assert!(header == "Bearer token-1" && header.is_sensitive());

    let mut source = fake.source.clone();
    source.changed().await;
    broker.send(Ok(credential("2", HOUR))).unwrap();
    source.changed().await;
    let (_, header) = tokio::join!(send(&mut service, request(URI, "")), answer(&mut server, StatusCode::OK));
    assert_eq!(header.unwrap(), "Bearer token-2");
}

#[tokio::test(start_paused = true)]
async fn a_request_with_an_authorization_is_passed_on_and_its_rejection_is_not_reported() {
    let (mut fake, _broker) = ready().await;
    let (api, mut server) = mock::pair();
    let mut service = layer(&fake.source).layer(api);
    let mut own = request("http://api.example/version", "");
    own.headers_mut().insert(AUTHORIZATION, HeaderValue::from_static("Basic own"));
    let (status, header) =
        tokio::join!(send(&mut service, own), answer(&mut server, StatusCode::UNAUTHORIZED));
    assert_eq!((status.unwrap(), header.unwrap().to_str().unwrap()), (StatusCode::UNAUTHORIZED, "Basic own"));
    assert!(tokio::time::timeout(HOUR / 4, fake.reports.recv()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_credential_is_sent_with_https_only_unless_plaintext_is_allowed() {
    let (fake, _broker) = ready().await;
    let (api, mut server) = mock::pair();
    let layer = layer(&fake.source).any_host();
    for (uri, destination) in [
        ("http://user:c4n4ry@api.example:8080/c4n4ry", "http://api.example:8080"),
        ("/version", "a URI without a scheme or host"),
        ("ws://api.example", "ws://api.example"),
    ] {
        let error = send(&mut layer.clone().layer(api.clone()), request(uri, "")).await.unwrap_err();
        let message = error.to_string();
        assert!(message.contains(destination) && !message.contains("c4n4ry"), "{message}");
        assert!(matches!(refusal(&error), error::Refusal::Plaintext { .. }));
    }
    let mut allowed = layer.allow_plaintext(true).layer(api);
    let sent = send(&mut allowed, request("http://127.0.0.1:8001/version", ""));
    let (_, header) = tokio::join!(sent, answer(&mut server, StatusCode::OK));
    assert_eq!(header.unwrap(), "Bearer token-1");
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_body_is_sent_once_more_with_the_newer_credential() {
    let (mut fake, broker) = ready().await;
    let (api, mut server) = mock::pair();
    let mut service = layer(&fake.source).layer(api);
    let serve = async {
        let first = answer(&mut server, StatusCode::UNAUTHORIZED).await;
        let (generation, reported) = fake.reports.recv().await.unwrap();
        broker.send(Ok(credential("2", HOUR))).unwrap();
        reported.send(Ok("2".into())).unwrap();
        // There is no third request after any second response.
        (first, generation, answer(&mut server, StatusCode::UNAUTHORIZED).await)
    };
    let (status, (first, generation, second)) = tokio::join!(send(&mut service, request(URI, "")), serve);
    assert_eq!(status.unwrap(), StatusCode::UNAUTHORIZED);
    assert_eq!(
        (first.unwrap(), second.unwrap()),
        ("Bearer token-1".parse().unwrap(), "Bearer token-2".parse().unwrap())
    );
    assert_eq!(generation, "1");
    assert_eq!(fake.reports.recv().await.unwrap().0, "2", "the second 401 is reported too");
}

#[tokio::test(start_paused = true)]
async fn without_a_newer_credential_the_401_is_the_answer() {
    let (mut fake, _broker) = ready().await;
    let (api, mut server) = mock::pair();
    let mut service = layer(&fake.source).layer(api);
    let serve = async {
        answer(&mut server, StatusCode::UNAUTHORIZED).await;
        let (generation, reported) = fake.reports.recv().await.unwrap();
        reported.send(Ok(generation)).unwrap();
    };
    let (status, ()) = tokio::join!(send(&mut service, request(URI, "")), serve);
    assert_eq!(status.unwrap(), StatusCode::UNAUTHORIZED);
}

#[tokio::test(start_paused = true)]
async fn a_body_is_repeated_only_by_a_closure_that_copies_it() {
    let (mut fake, broker) = ready().await;
    let (api, mut server) = mock::pair();
    let mut service = layer(&fake.source).layer(api.clone());
    let (status, _) =
        tokio::join!(send(&mut service, request(URI, "text")), answer(&mut server, StatusCode::UNAUTHORIZED));
    assert_eq!(status.unwrap(), StatusCode::UNAUTHORIZED);
    let (_, reported) = fake.reports.recv().await.unwrap();
    reported.send(Ok("2".into())).unwrap();
    broker.send(Ok(credential("2", HOUR))).unwrap();
    tokio::time::sleep(HOUR / 4).await;

    let mut never = layer(&fake.source).repeat(|_: &Body| None).layer(api.clone());
    let sent = send(&mut never, request(URI, ""));
    let (status, _) = tokio::join!(sent, answer(&mut server, StatusCode::UNAUTHORIZED));
    assert_eq!(status.unwrap(), StatusCode::UNAUTHORIZED);
    let (_, reported) = fake.reports.recv().await.unwrap();
    reported.send(Ok("3".into())).unwrap();
    broker.send(Ok(credential("3", HOUR))).unwrap();
    tokio::time::sleep(HOUR / 4).await;

    let copying = |body: &Body| Some(body.clone());
    let mut always = layer(&fake.source).repeat(copying).layer(api);
    let serve = async {
        answer(&mut server, StatusCode::UNAUTHORIZED).await;
        broker.send(Ok(credential("4", HOUR))).unwrap();
        answer(&mut server, StatusCode::OK).await
    };
    let (status, header) = tokio::join!(send(&mut always, request(URI, "text")), serve);
    assert_eq!((status.unwrap(), header.unwrap()), (StatusCode::OK, "Bearer token-4".parse().unwrap()));
}

#[tokio::test(start_paused = true)]
async fn an_expired_credential_is_never_sent_and_its_replacement_is_awaited() {
    let fake = Fake::new();
    let (api, mut server) = mock::pair();
    let mut service = layer(&fake.source).layer(api);
    let broker = fake.broker();
    broker.send(Ok(credential("1", HOUR))).unwrap();
    fake.source.ready().await.unwrap();
    tokio::time::sleep(HOUR).await;
    let error = send(&mut service, request(URI, "")).await.unwrap_err();
    assert!(matches!(refusal(&error), error::Refusal::NoCredential(_)), "{error:?}");

    let late = async {
        tokio::time::sleep(std::time::Duration::from_secs(5)).await;
        broker.send(Ok(credential("2", HOUR))).unwrap();
        answer(&mut server, StatusCode::OK).await
    };
    let (status, header) = tokio::join!(send(&mut service, request(URI, "")), late);
    assert_eq!((status.unwrap(), header.unwrap()), (StatusCode::OK, "Bearer token-2".parse().unwrap()));
}

#[tokio::test(start_paused = true)]
async fn a_credential_is_sent_only_to_its_cluster_and_follows_it_when_it_moves() {
    let fake = Fake::new();
    let broker = fake.broker();
    let mut source = fake.source.clone();
    broker.send(Ok(credential_at("https://API.example.:443/prefix", "1", HOUR))).unwrap();
    source.changed().await;
    let (api, mut server) = mock::pair();
    let mut service = Authenticate::new(fake.source.clone()).layer(api);
    let (status, header) =
        tokio::join!(send(&mut service, request(URI, "")), answer(&mut server, StatusCode::OK));
    assert_eq!((status.unwrap(), header.unwrap()), (StatusCode::OK, "Bearer token-1".parse().unwrap()));
    let error = send(&mut service, request("https://evil.example/version", "")).await.unwrap_err();
    let refused = error.downcast_ref::<AuthenticateError>().unwrap();
    insta::assert_snapshot!(refused, @"no credential is sent to https://evil.example, because it is for https://api.example; send the request there, or use any_host");

    broker.send(Ok(credential_at("https://moved.example", "2", HOUR))).unwrap();
    source.changed().await;
    let error = send(&mut service, request(URI, "")).await.unwrap_err();
    assert!(matches!(refusal(&error), error::Refusal::OtherCluster { .. }), "{error:?}");
    let sent = send(&mut service, request("https://moved.example/version", ""));
    let (_, header) = tokio::join!(sent, answer(&mut server, StatusCode::OK));
    assert_eq!(header.unwrap(), "Bearer token-2");
}

#[tokio::test(start_paused = true)]
async fn a_request_is_not_repeated_with_a_credential_for_another_cluster() {
    let mut fake = Fake::new();
    let broker = fake.broker();
    broker.send(Ok(credential_at("https://api.example", "1", HOUR))).unwrap();
    fake.source.ready().await.unwrap();
    let (api, mut server) = mock::pair();
    let mut service = Authenticate::new(fake.source.clone()).layer(api);
    let serve = async {
        answer(&mut server, StatusCode::UNAUTHORIZED).await;
        let (_, reported) = fake.reports.recv().await.unwrap();
        broker.send(Ok(credential_at("https://moved.example", "2", HOUR))).unwrap();
        reported.send(Ok("2".into())).unwrap();
    };
    let (status, ()) = tokio::join!(send(&mut service, request(URI, "")), serve);
    assert_eq!(status.unwrap(), StatusCode::UNAUTHORIZED);
}

#[tokio::test(start_paused = true)]
async fn a_credential_without_a_cluster_needs_a_named_server() {
    let (fake, _broker) = ready().await;
    let (api, _server) = mock::pair();
    let mut service = Authenticate::new(fake.source.clone()).layer(api);
    let error = send(&mut service, request(URI, "")).await.unwrap_err();
    let refused = error.downcast_ref::<AuthenticateError>().unwrap();
    insta::assert_snapshot!(refused, @"no credential is sent to https://api.example, because the broker names no cluster for it; name the server, or use any_host");
}
