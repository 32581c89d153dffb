//! The whole exposition.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use credbroker_observe::metrics::{FAMILIES, MetricType};
use credbroker_test_support::{Accepts, ApiServer, Broker, FakePlugin, private_directory};
use futures_util::StreamExt as _;
use serde_json::{Value, json};

use super::{PROGRAM, http, until};
use crate::harness::{InProcess, provider, reference};

/// A broker with the metrics on a socket in `directory`.
fn broker(directory: &Path, providers: &Value) -> InProcess {
    let listen = format!("unix://{}", directory.join("metrics/socket").display());
    InProcess::with(json!({"providers": providers, "metrics": {"listen": listen}}), &[])
}

async fn scrape(directory: &Path) -> String {
    let socket = directory.join("metrics/socket");
    let (status, text) = tokio::task::spawn_blocking(move || http::get(&socket, "/metrics")).await.unwrap();
    assert_eq!(status, 200);
    text
}

/// Values that depend on the time are left out.
fn timeless(text: &str) -> String {
    let is_time = |line: &str| {
        let (name, _) = line.split_once(['{', ' ']).unwrap_or((line, ""));
        !line.starts_with('#')
            && (name.contains("seconds")
                || name.starts_with("process_")
                || name.ends_with("_bucket")
                || name.ends_with("_age_sum"))
            && !name.ends_with("_count")
            && !line.contains("+Inf")
    };
    let cut = |line: &str| {
        let version = line.replace(env!("CARGO_PKG_VERSION"), "VERSION");
        if is_time(line) {
            line.rsplit_once(' ').map_or(line, |(series, _)| series).to_owned() + " _"
        } else {
            version
        }
    };
    text.lines().map(cut).collect::<Vec<_>>().join("\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_exposition_is_whole_and_has_no_secret() {
    let server = ApiServer::start(Accepts::Either);
    let (certificate, key) = server.issue_client_certificate("one", Duration::from_secs(7200));
    let directory = private_directory();
    let good = FakePlugin::builder().token("c4n4ry").pair(&certificate, &key).expires_in(3600).build();
    let bad = FakePlugin::builder().stderr("c4n4ry").exit_code(3).build();
    let invalid = FakePlugin::script("echo c4n4ry");
    let mut missing = provider("missing \"quoted\"", &good);
    missing["execConfig"]["command"] = json!("/no/such/plugin");
    let broker = broker(
        directory.path(),
        &json!([provider("good", &good), provider("bad", &bad), provider("invalid", &invalid), missing]),
    );
    let client = broker.client().await;
    let mut watch = client.watch(&reference("good", None, &[])).await.unwrap();
    watch.next().await.unwrap().unwrap();
    for _ in 0..3 {
        broker.get("good").await.unwrap();
    }
    for name in ["bad", "invalid", "missing \"quoted\"", "unknown"] {
        broker.get(name).await.unwrap_err();
    }
    let (certificate, key) = server.issue_client_certificate("two", Duration::from_secs(7200));
    good.becomes(&FakePlugin::builder().token("c4n4ry").pair(&certificate, &key).expires_in(3600));
    client.admin().refresh(&credbroker_client::admin::Selector::Provider("good".into())).await.unwrap();
    watch.next().await.unwrap().unwrap();

    let text = scrape(directory.path()).await;
    assert!(!text.contains("c4n4ry"), "{text}");
    insta::assert_snapshot!(timeless(&text));
    declared(&text);
    if !promtool(&text) {
        eprintln!("SKIPPED: no promtool on PATH (Debian's package `prometheus` has it)");
    }
}

/// Every sample is of a declared family with exactly its labels, and every family of a broker without a hub is there.
fn declared(text: &str) {
    let families: BTreeMap<_, _> = FAMILIES.iter().map(|family| (family.name, *family)).collect();
    let mut seen = BTreeSet::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert_eq!(families[name].kind.as_str(), kind);
            seen.insert(name);
        } else if !line.starts_with('#') {
            let name = line.split(['{', ' ']).next().unwrap();
            let family = FAMILIES.iter().find(|family| match family.kind {
                MetricType::Histogram => ["_bucket", "_sum", "_count"]
                    .iter()
                    .any(|end| name.strip_suffix(end) == Some(family.name)),
                _ => name == family.name,
            });
            let family = family.unwrap_or_else(|| panic!("{name} is not declared"));
            for label in family.labels {
                assert!(line.contains(&format!("{label}=\"")), "{line} has no {label}");
            }
            let labels = line.matches("=\"").count() - usize::from(name.ends_with("_bucket"));
            assert_eq!(labels, family.labels.len(), "{line}");
        }
    }
    let missing: Vec<_> = families.keys().filter(|name| !seen.contains(**name)).collect();
    assert_eq!(
        missing,
        [
            &"credbroker_cluster_profiles",
            &"credbroker_hub_last_change_timestamp_seconds",
            &"credbroker_hub_up",
            &"credbroker_proxy_bytes_total",
            &"credbroker_proxy_open_requests",
            &"credbroker_proxy_request_duration_seconds",
            &"credbroker_proxy_requests_total",
        ],
        "only with a hub or a proxy"
    );
}

