//! Programs that follow a credential, and the real broker going away under them.

use std::{
    os::unix::net::UnixStream,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use credbroker_client::{Broker, Client, CredentialRef, CredentialSource, Socket, admin::Selector};
use credbroker_test_support::{FakePlugin, private_directory, private_file};
use serde_json::json;
use tokio::time::timeout;

use crate::harness::provider;

const SOURCES: usize = 1000;

fn serve(config: &Path, socket: &Path) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_credbroker"));
    command.arg("serve").arg("--config").arg(config).arg("--socket").arg(socket);
    let broker = command.env_clear().stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while UnixStream::connect(socket).is_err() {
        assert!(Instant::now() < deadline, "no broker");
        std::thread::sleep(Duration::from_millis(2));
    }
    broker
}

async fn until(source: &mut CredentialSource, generation_of: impl Fn(&str) -> bool) {
    let reached = async {
        while !source.current().is_some_and(|credential| generation_of(credential.generation())) {
            source.changed().await;
        }
    };
    timeout(Duration::from_secs(30), reached).await.unwrap_or_else(|_| panic!("in time: {source:?}"));
}

#[tokio::test]
async fn a_thousand_sources_keep_their_credential_through_a_sigkill_and_are_current_after_it() {
    let plugin = FakePlugin::builder().token_per_run().expires_in(3600).build();
    let directory = private_directory();
    let (config, socket) = (directory.path().join("config.yaml"), directory.path().join("run/socket"));
    let providers = json!([provider("cloud", &plugin)]);
    let text =
        json!({"apiVersion": "credbroker.io/v1alpha1", "kind": "BrokerConfig", "providers": providers});
    private_file(&config, &text.to_string());
    let mut broker = serve(&config, &socket);
    // The provider does not take the variable, so all are one credential.
    let reference = |number: usize| CredentialRef::provider("cloud").env("NUMBER", number.to_string());
    let followed = Broker::at(Socket::at(&socket));
    let mut sources: Vec<_> = (0..SOURCES).map(|number| followed.source(reference(number))).collect();
    for source in &mut sources {
        until(source, |_| true).await;
    }
    let first = sources[0].current().unwrap().generation().to_owned();
    let old = |generation: &str| generation == first;
    assert!(sources.iter().all(|source| source.current().is_some_and(|held| old(held.generation()))));

    broker.kill().unwrap();
    broker.wait().unwrap();
    assert!(sources.iter().all(|source| source.current().is_some()), "the last valid one is kept");
    broker = serve(&config, &socket);
    let started = Instant::now();
    for source in &mut sources {
        until(source, |generation| !old(generation)).await;
    }
    let took = started.elapsed();
    broker.kill().unwrap();
    broker.wait().unwrap();
    assert_eq!(plugin.runs(), 2, "one for each broker, however many ask");
    // Five seconds is the promise; a loaded machine gets more.
    assert!(took < Duration::from_secs(15), "{took:?}");
}

/// As a controller of a changing fleet has them.
#[tokio::test]
async fn a_thousand_sources_that_come_and_go_leave_no_watch_at_the_broker() {
    let plugin = FakePlugin::builder().token_per_run().expires_in(3600).build();
    let directory = private_directory();
    let (config, socket) = (directory.path().join("config.yaml"), directory.path().join("run/socket"));
    let providers = json!([provider("cloud", &plugin)]);
    let text =
        json!({"apiVersion": "credbroker.io/v1alpha1", "kind": "BrokerConfig", "providers": providers});
    private_file(&config, &text.to_string());
    let mut broker = serve(&config, &socket);
    let admin = Client::connect(&Socket::at(&socket)).await.unwrap().admin();
    let watchers = async || admin.credentials(&Selector::All).await.unwrap().first().map(|held| held.watches);
    let followed = Broker::at(Socket::at(&socket));
    for round in 0..3 {
        let reference = |number| CredentialRef::provider("cloud").env("NUMBER", format!("{round}-{number}"));
        let sources: Vec<_> = (0..SOURCES).map(|number| followed.source(reference(number))).collect();
        for source in &sources {
            source.ready().await.unwrap();
        }
        assert_eq!(watchers().await, Some(1000));
        drop(sources);
        let gone = async {
            while watchers().await != Some(0) {
                tokio::task::yield_now().await;
            }
        };
        timeout(Duration::from_secs(30), gone).await.expect("the watches end");
    }
    broker.kill().unwrap();
    broker.wait().unwrap();
}
