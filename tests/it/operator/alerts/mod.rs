//! Each alert fires by its cause: a real broker with the configuration of the manifests, real scrapes, and the rules as they
//! are shipped. A minute passes on the broker's clock between two scrapes.

mod prometheus;

use std::{collections::BTreeMap, fs, path::Path, sync::Arc, time::Duration};

use credbroker_client::{Error, admin::Selector};
use credbroker_credential::document::{Aliases, yaml};
use credbroker_observe::clock::Clock as _;
use credbroker_test_support::{
    Accepts, ApiServer, FakePlugin, FakePluginBuilder, Kubeconfig, private_directory, private_file,
};
use futures_util::{FutureExt as _, StreamExt as _, future::LocalBoxFuture};
use rustix::process::geteuid;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::timeout;

use self::prometheus::Timeline;
use super::{http, observability::named};
use crate::harness::{Ahead, InProcess, reference};

/// The provider of the example.
const PROVIDER: &str = "gke";
/// Lives longer than any of these tests takes on the broker's clock.
const LONG: i64 = 24 * 3600;

fn read(file: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap()
}

fn parsed(text: &str) -> Value {
    yaml(text.as_bytes(), Aliases::Follow).unwrap().to_json()
}

/// The configuration of the example with metrics, for a test: its plugin is `plugin`, its controller this process, and its
/// metrics are on a Unix socket.
fn shipped(plugin: &FakePlugin, metrics: &Path) -> Value {
    let text = read("deploy/kubernetes/example/config.yaml");
    let mut config = parsed(&text.replace("\n#metrics:", "\nmetrics:").replace("\n#  ", "\n  "));
    let exposed = json!({"listen": "0.0.0.0:9464", "exposure": "Pod", "providerNames": true});
    assert_eq!(config["metrics"], exposed, "the section in the comment of the example");
    config["metrics"] = json!({"listen": format!("unix://{}", metrics.display()), "providerNames": true});
    config["access"][0]["peers"]["uids"] = json!([geteuid().as_raw()]);
    config["listen"].as_object_mut().unwrap().remove("socket");
    config.as_object_mut().unwrap().remove("clusterProfiles");
    let provider = &mut config["providers"][0];
    assert_eq!(provider["name"], PROVIDER);
    provider["execConfig"] = plugin.exec_stanza();
    provider["execConfig"]["provideClusterInfo"] = json!(false);
    config
}

/// The rule of the operator, for this process.
fn with_operator(config: &mut Value) {
    config["access"][1]["peers"]["uids"] = json!([geteuid().as_raw()]);
}

/// A broker that is scraped.
struct Scraped {
    clock: Arc<Ahead>,
    directory: TempDir,
    config: Value,
    broker: Option<InProcess>,
    timeline: Timeline,
}

impl Scraped {
    fn start(plugin: &FakePlugin, change: impl FnOnce(&mut Value)) -> Self {
        let (clock, directory) = (Arc::<Ahead>::default(), private_directory());
        let mut config = shipped(plugin, &directory.path().join("metrics/socket"));
        change(&mut config);
        let timeline = Timeline::new(clock.now().wall);
        let mut scraped = Self { clock, directory, config, broker: None, timeline };
        scraped.start_broker();
        scraped
    }

    fn start_broker(&mut self) {
        let clock = Arc::clone(&self.clock) as _;
        self.broker = Some(InProcess::with_clock(self.config.clone(), &[], clock));
    }

    async fn stop_broker(&mut self) {
        self.broker.take().unwrap().stop().await;
    }

    fn broker(&self) -> &InProcess {
        self.broker.as_ref().unwrap()
    }

    /// A scrape. Then a minute passes.
    async fn minute(&mut self) {
        let text = match self.broker {
            Some(_) => Some(self.metrics().await),
            None => None,
        };
        self.timeline.scraped(text.as_deref());
        self.clock.put(60);
    }

    async fn minutes(&mut self, count: usize) {
        for _ in 0..count {
            self.minute().await;
        }
    }

    async fn metrics(&self) -> String {
        let socket = self.directory.path().join("metrics/socket");
        let scrape = tokio::task::spawn_blocking(move || http::get(&socket, "/metrics"));
        let (status, text) = scrape.await.unwrap();
        assert_eq!(status, 200);
        text
    }

    /// Requests a credential whose refresh is due, until so many refreshes have failed.
    async fn until_failed(&self, refreshes: u64) {
        let series = format!("\ncredbroker_refreshes_total{{provider=\"{PROVIDER}\",result=\"failure\"}} ");
        let failed = async {
            loop {
                self.broker().get(PROVIDER).await.unwrap();
                let text = self.metrics().await;
                let count = text.split_once(&series).unwrap().1.lines().next().unwrap();
                if count.parse::<u64>().unwrap() >= refreshes {
                    return;
                }
                tokio::task::yield_now().await;
            }
        };
        timeout(Duration::from_secs(60), failed).await.expect("a refresh that fails");
    }

