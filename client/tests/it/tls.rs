//! Connections over real TLS while the credential changes.

mod upgrade;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use credbroker_client::{
    Authenticate, Authenticated, CredentialSource,
    tls::{Dialer, ResponseBody, RotatingClient, Settings, Tcp},
};
use credbroker_test_support::{Accepts, ApiServer};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tower::{BoxError, Layer, Service};

use crate::broker::{FakeBroker, issued};

type Client = Authenticated<RotatingClient<Empty<Bytes>>>;
type Pair = (String, String);

struct Setting {
    api: ApiServer,
    broker: FakeBroker,
    source: CredentialSource,
    client: Client,
}

impl Setting {
    /// With the first credential in place.
    async fn new(
        drain: Duration,
        first: impl FnOnce(&ApiServer) -> credbroker_proto::v1::Credential,
    ) -> Self {
        let api = ApiServer::start(Accepts::Either);
        for token in ["token-a", "token-b"] {
            api.accept_token(token);
        }
        let broker = FakeBroker::start();
        broker.issue("p", first(&api));
        let source = broker.source("p").await;
        let settings = Settings::trusting(api.ca_pem().as_bytes()).unwrap().drain(drain);
        let client = RotatingClient::new(source.clone(), settings);
        let client = Authenticate::new(source.clone()).server(&api.url().parse().unwrap()).layer(client);
        Self { api, broker, source, client }
    }

    async fn rotate(&mut self, next: credbroker_proto::v1::Credential) {
        self.broker.issue("p", next);
        self.source.changed().await;
    }

    fn request(&self, path: &str) -> Request<Empty<Bytes>> {
        Request::get(format!("{}{path}", self.api.url())).body(Empty::new()).unwrap()
    }

    async fn get(&mut self) -> StatusCode {
        let response = self.client.call(self.request("/version")).await.unwrap();
        let status = response.status();
        response.into_body().collect().await.unwrap();
        status
    }

    /// Who the server saw on the last request, by certificate and by token, and on which connection.
    fn seen(&self) -> (Option<String>, Option<String>, u64) {
        let last = self.api.requests().pop().unwrap();
        (last.certificate, last.token, last.connection)
    }

    /// A response that does not end.
    async fn watch(&mut self) -> http::Response<ResponseBody> {
        let path = "/api/v1/namespaces/default/pods?watch=true";
        let response = self.client.call(self.request(path)).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        response
    }
}

/// Certificate and token.
type Side = (Option<&'static str>, Option<&'static str>);

const DRAIN: Duration = Duration::from_secs(30);

fn pair(api: &ApiServer, name: &str) -> Pair {
    api.issue_client_certificate(name, Duration::from_secs(3600))
}

#[tokio::test]
async fn connections_are_replaced_when_the_certificate_is_and_only_then() {
    let rewritten = |(chain, key): &Pair| (format!("renewed\n{chain}"), key.replace('\n', "\r\n"));
    let (none, token_a, token_b) = (None, Some("token-a"), Some("token-b"));
    // Before and after, and whether the next request comes on a new connection.
    let matrix: [(&str, Side, Side, bool); 9] = [
        ("no certificate to one", (none, token_a), (Some("x"), none), true),
        ("token to token", (none, token_a), (none, token_b), false),
        ("same pair in other PEM text", (Some("x"), none), (Some("x again"), none), false),
        ("certificate to another", (Some("x"), none), (Some("y"), none), true),
        ("certificate to token", (Some("x"), none), (none, token_a), true),
        ("token to certificate and token", (none, token_a), (Some("x"), token_a), true),
        ("new token with the same certificate", (Some("x"), token_a), (Some("x"), token_b), false),
        ("new certificate with the same token", (Some("x"), token_a), (Some("y"), token_a), true),
        ("both", (Some("x"), token_a), (Some("y"), token_b), true),
    ];
    for (what, before, after, replaced) in matrix {
        let mut pairs = Vec::new();
        let mut setting = Setting::new(DRAIN, |api| {
            pairs = vec![("x", pair(api, "x")), ("y", pair(api, "y"))];
            pairs.push(("x again", rewritten(&pairs[0].1)));
            let held = |name| pairs.iter().find(|(held, _)| *held == name).map(|(_, pair)| pair);
            issued("1", before.0.and_then(held), before.1)
        })
        .await;
        let held = |name| pairs.iter().find(|(held, _)| *held == name).map(|(_, pair)| pair);
        assert_eq!(setting.get().await, StatusCode::OK, "{what}");
        let (_, _, first) = setting.seen();
        setting.rotate(issued("2", after.0.and_then(held), after.1)).await;
        assert_eq!(setting.get().await, StatusCode::OK, "{what}");
        let (certificate, token, second) = setting.seen();
        let presented = after.0.map(|name| name.trim_end_matches(" again"));
        assert_eq!((certificate.as_deref(), token.as_deref()), (presented, after.1), "{what}");
        assert_eq!(second != first, replaced, "{what}");
        if replaced {
            setting.api.until_open(before.0, 0).await;
        }
        setting.api.until_open(presented, 1).await;
    }
}

