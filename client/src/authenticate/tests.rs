use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header::AUTHORIZATION};
use http_body_util::Full;
use tower::{BoxError, Layer, Service};
use tower_test::mock::{self, Handle, Mock};

use super::*;
use crate::source::tests::{Fake, HOUR, credential};

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

async fn ready() -> (Fake, tokio::sync::mpsc::UnboundedSender<Result<crate::Credential, Error>>) {
    let fake = Fake::new();
    let broker = fake.broker();
    broker.send(Ok(credential("1", HOUR))).unwrap();
    fake.source.ready().await.unwrap();
    (fake, broker)
}

const URI: &str = "https://api.example/version";

#[tokio::test(start_paused = true)]
async fn a_request_gets_the_current_token_marked_as_sensitive() {
    let (fake, broker) = ready().await;
    let (api, mut server) = mock::pair();
    let mut service = Authenticate::new(fake.source.clone()).layer(api);
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
async fn an_authorization_of_the_callers_own_is_left_alone_and_its_rejection_is_not_ours() {
    let (mut fake, _broker) = ready().await;
    let (api, mut server) = mock::pair();
    let mut service = Authenticate::new(fake.source.clone()).layer(api);
    let mut own = request("http://api.example/version", "");
    own.headers_mut().insert(AUTHORIZATION, HeaderValue::from_static("Basic own"));
    let (status, header) =
        tokio::join!(send(&mut service, own), answer(&mut server, StatusCode::UNAUTHORIZED));
    assert_eq!((status.unwrap(), header.unwrap().to_str().unwrap()), (StatusCode::UNAUTHORIZED, "Basic own"));
    assert!(tokio::time::timeout(HOUR / 4, fake.reports.recv()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn nothing_but_https_gets_a_credential_unless_that_is_allowed() {
    let (fake, _broker) = ready().await;
    let (api, mut server) = mock::pair();
    let layer = Authenticate::new(fake.source.clone());
    for (uri, destination) in [
        ("http://user:c4n4ry@api.example:8080/c4n4ry", "http://api.example:8080"),
        ("/version", "a URI without a scheme"),
        ("ws://api.example", "ws://api.example"),
    ] {
        let error = send(&mut layer.clone().layer(api.clone()), request(uri, "")).await.unwrap_err();
        let message = error.to_string();
        assert!(message.contains(destination) && !message.contains("c4n4ry"), "{message}");
        assert!(matches!(error.downcast_ref(), Some(AuthenticateError::Plaintext { .. })));
    }
    let mut allowed = layer.allow_plaintext(true).layer(api);
    let sent = send(&mut allowed, request("http://127.0.0.1:8001/version", ""));
    let (_, header) = tokio::join!(sent, answer(&mut server, StatusCode::OK));
    assert_eq!(header.unwrap(), "Bearer token-1");
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_body_is_sent_once_more_with_what_the_report_brings() {
    let (mut fake, broker) = ready().await;
    let (api, mut server) = mock::pair();
    let mut service = Authenticate::new(fake.source.clone()).layer(api);
    let serve = async {
        let first = answer(&mut server, StatusCode::UNAUTHORIZED).await;
        let (generation, reported) = fake.reports.recv().await.unwrap();
        broker.send(Ok(credential("2", HOUR))).unwrap();
        reported.send(Ok("2".into())).unwrap();
        // Whatever comes of the second one: there is no third.
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
    let mut service = Authenticate::new(fake.source.clone()).layer(api);
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
    let mut service = Authenticate::new(fake.source.clone()).layer(api.clone());
    let (status, _) =
        tokio::join!(send(&mut service, request(URI, "text")), answer(&mut server, StatusCode::UNAUTHORIZED));
    assert_eq!(status.unwrap(), StatusCode::UNAUTHORIZED);
    let (_, reported) = fake.reports.recv().await.unwrap();
    reported.send(Ok("2".into())).unwrap();
    broker.send(Ok(credential("2", HOUR))).unwrap();
    tokio::time::sleep(HOUR / 4).await;

    let mut never = Authenticate::new(fake.source.clone()).repeat(Never).layer(api.clone());
    let sent = send(&mut never, request(URI, ""));
    let (status, _) = tokio::join!(sent, answer(&mut server, StatusCode::UNAUTHORIZED));
    assert_eq!(status.unwrap(), StatusCode::UNAUTHORIZED);
    let (_, reported) = fake.reports.recv().await.unwrap();
    reported.send(Ok("3".into())).unwrap();
    broker.send(Ok(credential("3", HOUR))).unwrap();
    tokio::time::sleep(HOUR / 4).await;

    let copying = |body: &Body| Some(body.clone());
    let mut always = Authenticate::new(fake.source.clone()).repeat(copying).layer(api);
    let serve = async {
        answer(&mut server, StatusCode::UNAUTHORIZED).await;
        broker.send(Ok(credential("4", HOUR))).unwrap();
        answer(&mut server, StatusCode::OK).await
    };
    let (status, header) = tokio::join!(send(&mut always, request(URI, "text")), serve);
    assert_eq!((status.unwrap(), header.unwrap()), (StatusCode::OK, "Bearer token-4".parse().unwrap()));
}

#[tokio::test(start_paused = true)]
async fn an_expired_credential_is_waited_for_and_never_sent() {
    let fake = Fake::new();
    let (api, mut server) = mock::pair();
    let mut service = Authenticate::new(fake.source.clone()).layer(api);
    let broker = fake.broker();
    broker.send(Ok(credential("1", HOUR))).unwrap();
    fake.source.ready().await.unwrap();
    tokio::time::sleep(HOUR).await;
    let error = send(&mut service, request(URI, "")).await.unwrap_err();
    assert!(matches!(error.downcast_ref(), Some(AuthenticateError::NoCredential { .. })), "{error:?}");

    let late = async {
        tokio::time::sleep(std::time::Duration::from_secs(5)).await;
        broker.send(Ok(credential("2", HOUR))).unwrap();
        answer(&mut server, StatusCode::OK).await
    };
    let (status, header) = tokio::join!(send(&mut service, request(URI, "")), late);
    assert_eq!((status.unwrap(), header.unwrap()), (StatusCode::OK, "Bearer token-2".parse().unwrap()));
}