    /// Runs the plugin, whether or not the run fails.
    async fn refresh(&self) -> Result<u32, Error> {
        let admin = self.broker().client().await.admin();
        admin.refresh(&Selector::Provider(PROVIDER.into())).await
    }
}

fn works() -> FakePluginBuilder {
    FakePlugin::builder().token("t").expires_in(LONG)
}

fn fails() -> FakePluginBuilder {
    FakePlugin::builder().stderr("the identity provider is not available").exit_code(3)
}

async fn no_credential() -> Timeline {
    let plugin = fails().build();
    let mut scraped = Scraped::start(&plugin, |_| {});
    scraped.broker().get(PROVIDER).await.unwrap_err();
    scraped.minutes(7).await;
    scraped.timeline
}

async fn the_last_minutes_of_a_credential() -> Timeline {
    let plugin = works().expires_in(590).build();
    let mut scraped = Scraped::start(&plugin, |_| {});
    scraped.broker().get(PROVIDER).await.unwrap();
    plugin.becomes(&fails());
    scraped.minutes(8).await;
    scraped.until_failed(1).await;
    scraped.minutes(2).await;
    scraped.timeline
}

async fn refreshes_that_fail() -> Timeline {
    let plugin = works().expires_in(7200).build();
    let mut scraped = Scraped::start(&plugin, |_| {});
    scraped.broker().get(PROVIDER).await.unwrap();
    plugin.becomes(&fails());
    scraped.minute().await;
    // It is due after three quarters of its lifetime.
    scraped.clock.put(5400);
    for failures in 1..=5 {
        scraped.until_failed(failures).await;
        scraped.minute().await;
    }
    scraped.minutes(6).await;
    scraped.timeline
}

/// Runs that take 20 s on the broker's clock: the plugin ends when it has read a line.
async fn slow_runs() -> Timeline {
    let plugin = works().build();
    let mut scraped = Scraped::start(&plugin, with_operator);
    scraped.broker().get(PROVIDER).await.unwrap();
    let pipe = scraped.directory.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, 0o600.into()).unwrap();
    let answer =
        r#"{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"t"}}"#;
    plugin.becomes(
        &FakePlugin::builder().script(&format!("read -r line <'{}'; echo '{answer}'", pipe.display())),
    );
    scraped.minutes(2).await;
    for _ in 0..18 {
        let (pipe, clock) = (pipe.clone(), Arc::clone(&scraped.clock));
        // The pipe opens when the plugin runs.
        let release = tokio::task::spawn_blocking(move || {
            use std::io::Write as _;
            let mut pipe = fs::File::options().write(true).open(pipe).unwrap();
            clock.put(20);
            pipe.write_all(b"\n").unwrap();
        });
        let (refreshed, released) = tokio::join!(scraped.refresh(), release);
        refreshed.unwrap();
        released.unwrap();
        scraped.minute().await;
    }
    scraped.timeline
}

/// Two providers of one issuer that asks for fewer runs: then no run starts for a third.
async fn a_throttled_issuer() -> Timeline {
    let plugin = FakePlugin::builder().stderr("HTTP 429, Retry-After: 900").exit_code(1).build();
    let mut scraped = Scraped::start(&plugin, |config| {
        let mut provider = config["providers"][0].clone();
        provider["issuer"] = json!("cloud");
        let named = |name: &str| {
            let mut provider = provider.clone();
            provider["name"] = json!(name);
            provider
        };
        config["providers"] = json!([named(PROVIDER), named("second"), named("third")]);
        with_operator(config);
    });
    for _ in 0..14 {
        for name in [PROVIDER, "second", "third"] {
            scraped.broker().get(name).await.unwrap_err();
        }
        scraped.minute().await;
    }
    scraped.timeline
}

async fn a_program_that_may_not() -> Timeline {
    let plugin = works().build();
    let mut scraped = Scraped::start(&plugin, |_| {});
    scraped.refresh().await.unwrap_err();
    scraped.minute().await;
    for _ in 0..20 {
        scraped.refresh().await.unwrap_err();
    }
    scraped.minute().await;
    scraped.timeline
}

/// One credential is all that the broker may hold, and a watch has it.
async fn a_full_broker() -> Timeline {
    let plugin = works().build();
    let mut scraped = Scraped::start(&plugin, |config| {
        let mut second = config["providers"][0].clone();
        second["name"] = json!("second");
        config["providers"].as_array_mut().unwrap().push(second);
        config["limits"] = json!({"credentials": 1});
        with_operator(config);
    });
    let client = scraped.broker().client().await;
    let mut watch = client.watch(&reference(PROVIDER, None, &[])).await.unwrap();
    watch.next().await.unwrap().unwrap();
    for _ in 0..9 {
        scraped.broker().get("second").await.unwrap_err();
        scraped.minute().await;
    }
    scraped.timeline
}