/// Prometheus accepts the text. `false`: this machine has no promtool.
fn promtool(text: &str) -> bool {
    let child = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else { return false };
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    // Its opinions on names are for ours: client-go chose the others.
    let ours = said.lines().find(|line| !line.starts_with("rest_client_"));
    assert_eq!(ours, None, "{said}");
    true
}

/// A broker with this section `metrics` and these rules, whose provider `secret-name` fails, and where it listens.
pub(super) fn on_loopback(metrics: &Value, access: &Value) -> (Broker, String) {
    let plugin = FakePlugin::builder().token("t").build();
    let mut missing = provider("secret-name", &plugin);
    missing["execConfig"]["command"] = json!("/no/such/plugin");
    let config = json!({
        "apiVersion": "credbroker.io/v1alpha1", "kind": "BrokerConfig", "metrics": metrics,
        "providers": [missing], "access": access,
    });
    let broker = Broker::builder(PROGRAM).config(&config.to_string()).start();
    let place = "serving metrics and health on http://";
    until("it says where", || broker.log().contains(place));
    let log = broker.log();
    let address = log.split_once(place).unwrap().1.split_whitespace().next().unwrap();
    (broker, address.to_owned())
}

/// An address does not tell who connects, so it has no rights.
#[test]
fn an_address_shows_no_name_of_a_provider_unless_it_is_local_without_rules_or_the_operator_wants_it() {
    let rules =
        json!([{"name": "r", "peers": {"uids": [7]}, "allow": {"providers": ["*"], "verbs": ["get"]}}]);
    let cases = [
        (json!({"listen": "127.0.0.1:0"}), json!([]), true),
        (json!({"listen": "127.0.0.1:0"}), rules.clone(), false),
        (json!({"listen": "127.0.0.1:0", "providerNames": true}), rules.clone(), true),
        (json!({"listen": "127.0.0.1:0", "providerNames": false}), json!([]), false),
        (json!({"listen": "0.0.0.0:0", "exposure": "Pod"}), json!([]), false),
        (json!({"listen": "0.0.0.0:0", "exposure": "Pod", "providerNames": true}), rules, true),
    ];
    for (metrics, access, shows) in cases {
        let (broker, address) = on_loopback(&metrics, &access);
        let get = |path: &str| http::get_tcp(&address, "localhost", path);
        until("the plugin was looked up", || get("/readyz").0 == 503);
        let provider = if shows { "secret-name" } else { "*" };
        let expected = json!({
            "broker": {"ready": true}, "providers": {provider: {"ready": false, "reason": "PLUGIN_NOT_FOUND"}},
        });
        assert_eq!(serde_json::from_str::<Value>(&get("/readyz").1).unwrap(), expected);
        let (known, unknown) = (get("/readyz/secret-name"), get("/readyz/unknown"));
        assert_eq!(known == unknown, !shows, "{known:?}");
        let excluded = get("/readyz?exclude=secret-name").0;
        assert_eq!(excluded, if shows { 200 } else { 503 }, "leaving a provider out shows that it exists");
        let text = get("/metrics").1;
        assert_eq!(text.contains("secret-name"), shows, "{text}");
        assert!(text.contains("\ncredbroker_build_info"), "{text}");
        let warning = "the answers contain no provider names";
        assert_eq!(broker.log().contains(warning), !shows && metrics.get("providerNames").is_none());
    }
}

#[test]
fn a_loopback_address_answers_local_names_only_and_one_request() {
    let (_broker, address) = on_loopback(&json!({"listen": "127.0.0.1:0"}), &json!([]));
    let address = address.as_str();
    assert_eq!(http::get_tcp(address, address, "/metrics").0, 200);
    assert_eq!(http::get_tcp(address, "rebound.example.com", "/metrics").0, 403);
    assert_eq!(http::get_tcp(address, "localhost", "/").0, 404);
    let stream = std::net::TcpStream::connect(address).unwrap();
    assert_eq!(
        http::exchange(stream, "POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n").0,
        405
    );
    let stream = std::net::TcpStream::connect(address).unwrap();
    let two = "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(2);
    let (status, body) = http::exchange(stream, &two);
    assert_eq!((status, body.as_str()), (200, "ok\n"));
}

#[test]
fn without_the_section_nothing_listens() {
    let plugin = FakePlugin::builder().token("t").build();
    let broker = Broker::builder(PROGRAM).providers(&json!([provider("cloud", &plugin)])).start();
    let sockets = std::fs::read_dir(format!("/proc/{}/fd", broker.pid())).unwrap().filter_map(|entry| {
        let link = std::fs::read_link(entry.unwrap().path()).ok()?.display().to_string();
        Some(link.strip_prefix("socket:[")?.trim_end_matches(']').to_owned())
    });
    let sockets: BTreeSet<_> = sockets.collect();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        for line in std::fs::read_to_string(table).unwrap_or_default().lines() {
            let inode = line.split_whitespace().nth(9).unwrap_or_default();
            assert!(!sockets.contains(inode), "{line}");
        }
    }
    assert!(!broker.log().contains("metrics"), "{}", broker.log());
}
