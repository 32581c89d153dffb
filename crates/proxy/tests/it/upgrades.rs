//! Upgraded connections.

use std::time::Duration;

use credbroker_proxy::{Options, Phase, Times};
use http::{Request, StatusCode};
use http_body_util::Full;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::timeout,
};

use crate::{
    broker::issued,
    setting::{SOON, Setting, status},
};

pub(crate) fn exec(protocol: &str) -> Request<Full<bytes::Bytes>> {
    Request::get("/clusters/fleet/paris/api/v1/namespaces/default/pods/p/exec?command=sh")
        .header("host", "127.0.0.1")
        .header("connection", "Upgrade")
        .header("upgrade", protocol)
        .body(Full::default())
        .unwrap()
}

async fn tunnel(setting: &Setting, protocol: &str) -> TokioIo<Upgraded> {
    let answer = setting.begin(exec(protocol)).await;
    assert_eq!(answer.status(), StatusCode::SWITCHING_PROTOCOLS);
    assert_eq!(answer.headers()["upgrade"], protocol);
    let upgraded = timeout(SOON, hyper::upgrade::on(answer)).await.expect("a tunnel");
    TokioIo::new(upgraded.unwrap())
}

#[tokio::test]
async fn a_tunnel_carries_bytes_in_both_directions_until_both_ends_are_closed() {
    let setting = Setting::with_token();
    for protocol in ["websocket", "SPDY/3.1"] {
        let mut tunnel = tunnel(&setting, protocol).await;
        let sent = vec![7; 300_000];
        let (mut from, mut to) = tokio::io::split(&mut tunnel);
        let write = async {
            to.write_all(&sent).await.unwrap();
            // The other direction stays open, and what is on its way arrives.
            to.shutdown().await.unwrap();
        };
        let mut received = Vec::new();
        let both = async { tokio::join!(write, from.read_to_end(&mut received)) };
        timeout(SOON, both).await.expect("the end").1.unwrap();
        assert_eq!(received, sent, "{protocol}");
    }
    let records = setting.records.until(4).await;
    let ends: Vec<_> = records.iter().filter(|record| record.phase == Phase::End).collect();
    assert_eq!(ends.iter().map(|end| end.upgraded.unwrap()).collect::<Vec<_>>(), ["websocket", "SPDY/3.1"]);
    assert!(ends.iter().all(|end| (end.up, end.down) == (300_000, 300_000)), "{ends:?}");
    setting.api.until_open(None, 0).await;
}

#[tokio::test]
async fn an_upgrade_that_the_server_refuses_is_an_ordinary_answer_on_a_connection_that_ends() {
    let setting = Setting::with_token();
    setting.api.revoke_token("token-1");
    let mut client = setting.connect().await;
    let answer = timeout(SOON, client.send_request(exec("websocket"))).await.expect("an answer").unwrap();
    assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
    crate::setting::rest(answer.into_body()).await.unwrap();
    setting.api.until_open(None, 0).await;
    // The connection of the client is one of HTTP still.
    setting.api.accept_token("token-1");
    client.ready().await.unwrap();
    let answer =
        timeout(SOON, client.send_request(crate::setting::get("/version"))).await.expect("an answer");
    assert_eq!(answer.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn a_tunnel_of_a_caller_that_loses_its_right_ends() {
    let setting = Setting::with_token();
    let mut tunnel = tunnel(&setting, "websocket").await;
    setting.rights.deny("/clusters/fleet/paris");
    let end = timeout(SOON, tunnel.read_to_end(&mut Vec::new())).await.expect("an end");
    drop(end);
    setting.api.until_open(None, 0).await;
    assert!(setting.records.until(2).await[1].is_cut);
}

#[tokio::test]
async fn a_tunnel_has_its_time_when_the_proxy_ends() {
    let times = Times { drain: Duration::from_millis(500), ..Times::default() };
    let setting = Setting::with(Options { times, ..Options::default() }, |api| {
        api.accept_token("token-1");
        issued("1", None, Some("token-1"))
    });
    let mut tunnel = tunnel(&setting, "websocket").await;
    let drain = setting.drain();
    let use_it = async {
        tokio::task::yield_now().await;
        // So has one that begins meanwhile, and the port accepts until both have ended.
        let mut other = self::tunnel(&setting, "SPDY/3.1").await;
        for tunnel in [&mut tunnel, &mut other] {
            let mut answer = [0; 4];
            tunnel.write_all(b"echo").await.unwrap();
            tunnel.read_exact(&mut answer).await.unwrap();
            assert_eq!(&answer, b"echo");
        }
        assert!(!setting.closing.is_cancelled());
        for tunnel in [&mut tunnel, &mut other] {
            drop(tunnel.read_to_end(&mut Vec::new()).await);
        }
    };
    timeout(SOON, async { tokio::join!(drain, use_it) }).await.expect("an end");
    assert!(setting.closing.is_cancelled());
    let answer = setting.send(exec("websocket")).await;
    assert_eq!(status(&answer)["code"], 503);
}
