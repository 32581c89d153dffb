//! Health over HTTP, over gRPC and by `credbroker healthcheck`.

use std::{
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    path::Path,
    process::Command,
};

use credbroker_test_support::{FakePlugin, Kubeconfig, private_directory, private_file};
use serde_json::{Value, json};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

use super::{PROGRAM, http};
use crate::harness::{InProcess, provider};

struct Probed {
    broker: InProcess,
    directory: tempfile::TempDir,
}

impl Probed {
    fn start(providers: &Value) -> Self {
        let directory = private_directory();
        let listen = format!("unix://{}", directory.path().join("metrics/socket").display());
        let broker = InProcess::with(json!({"providers": providers, "metrics": {"listen": listen}}), &[]);
        Self { broker, directory }
    }

    async fn http(&self, path: &str) -> (u16, String) {
        let (socket, path) = (self.directory.path().join("metrics/socket"), path.to_owned());
        tokio::task::spawn_blocking(move || http::get(&socket, &path)).await.unwrap()
    }

    async fn grpc(&self, service: &str) -> Result<ServingStatus, tonic::Code> {
        let mut health = HealthClient::new(self.broker.channel().await);
        let answer = health.check(HealthCheckRequest { service: service.to_owned() }).await;
        answer.map(|answer| answer.into_inner().status()).map_err(|status| status.code())
    }

    /// Exit code and output of `credbroker healthcheck`.
    async fn command(&self, args: &[&str]) -> (i32, String) {
        let mut command = Command::new(PROGRAM);
        command.arg("healthcheck").args(args).arg("--socket").arg(self.broker.socket()).env_clear();
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        (output.status.code().unwrap(), text)
    }
}

const READY: &str = "{\"ready\":true}\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_is_ready_until_its_plugin_fails_and_while_it_has_a_credential() {
    let good = FakePlugin::builder().token("t").expires_in(3600).build();
    let bad = FakePlugin::builder().stderr("c4n4ry").exit_code(3).build();
    let probed = Probed::start(&json!([provider("good", &good), provider("bad/é", &bad)]));
    assert_eq!(probed.http("/livez").await, (200, "ok\n".to_owned()));
    assert_eq!(probed.http("/readyz").await.0, 200, "no plugin has failed yet");
    assert_eq!(probed.command(&["--ready"]).await, (0, "ok\n".to_owned()));

    probed.broker.get("good").await.unwrap();
    probed.broker.get("bad/é").await.unwrap_err();
    good.becomes(&FakePlugin::builder().exit_code(1));
    let client = probed.broker.client().await;
    client.admin().refresh(&credbroker_client::admin::Selector::Provider("good".into())).await.unwrap();

    let failing = "{\"ready\":false,\"reason\":\"PLUGIN_EXIT\"}";
    assert_eq!(probed.http("/readyz/good").await, (200, READY.to_owned()), "its credential is valid");
    assert_eq!(probed.http("/readyz/bad%2F%C3%A9").await, (503, format!("{failing}\n")));
    assert_eq!(probed.http("/readyz/unknown").await.0, 404);
    let (status, body) = probed.http("/readyz").await;
    assert_eq!(status, 503);
    insta::assert_snapshot!(body.trim_end(), @r#"{"broker":{"ready":true},"providers":{"bad/é":{"ready":false,"reason":"PLUGIN_EXIT"},"good":{"ready":true}}}"#);
    assert_eq!(probed.http("/readyz?exclude=bad%2F%C3%A9").await.0, 200);
    assert_eq!(probed.http("/livez").await.0, 200, "plugins have no part in it");

    assert_eq!(probed.grpc("good").await, Ok(ServingStatus::Serving));
    assert_eq!(probed.grpc("bad/é").await, Ok(ServingStatus::NotServing));
    assert_eq!(probed.grpc("ready").await, Ok(ServingStatus::NotServing));
    assert_eq!(probed.grpc("").await, Ok(ServingStatus::Serving));
    assert_eq!(probed.grpc("unknown").await, Err(tonic::Code::NotFound));

    assert_eq!(probed.command(&[]).await, (0, "ok\n".to_owned()));
    let (code, text) = probed.command(&["--ready"]).await;
    assert_eq!(code, 1, "{text}");
    assert_eq!(probed.command(&["good"]).await.0, 0);
    assert_eq!(probed.command(&["bad/é"]).await.0, 1);
    assert_eq!(probed.command(&["unknown"]).await.0, 1);
}

