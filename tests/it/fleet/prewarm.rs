//! Credentials that are fetched before the first request.

use super::*;

#[tokio::test]
async fn profiles_that_a_rule_covers_are_fetched_at_the_start_and_when_they_appear() {
    let (hub, plugin) = (Hub::start(), token_per_cluster_and_run());
    hub.profiles(&["paris", "tokyo"]);
    hub.server.apply_cluster_profile("edge", "oslo", profile("oslo", "oslo"));
    let rule = json!({"clusterProfiles": ["fleet/*"], "providers": ["cloud"], "runsPerSecond": 50});
    let broker = hub.broker_with(&plugin, &json!({"prewarm": [rule]}));
    let mut caller = Caller::of(&broker).await;
    let is_ready = |name: &'static str| {
        move |clusters: &[ClusterState], _: &pb::HubState| readiness(clusters, name) == Readiness::Ready
    };
    caller.until(is_ready("paris")).await;
    caller.until(is_ready("tokyo")).await;
    hub.profile("added", "added");
    let clusters = caller.until(is_ready("added")).await;
    assert_eq!((readiness(&clusters, "oslo"), plugin.runs()), (Readiness::Idle, 3));
    caller.token("paris").await;
    assert_eq!(plugin.runs(), 3, "callers are served from memory");
}

#[tokio::test]
async fn runs_at_a_time_are_limited_and_requests_go_first() {
    let hub = Hub::start();
    // Each run logs its start and end, and takes some time.
    let script = r#"echo "begin $CLUSTER" >> "$dir/log"; sleep 0.3; echo "end $CLUSTER" >> "$dir/log"
        echo '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "t"}}'"#;
    let plugin = FakePlugin::script(script);
    for index in 0..12 {
        hub.profile(&format!("c{index:02}"), "x");
    }
    let limits = json!({"pluginRuns": 2});
    let mut section = hub.section();
    section["prewarm"] = json!([{"concurrency": 5, "runsPerSecond": 1000}]);
    let config = json!({"providers": [cloud(&plugin)], "clusterProfiles": section, "limits": limits});
    let broker = InProcess::with(config, &[]);
    let mut caller = Caller::of(&broker).await;
    caller.until(|clusters, _| clusters.iter().any(|cluster| cluster.readiness() == Readiness::Ready)).await;
    caller.token("c11").await;
    let log = std::fs::read_to_string(plugin.dir().join("log")).unwrap();
    let asked_for = log.lines().position(|line| line == "begin c11").unwrap();
    let before: Vec<_> = log.lines().take(asked_for).filter(|line| line.starts_with("begin")).collect();
    assert!(before.len() < 11, "it did not wait for all the others: {log}");
    caller.until(|clusters, _| clusters.iter().all(|cluster| cluster.readiness() == Readiness::Ready)).await;
    let log = std::fs::read_to_string(plugin.dir().join("log")).unwrap();
    let mut running = 0_i32;
    for line in log.lines() {
        running += if line.starts_with("begin") { 1 } else { -1 };
        assert!(running <= 2, "{log}");
    }
    assert_eq!(plugin.runs(), 12);
}

#[tokio::test]
async fn a_plugin_that_fails_is_run_three_times_and_then_only_for_requests() {
    let plugin = FakePlugin::builder().exit_code(1).build();
    let (_hub, plugin, _broker, mut caller) =
        Hub::start().serve(&["paris"], plugin, &json!({"prewarm": [{}]})).await;
    caller.until(|clusters, _| readiness(clusters, "paris") == Readiness::Failed).await;
    let third = async {
        while plugin.runs() < 3 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(AGES, third).await.expect("a third run");
    let clusters = caller.until(|clusters, _| readiness(clusters, "paris") == Readiness::Failed).await;
    assert_eq!(why(&clusters[0]), Some(Reason::PluginExit));
}
