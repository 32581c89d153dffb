//! Traces: what a collector of OpenTelemetry gets from the real broker.

mod collector;

use std::time::Duration;

use credbroker_proto::v1 as pb;
use credbroker_test_support::{Broker, BrokerBuilder, FakePlugin, private_directory};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::{TcpListener, UnixStream};
use tonic::{Request, Status, client::Grpc, transport::Endpoint};
use tonic_prost::ProstCodec;

use super::PROGRAM;
use crate::harness::provider;
use collector::{Collector, SERVER, Span};

/// The trace and the span of a caller.
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";

fn broker(endpoint: &str, plugins: &[(&str, &FakePlugin)]) -> BrokerBuilder {
    let providers: Vec<_> = plugins.iter().map(|(name, plugin)| provider(name, plugin)).collect();
    let broker = Broker::builder(PROGRAM).providers(&json!(providers));
    broker.env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
}

/// Requests `name` with a trace context.
async fn get(broker: &Broker, name: &str, traceparent: &str) -> Result<(), Status> {
    request(broker, name, traceparent, Duration::from_secs(60)).await
}

async fn request(broker: &Broker, name: &str, traceparent: &str, limit: Duration) -> Result<(), Status> {
    let path = broker.socket();
    let connect = tower::service_fn(move |_| {
        let path = path.clone();
        async move { Ok::<_, std::io::Error>(TokioIo::new(UnixStream::connect(path).await?)) }
    });
    let channel = Endpoint::from_static("http://localhost").connect_with_connector(connect).await.unwrap();
    let source =
        pb::credential_ref::Source::Provider(pb::ProviderRef { name: name.into(), ..Default::default() });
    let reference = pb::CredentialRef { source: Some(source), ..pb::CredentialRef::default() };
    let mut request = Request::new(pb::GetCredentialRequest {
        r#ref: Some(reference),
        ..pb::GetCredentialRequest::default()
    });
    request.set_timeout(limit);
    request.metadata_mut().insert("traceparent", traceparent.parse().unwrap());
    let mut client = Grpc::new(channel);
    client.ready().await.unwrap();
    let codec = ProstCodec::<_, pb::GetCredentialResponse>::default();
    let path = "/credbroker.v1.CredentialBroker/GetCredential".parse().unwrap();
    client.unary(request, path, codec).await.map(|_| ())
}

fn traceparent(sampled: bool) -> String {
    format!("00-{TRACE}-{CALLER}-0{}", u8::from(sampled))
}

