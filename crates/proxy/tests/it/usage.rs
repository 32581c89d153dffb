//! What `credbroker status` shows of the proxy.

use credbroker_proxy::TargetUse;
use http::{Request, StatusCode};
use http_body_util::Full;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::timeout,
};

use crate::setting::{SOON, Setting, next};

impl Setting {
    /// The use of the only target.
    fn usage(&self) -> TargetUse {
        self.proxy.usage(&self.caller).unwrap().pop().expect("a target")
    }

    async fn until_used(&self, is_it: impl Fn(&TargetUse) -> bool) -> TargetUse {
        let found = async {
            loop {
                let usage = self.usage();
                if is_it(&usage) {
                    return usage;
                }
                tokio::task::yield_now().await;
            }
        };
        timeout(SOON, found).await.unwrap_or_else(|_| panic!("{:?}", self.usage()))
    }
}

#[tokio::test]
async fn a_target_in_use_is_shown_with_its_requests_streams_and_bytes() {
    let setting = Setting::with_token();
    assert_eq!(setting.proxy.usage(&setting.caller), Some(Vec::new()));
    let answer = setting.get("/version").await;
    assert_eq!(answer.status(), StatusCode::OK);
    let used = setting.until_used(|used| used.bytes_down > 0).await;
    let expected = TargetUse {
        name: "fleet/paris".to_owned(),
        path: "/clusters/fleet/paris".to_owned(),
        requests: 1,
        streams: 0,
        bytes_up: 0,
        bytes_down: answer.body().len() as u64,
    };
    assert_eq!(used, expected);

    // While they are open.
    let mut watch = setting.watch().await;
    setting.api.apply_cluster_profile("fleet", "tokyo", json!({}));
    let event = next(&mut watch).await.unwrap();
    let of_watch = event.len() as u64;
    let exec = Request::get("/clusters/fleet/paris/api/v1/namespaces/default/pods/p/exec?command=sh")
        .header("host", "127.0.0.1")
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .body(Full::default())
        .unwrap();
    let answer = setting.begin(exec).await;
    let mut tunnel = TokioIo::new(timeout(SOON, hyper::upgrade::on(answer)).await.unwrap().unwrap());
    tunnel.write_all(b"hello").await.unwrap();
    timeout(SOON, tunnel.read_exact(&mut [0; 5])).await.unwrap().unwrap();
    let used = setting.usage();
    assert_eq!((used.requests, used.streams, used.bytes_up), (3, 2, 5));
    assert_eq!(used.bytes_down, expected.bytes_down + of_watch + 5);

    drop((watch, tunnel));
    let used = setting.until_used(|used| used.streams == 0).await;
    assert_eq!(used.requests, 3);
    setting.rights.deny("/clusters/fleet/paris");
    assert_eq!(setting.proxy.usage(&setting.caller), Some(Vec::new()), "who may not list it sees nothing");
}