#[tokio::test]
async fn an_idle_connection_is_closed_without_waiting_for_a_request() {
    let mut pairs = Vec::new();
    let mut setting = Setting::new(DRAIN, |api| {
        pairs = vec![pair(api, "x"), pair(api, "y")];
        issued("1", pairs.first(), None)
    })
    .await;
    setting.get().await;
    setting.api.until_open(Some("x"), 1).await;
    setting.rotate(issued("2", pairs.get(1), None)).await;
    setting.api.until_open(Some("x"), 0).await;
}

#[tokio::test]
async fn a_busy_connection_may_go_on_until_the_drain_deadline() {
    let mut pairs = Vec::new();
    let mut setting = Setting::new(Duration::from_secs(3), |api| {
        pairs = vec![pair(api, "x"), pair(api, "y")];
        issued("1", pairs.first(), None)
    })
    .await;
    let old = setting.watch().await;
    setting.rotate(issued("2", pairs.get(1), None)).await;
    setting.get().await;
    assert_eq!(setting.seen().0.as_deref(), Some("y"));
    let new = setting.watch().await;
    assert_eq!(setting.api.open_connections(Some("x")), 1, "it drains");
    let end = old.into_body().collect().await.unwrap_err();
    assert!(end.to_string().contains("body"), "{end}");
    setting.api.until_open(Some("x"), 0).await;
    assert!(setting.api.open_connections(Some("y")) >= 1, "the newest is never closed");
    drop(new);
}

#[tokio::test]
async fn without_a_drain_a_busy_connection_is_cut_at_once() {
    let mut pairs = Vec::new();
    let mut setting = Setting::new(Duration::ZERO, |api| {
        pairs = vec![pair(api, "x"), pair(api, "y")];
        issued("1", pairs.first(), None)
    })
    .await;
    let old = setting.watch().await;
    setting.rotate(issued("2", pairs.get(1), None)).await;
    old.into_body().collect().await.unwrap_err();
    setting.api.until_open(Some("x"), 0).await;
    assert_eq!(setting.get().await, StatusCode::OK);
}

#[tokio::test]
async fn a_certificate_that_comes_back_keeps_its_connections() {
    let mut pairs = Vec::new();
    let mut setting = Setting::new(Duration::from_secs(3), |api| {
        pairs = vec![pair(api, "x"), pair(api, "y")];
        issued("1", pairs.first(), None)
    })
    .await;
    let old = setting.watch().await;
    setting.rotate(issued("2", pairs.get(1), None)).await;
    let between = setting.watch().await;
    setting.rotate(issued("3", pairs.first(), None)).await;
    setting.get().await;
    assert_eq!(setting.seen().0.as_deref(), Some("x"));
    // The other one's deadline comes after what would have been its own.
    between.into_body().collect().await.unwrap_err();
    setting.api.until_open(Some("y"), 0).await;
    assert!(setting.api.open_connections(Some("x")) >= 2, "the first and the third are the same identity");
    drop(old);
}

#[tokio::test]
async fn ten_rotations_under_load_fail_no_request_and_leave_no_old_connection() {
    let mut pairs = Vec::new();
    let mut setting = Setting::new(Duration::from_secs(5), |api| {
        pairs = (0..=10).map(|name| pair(api, &format!("n{name}"))).collect();
        issued("0", pairs.first(), None)
    })
    .await;
    let (url, client) = (format!("{}/version", setting.api.url()), setting.client.clone());
    let load = tokio::spawn(async move {
        let mut pace = tokio::time::interval(Duration::from_millis(5));
        let mut requests = tokio::task::JoinSet::new();
        for _ in 0..500 {
            pace.tick().await;
            let (mut client, url) = (client.clone(), url.clone());
            requests.spawn(async move {
                let response = client.call(Request::get(url).body(Empty::new())?).await?;
                let status = response.status();
                response.into_body().collect().await?;
                Ok::<_, BoxError>(status)
            });
        }
        requests.join_all().await
    });
    for (index, pair) in pairs.iter().enumerate().skip(1) {
        tokio::time::sleep(Duration::from_millis(100)).await;
        setting.rotate(issued(&index.to_string(), Some(pair), None)).await;
        setting.api.forget_requests();
        setting.get().await;
        let name = format!("n{index}");
        let seen = setting.api.requests();
        assert!(seen.iter().any(|request| request.certificate.as_ref() == Some(&name)), "{name}: {seen:?}");
    }
    for outcome in load.await.unwrap() {
        assert_eq!(outcome.unwrap(), StatusCode::OK);
    }
    for index in 0..10 {
        setting.api.until_open(Some(&format!("n{index}")), 0).await;
    }
    assert_eq!(setting.get().await, StatusCode::OK);
}