/// The attributes that are the same in each run of the test.
fn known(span: &Span) -> String {
    let is_known = |name: &str| !["credbroker.id", "credbroker.run.queued_seconds"].contains(&name);
    let attributes = span.attributes().into_iter().filter(|(name, _)| is_known(name));
    let attributes: Vec<_> = attributes.map(|(name, value)| format!("{name}={value}")).collect();
    format!("{} ({}) {}", span.name, span.failed(), attributes.join(" "))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_continues_the_trace_of_its_caller_and_its_run_is_below_it() {
    let mut collector = Collector::start().await;
    let good = FakePlugin::builder().token("c4n4ry").expires_in(3600).build();
    let bad = FakePlugin::builder().stderr("c4n4ry").exit_code(3).build();
    let broker = broker(&collector.endpoint(), &[("good", &good), ("bad", &bad)]);
    let broker = broker.env("OTEL_BSP_SCHEDULE_DELAY", "20").env("OTEL_SERVICE_NAME", "node-7").start();

    get(&broker, "good", &traceparent(true)).await.unwrap();
    let [run, request] = collector.spans().await;
    assert_eq!((request.trace(), request.parent(), request.kind), (TRACE.into(), CALLER.into(), SERVER));
    assert_eq!((run.trace(), run.parent()), (TRACE.into(), request.id()));
    assert_eq!(request.attribute("credbroker.id"), run.attribute("credbroker.id"));
    assert_eq!(request.links(), [run.id()]);
    insta::assert_snapshot!(known(&request), @"GetCredential () credbroker.provider=good credbroker.result=OK rpc.method=GetCredential rpc.system=grpc");
    insta::assert_snapshot!(known(&run), @"plugin run () credbroker.provider=good credbroker.run.outcome=rotated credbroker.run.reason=first");

    get(&broker, "good", &traceparent(true)).await.unwrap();
    let [hit] = collector.spans().await;
    assert_eq!(hit.attributes(), request.attributes(), "it is answered from memory");

    get(&broker, "bad", &traceparent(true)).await.unwrap_err();
    let [run, request] = collector.spans().await;
    insta::assert_snapshot!(known(&request), @"GetCredential (PLUGIN_EXIT) credbroker.provider=bad credbroker.result=PLUGIN_EXIT rpc.method=GetCredential rpc.system=grpc");
    insta::assert_snapshot!(known(&run), @"plugin run (exit) credbroker.provider=bad credbroker.run.outcome=exit credbroker.run.reason=first");

    // Its caller does not sample it: the next span is that of the request after it.
    get(&broker, "good", &traceparent(false)).await.unwrap();
    get(&broker, "unknown", "").await.unwrap_err();
    let [root] = collector.spans().await;
    assert_eq!((root.parent(), root.trace() == TRACE), (String::new(), false));
    insta::assert_snapshot!(known(&root), @"GetCredential (UNKNOWN_PROVIDER) credbroker.result=UNKNOWN_PROVIDER rpc.method=GetCredential rpc.system=grpc");

    assert_eq!(collector.service(), "node-7");
    assert!(!collector.has_seen("c4n4ry"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_joins_a_run_has_a_link_to_it() {
    let mut collector = Collector::start().await;
    let directory = private_directory();
    let [started, gate] = ["started", "gate"].map(|name| directory.path().join(name));
    let document =
        r#"{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"t"}}"#;
    let plugin = FakePlugin::script(&format!(
        "touch {}; while [ ! -e {} ]; do sleep 0.01; done; echo '{document}'",
        started.display(),
        gate.display()
    ));
    let broker = broker(&collector.endpoint(), &[("cloud", &plugin)]);
    let broker = broker.env("OTEL_BSP_SCHEDULE_DELAY", "20").start();
    let joins = async {
        while !started.exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let status = request(&broker, "cloud", &traceparent(true), Duration::from_secs(1)).await.unwrap_err();
        assert!(status.message().ends_with("(RUN_PENDING)"), "{status}");
        std::fs::write(gate, "").unwrap();
    };
    tokio::join!(async { get(&broker, "cloud", &traceparent(true)).await.unwrap() }, joins);
    let [joined, run, first] = collector.spans().await;
    assert_eq!((joined.links(), first.links()), (vec![run.id()], vec![run.id()]));
    assert_eq!(run.parent(), first.id());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_spans_are_sent_when_the_broker_stops() {
    let mut collector = Collector::start().await;
    let plugin = FakePlugin::builder().token("t").expires_in(3600).build();
    let broker = broker(&collector.endpoint(), &[("cloud", &plugin)]);
    let broker = broker.env("OTEL_BSP_SCHEDULE_DELAY", "3600000").start();
    get(&broker, "cloud", &traceparent(true)).await.unwrap();
    let stopped = tokio::task::spawn_blocking(move || broker.stop()).await.unwrap();
    assert_eq!(stopped.0.code(), Some(0), "{}", stopped.1);
    let [_run, request] = collector.spans().await;
    assert_eq!(request.parent(), CALLER);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_does_not_answer_stops_neither_requests_nor_the_broker() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", silent.local_addr().unwrap());
    let plugin = FakePlugin::builder().token("t").expires_in(3600).build();
    let queue = [("OTEL_BSP_MAX_QUEUE_SIZE", "8"), ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1")];
    let broker = queue
        .iter()
        .fold(broker(&endpoint, &[("cloud", &plugin)]), |broker, (name, value)| broker.env(name, value));
    let broker = broker.env("OTEL_BSP_SCHEDULE_DELAY", "1").start();
    for _ in 0..100 {
        get(&broker, "cloud", &traceparent(true)).await.unwrap();
    }
    // It waits for this collector only for a second, and not for the ten seconds that a request to it may take.
    let stopped = tokio::task::spawn_blocking(move || broker.stop()).await.unwrap();
    assert_eq!(stopped.0.code(), Some(0), "{}", stopped.1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_gone_is_one_warning() {
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", gone.local_addr().unwrap());
    drop(gone);
    let plugin = FakePlugin::builder().token("t").expires_in(3600).build();
    let broker = broker(&endpoint, &[("cloud", &plugin)]);
    let broker = broker.env("OTEL_BSP_SCHEDULE_DELAY", "1").start();
    let warnings = || broker.log().matches("traces cannot be sent").count();
    let request = async || get(&broker, "cloud", &traceparent(true)).await.unwrap();
    request().await;
    super::until("it warns", || warnings() > 0);
    for _ in 0..20 {
        request().await;
        tokio::time::sleep(Duration::from_millis(5)).await; // longer than the delay: each is a batch
    }
    assert_eq!(warnings(), 1, "{}", broker.log());
}

#[test]
fn without_an_endpoint_nothing_is_sent_and_another_protocol_is_a_warning() {
    let plugin = FakePlugin::builder().token("t").build();
    let quiet = Broker::builder(PROGRAM).providers(&json!([provider("cloud", &plugin)])).start();
    assert!(!quiet.log().contains("traces"), "{}", quiet.log());
    let other = broker("http://127.0.0.1:4318", &[("cloud", &plugin)]);
    let other = other.env("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf").start();
    super::until("it warns", || {
        other.log().contains("traces are not sent: the broker sends them over gRPC only")
    });
}