/// Anyone on this machine can connect to a loopback address.
#[tokio::test(flavor = "multi_thread")]
async fn connections_that_send_no_request_keep_no_probe_out() {
    let plugin = FakePlugin::builder().token("t").build();
    let probed = Probed::start(&json!([provider("cloud", &plugin)]));
    let socket = probed.directory.path().join("metrics/socket");
    let open: Vec<_> = (0..40)
        .map(|number| {
            let mut stream = UnixStream::connect(&socket).unwrap();
            let head = "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n";
            // It may have given way already.
            drop(stream.write_all(&head.as_bytes()[..number % (head.len() - 1)]));
            stream
        })
        .collect();
    assert_eq!(probed.http("/livez").await, (200, "ok\n".to_owned()));
    let ended = open.into_iter().map(|mut stream| stream.read(&mut [0]));
    let ended: Vec<_> = tokio::task::spawn_blocking(|| ended.collect()).await.unwrap();
    assert!(ended.into_iter().all(|read| !matches!(read, Ok(1..))), "nothing is answered without a request");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_is_not_installed_is_not_ready_before_anyone_asks() {
    let plugin = FakePlugin::builder().token("t").build();
    let mut missing = provider("missing", &plugin);
    missing["execConfig"]["command"] = json!("/no/such/plugin");
    let probed = Probed::start(&json!([missing]));
    // The first look-up of the file may not have ended yet.
    while probed.http("/readyz/missing").await.0 != 503 {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert!(probed.http("/readyz/missing").await.1.contains("PLUGIN_NOT_FOUND"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_has_not_read_its_hub_is_not_ready() {
    let plugin = FakePlugin::builder().token("t").build();
    let directory = private_directory();
    let (hub, socket) = (directory.path().join("hub"), directory.path().join("metrics/socket"));
    private_file(&hub, &Kubeconfig::of_absent_hub(&json!({"token": "t"})).to_yaml());
    let config = json!({
        "providers": [provider("cloud", &plugin)],
        "clusterProfiles": {"kubeconfig": hub},
        "metrics": {"listen": format!("unix://{}", socket.display())},
    });
    let probed = Probed { broker: InProcess::with(config, &[]), directory };
    let (status, body) = probed.http("/readyz").await;
    assert_eq!(status, 503);
    insta::assert_snapshot!(body.trim_end(), @r#"{"broker":{"ready":true},"hub":{"ready":false,"reason":"HUB_UNAVAILABLE"},"providers":{"cloud":{"ready":true}}}"#);
    assert_eq!(probed.http("/readyz/cloud").await.0, 200);
    let (_, text) = probed.http("/metrics").await;
    assert!(
        text.contains("\ncredbroker_hub_up 0\n") && text.contains("\ncredbroker_cluster_profiles 0\n"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_health_watch_of_a_provider_follows_it() {
    let plugin = FakePlugin::builder().exit_code(3).build();
    let probed = Probed::start(&json!([provider("cloud", &plugin)]));
    let mut health = HealthClient::new(probed.broker.channel().await);
    let request = HealthCheckRequest { service: "cloud".to_owned() };
    let mut states = health.watch(request).await.unwrap().into_inner();
    assert_eq!(states.message().await.unwrap().unwrap().status(), ServingStatus::Serving);
    probed.broker.get("cloud").await.unwrap_err();
    assert_eq!(states.message().await.unwrap().unwrap().status(), ServingStatus::NotServing);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_health_check_without_a_broker_fails_with_its_code() {
    let output = Command::new(PROGRAM)
        .args(["healthcheck", "--socket"])
        .arg(Path::new("/nowhere/credbroker.sock"))
        .env_clear()
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(69));
}