#[tokio::test]
async fn ten_revocations_under_load_fail_no_request() {
    let tokens: Vec<_> = (0..=10).map(|number| format!("revoked-{number}")).collect();
    let setting = Setting::new(DRAIN, |api| {
        for token in &tokens {
            api.accept_token(token);
        }
        issued("0", None, Some("revoked-0"))
    })
    .await;
    let (url, client) = (format!("{}/version", setting.api.url()), setting.client.clone());
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    let (started, finished) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (starts, ends) = (Arc::clone(&started), Arc::clone(&finished));
    let load = tokio::spawn(async move {
        let mut pace = tokio::time::interval(Duration::from_millis(5));
        let mut requests = tokio::task::JoinSet::new();
        while !stopped.is_cancelled() {
            pace.tick().await;
            let (mut client, url, ends) = (client.clone(), url.clone(), Arc::clone(&ends));
            starts.fetch_add(1, Ordering::SeqCst);
            requests.spawn(async move {
                let response = client.call(Request::get(url).body(Empty::new())?).await?;
                ends.fetch_add(1, Ordering::SeqCst);
                Ok::<_, BoxError>(response.status())
            });
        }
        requests.join_all().await
    });
    for (index, token) in tokens.iter().enumerate().take(10) {
        let next = (index + 1).to_string();
        setting.broker.issue_on_report(&index.to_string(), issued(&next, None, Some(&tokens[index + 1])));
        setting.api.revoke_token(token);
        let mut source = setting.source.clone();
        let replaced = async {
            while source.current().is_none_or(|credential| credential.generation() != next) {
                source.changed().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), replaced)
            .await
            .expect("the load reports the revocation");
        // A request is repeated once: a request that met this revocation must end before the next one.
        let begun = started.load(Ordering::SeqCst);
        let served = async {
            while finished.load(Ordering::SeqCst) < begun + 20 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), served).await.expect("the load goes on");
    }
    stop.cancel();
    for outcome in load.await.unwrap() {
        assert_eq!(outcome.unwrap(), StatusCode::OK);
    }
    assert_eq!(setting.api.requests().last().unwrap().token.as_deref(), Some("revoked-10"));
}

/// Dials, and lets the test act before the handshake.
#[derive(Clone)]
struct Gate {
    dialled: tokio::sync::mpsc::UnboundedSender<tokio::sync::oneshot::Sender<()>>,
}

impl Dialer for Gate {
    type Stream = TcpStream;

    async fn dial(&self, uri: http::Uri) -> Result<TcpStream, BoxError> {
        let stream = Tcp::default().dial(uri).await?;
        let (go_on, gone_on) = tokio::sync::oneshot::channel();
        self.dialled.send(go_on)?;
        gone_on.await?;
        Ok(stream)
    }
}

#[tokio::test]
async fn a_connection_that_was_dialled_during_the_change_presents_the_new_certificate() {
    let mut pairs = Vec::new();
    let mut setting = Setting::new(DRAIN, |api| {
        pairs = vec![pair(api, "x"), pair(api, "y")];
        issued("1", pairs.first(), None)
    })
    .await;
    let (dialled, mut dials) = tokio::sync::mpsc::unbounded_channel();
    let settings = Settings::trusting(setting.api.ca_pem().as_bytes()).unwrap();
    let mut client = RotatingClient::over(Gate { dialled }, setting.source.clone(), settings);
    let request = client.call(setting.request("/version"));
    let change = async {
        let go_on = dials.recv().await.unwrap();
        setting.rotate(issued("2", pairs.get(1), None)).await;
        go_on.send(()).unwrap();
        dials.recv().await.unwrap().send(()).unwrap();
    };
    let both = async { tokio::join!(request, change) };
    let (response, ()) = tokio::time::timeout(DRAIN, both).await.expect("a second dial");
    assert_eq!(response.unwrap().status(), StatusCode::OK);
    assert_eq!(setting.api.seen_certificates(), ["y"]);
    setting.api.until_open(Some("x"), 0).await;
}
