//! Drain: who waits is answered, plugins are ended, the name goes.

use std::{fs, time::Duration};

use credbroker::app::Drained;
use credbroker_proto::Reason;
use credbroker_test_support::FakePlugin;
use serde_json::json;
use tokio::time::{sleep, timeout};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;

use crate::harness::{InProcess, provider};

#[tokio::test]
async fn those_who_wait_for_a_run_are_sent_to_the_successor_and_the_plugin_is_ended() {
    let plugin = FakePlugin::script("echo $$ > \"$dir/pid\"; sleep 60");
    let broker = InProcess::start(json!([provider("slow", &plugin)]));
    let socket = broker.socket();
    let (waits, drained) = {
        let stop = async {
            until(|| plugin.dir().join("pid").exists()).await;
        };
        let mut ask = Box::pin(broker.get("slow"));
        tokio::select! {
            answer = &mut ask => panic!("it must wait: {answer:?}"),
            () = stop => {}
        }
        let client = broker.client().await; // an idle connection must not hold the drain up
        drop(ask);
        let client_waiting = client.clone();
        let waits = tokio::spawn(async move {
            client_waiting.credential(&crate::harness::reference("slow", None, &[])).await
        });
        sleep(Duration::from_millis(50)).await; // its request is under way, or is refused all the same
        let drained = broker.stop().await;
        (waits.await.unwrap(), drained)
    };
    assert_eq!(drained, Drained::Whole, "nothing had to be cut off");
    assert_eq!(waits.unwrap_err().reason(), Some(Reason::Draining));
    assert!(!socket.exists());
    let pid = fs::read_to_string(plugin.dir().join("pid")).unwrap();
    until(|| !std::path::Path::new(&format!("/proc/{}", pid.trim())).exists()).await;
}

#[tokio::test]
async fn open_streams_end_and_do_not_hold_a_drain_up() {
    let broker = InProcess::idle();
    let channel = broker.channel().await;
    let service = "credbroker.v1.CredentialBroker".to_owned();
    let watch = HealthClient::new(channel.clone()).watch(HealthCheckRequest { service }).await;
    let mut watch = watch.unwrap().into_inner();
    let first = watch.message().await.unwrap().unwrap();
    assert_eq!(first.status(), ServingStatus::Serving);
    let questions = tonic::Request::new(tokio_stream::pending());
    let reflection = ServerReflectionClient::new(channel.clone()).server_reflection_info(questions).await;
    let mut reflection = reflection.unwrap().into_inner();

    assert_eq!(broker.stop().await, Drained::Whole, "nothing had to be cut off");
    assert_eq!(watch.message().await.unwrap().unwrap().status(), ServingStatus::NotServing);
    for ended in [watch.message().await.unwrap_err(), reflection.message().await.unwrap_err()] {
        assert_eq!(ended.code(), tonic::Code::Unavailable, "{ended:?}");
    }
}

/// Polls, because there is no event to wait for outside this process.
async fn until(condition: impl Fn() -> bool) {
    let met = async {
        while !condition() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(20), met).await.expect("in time");
}
