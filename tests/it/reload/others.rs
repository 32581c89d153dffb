//! A reload disturbs only the providers that it changes.

use credbroker_client::{Broker, CredentialRef, Socket};
use credbroker_proto::v1 as pb;
use pb::credential_broker_client::CredentialBrokerClient;
use tonic::Streaming;

use super::*;
use crate::harness::{reason, reference, request};

type Watch = Streaming<pb::WatchCredentialResponse>;

async fn watch(broker: &InProcess, provider: &str) -> Watch {
    let mut rpc = CredentialBrokerClient::new(broker.channel().await);
    let request = pb::WatchCredentialRequest { r#ref: request(provider, None, &[]).r#ref };
    rpc.watch_credential(request).await.unwrap().into_inner()
}

async fn next(watch: &mut Watch) -> Result<String, tonic::Status> {
    let message = timeout(AGES, watch.message()).await.expect("a message")?.expect("a status at the end");
    Ok(message.credential.unwrap().token.unwrap())
}

#[tokio::test]
async fn watches_and_runs_of_a_changed_or_removed_provider_end_with_a_reason_and_others_go_on() {
    let (old, slow, steady) = (prints("old"), FakePlugin::script("sleep 600"), prints("steady"));
    let first = users(&[("rel", &old), ("slow", &slow), ("steady", &steady)]);
    let followed = Followed::start(&first).await;
    let mut watches = [watch(&followed.broker, "rel").await, watch(&followed.broker, "steady").await];
    assert_eq!(next(&mut watches[0]).await.unwrap(), "old");
    assert_eq!(next(&mut watches[1]).await.unwrap(), "steady");
    let waiting = followed.broker.get("slow");
    let change = async {
        while slow.runs() == 0 {
            tokio::task::yield_now().await;
        }
        let new = prints("new");
        followed.write(&users(&[("rel", &new), ("steady", &steady)]));
        followed.reloads(1).await;
        new
    };
    let (waited, new) = tokio::join!(waiting, change);
    let Err(Error::Failed(failure)) = waited else { panic!("the run has ended: {waited:?}") };
    assert_eq!(failure.reason, Some(Reason::ProviderChanged));
    assert!(failure.message.contains("was removed from the configuration"), "{failure:?}");
    let ended = next(&mut watches[0]).await.unwrap_err();
    assert_eq!((ended.code(), reason(&ended)), (tonic::Code::Unavailable, Some(Reason::ProviderChanged)));
    let mut again = watch(&followed.broker, "rel").await;
    assert_eq!(next(&mut again).await.unwrap(), "new");
    assert!(
        futures_util::poll!(std::pin::pin!(watches[1].message())).is_pending(),
        "nothing is sent to others"
    );
    assert_eq!((old.runs(), steady.runs(), new.runs()), (1, 1, 1));
}

#[tokio::test]
async fn a_source_drops_the_credential_of_a_changed_or_removed_provider() {
    let (old, slow, new) = (prints("old"), FakePlugin::script("sleep 600"), prints("new"));
    let followed = Followed::start(&users(&[("rel", &old)])).await;
    let broker = Broker::at(Socket::at(followed.broker.socket()));
    let source = broker.source(CredentialRef::provider("rel"));
    assert_eq!(token(&source.ready().await.unwrap()), "old");
    followed.write(&users(&[("rel", &slow)]));
    // The run is for the next watch of the source.
    let run = async {
        while slow.runs() == 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(AGES, run).await.expect("a run of the new definition");
    assert!(source.current().is_none(), "{source:?}");
    followed.write(&users(&[("rel", &new)]));
    assert_eq!(token(&timeout(AGES, source.ready()).await.unwrap().unwrap()), "new");

    followed.write(&users(&[("dev", &old)]));
    let dropped = async {
        while source.current().is_some() {
            tokio::task::yield_now().await;
        }
    };
    timeout(AGES, dropped).await.expect("the broker ends the watch");
    let error = timeout(AGES, source.ready()).await.unwrap().unwrap_err();
    assert_eq!(error.reason(), Some(Reason::UnknownProvider), "{error:?}");
}

#[tokio::test]
async fn calls_for_other_providers_lose_nothing_during_fifty_reloads() {
    let (steady, plugins) = (prints("steady"), [prints("0"), prints("1")]);
    let text = |number: usize| users(&[("steady", &steady), ("rel", &plugins[number % 2])]);
    let followed = Followed::start(&text(0)).await;
    let mut watching = watch(&followed.broker, "steady").await;
    assert_eq!(next(&mut watching).await.unwrap(), "steady");
    let client = followed.broker.client().await;
    let steady_reference = reference("steady", None, &[]);
    let generation = client.credential(&steady_reference).await.unwrap().generation().to_owned();
    let calls = async {
        let mut pace = tokio::time::interval(Duration::from_millis(5));
        let mut answers = 0_u64;
        loop {
            pace.tick().await;
            let credential = client.credential(&steady_reference).await.expect("no call is lost");
            assert_eq!(credential.generation(), generation);
            answers += 1;
            if answers.is_multiple_of(50) {
                // A new connection is served as well.
                assert_eq!(followed.ask("steady").await, Ok("steady".into()));
            }
        }
    };
    let reloads = async {
        for number in 1..=50 {
            followed.write(&text(number));
            followed.reloads(u64::try_from(number).unwrap()).await;
            assert_eq!(followed.ask("rel").await, Ok((number % 2).to_string()));
        }
    };
    tokio::select! {
        () = calls => unreachable!(),
        () = reloads => {}
    }
    assert!(futures_util::poll!(std::pin::pin!(watching.message())).is_pending(), "the watch goes on");
    assert_eq!((steady.runs(), plugins[0].runs() + plugins[1].runs()), (1, 50));
}

#[tokio::test]
async fn a_new_context_of_a_user_and_other_limits_run_no_plugin_again() {
    let plugin = prints("rel");
    let followed = Followed::start(&users(&[("rel", &plugin)])).await;
    assert_eq!(followed.ask("rel").await, Ok("rel".into()));
    let cluster = json!({"server": "https://paris.example"});
    let mut stanza = plugin.exec_stanza();
    stanza["provideClusterInfo"] = json!(false);
    let more = Kubeconfig::new().exec_user("rel", &stanza).cluster("paris", &cluster);
    followed.write(&more.context("paris", "paris", "rel").to_yaml());
    followed.broker.configure(json!({
        "kubeconfigs": [followed.file()],
        "limits": {"pluginRuns": 3, "credentials": 50},
    }));
    followed.reloads(1).await;
    assert_eq!(followed.ask("rel").await, Ok("rel".into()));
    assert_eq!(plugin.runs(), 1);
}