async fn a_hub_that_is_not_there() -> Timeline {
    let (plugin, directory) = (works().build(), private_directory());
    let hub = directory.path().join("hub.kubeconfig");
    private_file(&hub, &Kubeconfig::of_absent_hub(&json!({"token": "t"})).to_yaml());
    let mut scraped =
        Scraped::start(&plugin, |config| config["clusterProfiles"] = json!({"kubeconfig": hub}));
    scraped.minutes(12).await;
    scraped.timeline
}

async fn a_configuration_with_a_mistake() -> Timeline {
    let plugin = works().build();
    let mut scraped = Scraped::start(&plugin, |_| {});
    scraped.minute().await;
    let mut mistaken = scraped.config.clone();
    mistaken["providers"][0]["timeout"] = json!("30");
    scraped.broker().configure(mistaken);
    scraped.broker().reload();
    let mut states = scraped.broker().configuration.clone();
    states.wait_for(|state| !state.problems.is_empty()).await.unwrap();
    scraped.minutes(7).await;
    scraped.timeline
}

async fn a_broker_that_does_not_run() -> Timeline {
    let plugin = works().build();
    let mut scraped = Scraped::start(&plugin, |_| {});
    scraped.minute().await;
    scraped.stop_broker().await;
    scraped.minutes(7).await;
    scraped.timeline
}

async fn a_broker_that_starts_three_times() -> Timeline {
    let plugin = works().build();
    let mut scraped = Scraped::start(&plugin, |_| {});
    for _ in 0..2 {
        scraped.minute().await;
        scraped.stop_broker().await;
        scraped.start_broker();
    }
    scraped.minute().await;
    scraped.timeline
}

/// The series of kube-state-metrics are written here: what they mean is in its documentation.
async fn a_container_that_was_killed_for_memory() -> Timeline {
    let plugin = works().build();
    let mut scraped = Scraped::start(&plugin, |_| {});
    scraped.minutes(2).await;
    let labels = r#"namespace="controllers",pod="controller-0",uid="u",container="credbroker""#;
    let restarts = format!("kube_pod_init_container_status_restarts_total{{{labels}}}");
    scraped.timeline.beside(&restarts, |minute| if minute == 0 { 0.0 } else { 1.0 });
    let reason =
        format!("kube_pod_init_container_status_last_terminated_reason{{{labels},reason=\"OOMKilled\"}}");
    scraped.timeline.beside(&reason, |_| 1.0);
    scraped.timeline
}

/// The cause of each alert, and the alerts that fire with it.
fn causes() -> BTreeMap<&'static str, (LocalBoxFuture<'static, Timeline>, &'static [&'static str])> {
    BTreeMap::from([
        ("CredbrokerAbsent", (a_broker_that_does_not_run().boxed_local(), &[] as &[&str])),
        ("CredbrokerRestarts", (a_broker_that_starts_three_times().boxed_local(), &[])),
        ("CredbrokerMemoryKilled", (a_container_that_was_killed_for_memory().boxed_local(), &[])),
        ("CredbrokerProviderNotReady", (no_credential().boxed_local(), &[])),
        ("CredbrokerCredentialExpiresSoon", (the_last_minutes_of_a_credential().boxed_local(), &[])),
        ("CredbrokerRefreshesFail", (refreshes_that_fail().boxed_local(), &[])),
        ("CredbrokerPluginSlow", (slow_runs().boxed_local(), &[])),
        ("CredbrokerIssuerThrottles", (a_throttled_issuer().boxed_local(), &["CredbrokerProviderNotReady"])),
        ("CredbrokerDenials", (a_program_that_may_not().boxed_local(), &[])),
        ("CredbrokerOverloaded", (a_full_broker().boxed_local(), &[])),
        ("CredbrokerHubDown", (a_hub_that_is_not_there().boxed_local(), &[])),
        ("CredbrokerConfigurationInvalid", (a_configuration_with_a_mistake().boxed_local(), &[])),
    ])
}

