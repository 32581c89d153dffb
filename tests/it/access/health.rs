//! Health, and streams that only need some right, when the rules change.

use std::{
    os::unix::{fs::PermissionsExt, net::UnixStream as StdUnixStream},
    sync::Mutex,
};

use hyper_util::rt::TokioIo;
use rustix::{
    process::Uid,
    thread::{set_thread_groups, set_thread_res_uid},
};
use tokio::net::UnixStream;
use tonic::{Streaming, transport::Endpoint};
use tonic_health::pb::{HealthCheckResponse, health_check_response::ServingStatus};
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;

use super::*;

const USER: u32 = 61_001;

async fn watch(channel: &Channel, service: &str) -> Streaming<HealthCheckResponse> {
    let request = HealthCheckRequest { service: service.to_owned() };
    let mut states = HealthClient::new(channel.clone()).watch(request).await.unwrap().into_inner();
    assert_eq!(states.message().await.unwrap().unwrap().status(), ServingStatus::Serving, "{service}");
    states
}

/// The error that ends a watch.
async fn ended<T>(messages: &mut Streaming<T>) -> Status {
    let ended = timeout(Duration::from_secs(60), messages.message());
    ended.await.expect("it ends").map(drop).expect_err("an error ends it")
}

/// A connection of another user.
async fn channel_of(uid: u32, broker: &InProcess) -> Channel {
    let socket = broker.socket();
    let directory = socket.parent().unwrap();
    for (path, mode) in [(directory.parent().unwrap(), 0o711), (directory, 0o711), (&*socket, 0o666)] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }
    let connect = move || {
        let user = Uid::from_raw(uid);
        set_thread_groups(&[]).unwrap();
        set_thread_res_uid(None, Some(user), None).unwrap();
        StdUnixStream::connect(socket).unwrap()
    };
    let stream = std::thread::spawn(connect).join().unwrap();
    stream.set_nonblocking(true).unwrap();
    let stream = Mutex::new(Some(UnixStream::from_std(stream).unwrap()));
    let connect = tower::service_fn(move |_| {
        let stream = stream.lock().unwrap().take();
        async move { stream.map(TokioIo::new).ok_or(std::io::Error::from(std::io::ErrorKind::ConnectionRefused)) }
    });
    Endpoint::from_static("http://localhost").connect_with_connector(connect).await.unwrap()
}

#[tokio::test]
async fn the_health_of_a_provider_needs_a_right_to_it() {
    let (broker, plugin) = broker(&rule(&json!({"providers": ["a", "b"], "verbs": ["get"]})));
    let channel = broker.channel().await;
    let (mut kept, mut lost, mut own) =
        (watch(&channel, "a").await, watch(&channel, "b").await, watch(&channel, "").await);
    change(&broker, &plugin, &rule(&json!({"providers": ["a"], "verbs": ["get"]}))).await;
    let mut health = HealthClient::new(channel);
    let mut check = async |service: &str| {
        let request = HealthCheckRequest { service: service.to_owned() };
        health.check(request).await.map(drop).map_err(|status| (status.code(), status.message().to_owned()))
    };
    check("a").await.unwrap();
    let unknown = check("none").await.unwrap_err();
    assert_eq!((check("b").await.unwrap_err(), unknown.0), (unknown.clone(), Code::NotFound));
    let lost = ended(&mut lost).await;
    assert_eq!((lost.code(), lost.message().to_owned()), unknown, "a watch that lost its right");

    let mut without = sections(&plugin, &rule(&json!({"providers": ["a"], "verbs": ["get"]})));
    without["providers"].as_array_mut().unwrap().remove(0);
    broker.reconfigure(without).await;
    let removed = ended(&mut kept).await;
    assert_eq!((removed.code(), removed.message().to_owned()), unknown, "a watch of a removed provider");
    change(&broker, &plugin, &foreign()).await;
    broker.stop().await;
    let status = own.message().await.unwrap().unwrap().status();
    assert_eq!(status, ServingStatus::NotServing, "the own user needs no right to the health of the broker");
}

#[tokio::test]
async fn streams_that_need_some_right_end_when_all_are_lost() {
    if !geteuid().is_root() {
        return println!("SKIPPED: only root can connect as another user");
    }
    let rules = |uid: u32| json!([{"name": "r", "peers": {"uids": [uid]}, "allow": {"providers": ["a"], "verbs": ["get"]}}]);
    let (broker, plugin) = broker(&rules(USER));
    let channel = channel_of(USER, &broker).await;
    let mut states = [watch(&channel, "").await, watch(&channel, "a").await, watch(&channel, "ready").await];
    let questions = tonic::Request::new(tokio_stream::pending());
    let reflection = ServerReflectionClient::new(channel).server_reflection_info(questions).await;
    let mut reflection = reflection.unwrap().into_inner();
    change(&broker, &plugin, &rules(USER + 1)).await;
    for states in &mut states {
        assert_eq!(denied(&ended(states).await), DENIED);
    }
    assert_eq!(denied(&ended(&mut reflection).await), DENIED);
}