/// The expression of each alert.
fn alerts() -> BTreeMap<String, String> {
    let rules = parsed(&read("deploy/observability/alerts.yaml"));
    let rules = rules["groups"][0]["rules"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    rules.map(|rule| (text(&rule["alert"]), text(&rule["expr"]))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_alert_fires_by_its_cause_and_no_other_does() {
    let (alerts, mut causes) = (alerts(), causes());
    assert!(alerts.keys().eq(causes.keys()), "a cause for each alert");
    let mut problems = Vec::new();
    for (alert, expression) in alerts {
        let (cause, beside) = causes.remove(alert.as_str()).unwrap();
        let timeline = cause.await;
        let names = timeline.names();
        let missing: Vec<_> = named(&expression)
            .into_iter()
            .filter(|name| !names.iter().any(|known| known.starts_with(name)))
            .collect();
        assert!(missing.is_empty(), "{alert}: no scrape has {missing:?}");
        let fires = "group by (alertname) (ALERTS{alertstate=\"firing\"})".to_owned();
        let firing: Vec<_> = std::iter::once(alert.as_str())
            .chain(beside.iter().copied())
            .map(|alert| format!("{{alertname=\"{alert}\"}}"))
            .collect();
        let firing: Vec<_> = firing.iter().map(String::as_str).collect();
        match timeline.check(&[(fires, &firing)]) {
            None => eprintln!("SKIPPED: no promtool on PATH (Debian's package `prometheus` has it)"),
            Some(result) => problems.extend(result.err().map(|problem| format!("{alert}: {problem}"))),
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// A broker in whose metrics each panel finds something.
async fn a_busy_broker() -> Timeline {
    let server = ApiServer::start(Accepts::Either);
    server.accept_token("hub");
    let (certificate, key) = server.issue_client_certificate("one", Duration::from_secs(86_400));
    let (plugin, directory) = (works().pair(&certificate, &key).build(), private_directory());
    let hub = directory.path().join("hub.kubeconfig");
    let kubeconfig = Kubeconfig::new().cluster_of(&server, "hub");
    kubeconfig.user("hub", &json!({"token": "hub"})).context("hub", "hub", "hub").write(&hub);
    let proxy = directory.path().join("sandbox/socket");
    let mut scraped = Scraped::start(&plugin, |config| {
        config["clusterProfiles"] = json!({"kubeconfig": hub});
        config["access"][0]["allow"]["verbs"] = json!(["get", "watch", "admin"]);
        config["proxy"] = json!({"directory": directory.path(), "listen": {"socket": proxy}});
    });
    let client = scraped.broker().client().await;
    let mut watch = client.watch(&reference(PROVIDER, None, &[])).await.unwrap();
    watch.next().await.unwrap().unwrap();
    for minute in 0..4 {
        scraped.broker().get(PROVIDER).await.unwrap();
        scraped.broker().get("unknown").await.unwrap_err();
        plugin.becomes(&if minute % 2 == 0 { fails() } else { works().pair(&certificate, &key) });
        scraped.refresh().await.unwrap();
        let proxy = proxy.clone();
        let asked = tokio::task::spawn_blocking(move || http::get(&proxy, "/clusters/fleet/unknown/version"));
        assert_eq!(asked.await.unwrap().0, 403);
        scraped.minute().await;
    }
    scraped.timeline
}

#[tokio::test(flavor = "multi_thread")]
async fn no_panel_of_the_dashboard_is_empty() {
    let dashboard: Value = serde_json::from_str(&read("deploy/observability/dashboard.json")).unwrap();
    let targets = dashboard["panels"].as_array().unwrap().iter().flat_map(|panel| {
        panel["targets"].as_array().into_iter().flatten().map(|target| target["expr"].as_str().unwrap())
    });
    let expressions: Vec<_> = targets
        .map(|expression| {
            let expression = expression.replace("$__rate_interval", "4m");
            let expression = ["$job", "$instance", "$provider"]
                .iter()
                .fold(expression, |text, name| text.replace(name, ".*"));
            (format!("count({expression}) > bool 0"), &["{}"] as &[&str])
        })
        .collect();
    assert!(expressions.len() > 20, "{}", expressions.len());
    match a_busy_broker().await.check(&expressions) {
        None => eprintln!("SKIPPED: no promtool on PATH (Debian's package `prometheus` has it)"),
        Some(result) => result.unwrap_or_else(|problem| panic!("{problem}")),
    }
}

/// Each alert has its section of the runbook, to which it links, and each section its alert.
#[test]
fn the_runbook_has_a_section_for_each_alert() {
    let runbook = read("docs/runbook.md");
    let sections: Vec<_> = runbook.lines().filter_map(|line| line.strip_prefix("## Credbroker")).collect();
    let alerts: Vec<_> = alerts().into_keys().collect();
    let mut named: Vec<_> = sections.iter().map(|section| format!("Credbroker{section}")).collect();
    named.sort();
    assert_eq!(named, alerts);
    let text = read("deploy/observability/alerts.yaml");
    for (alert, section) in alerts.iter().zip(runbook.split("\n## Credbroker").skip(1)) {
        let link = format!("/docs/runbook.md#{}\n", alert.to_lowercase());
        assert_eq!(text.matches(&link).count(), 1, "{alert}");
        for part in ["**Meaning**", "**Command**", "```console\n$ ", "**Remedy**"] {
            assert!(section.contains(part), "{}: no {part}", section.lines().next().unwrap());
        }
    }
}
