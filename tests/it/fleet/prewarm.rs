//! Credentials that are fetched before anybody asks.

use super::*;

#[tokio::test]
async fn what_a_rule_covers_is_fetched_at_the_start_and_when_it_appears() {
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
async fn no_more_run_at_a_time_than_the_rule_says_and_those_who_ask_go_first() {
    let hub = Hub::start();
    // Each run says when it begins and ends, and takes a while.
    let script = r#"echo "begin $CLUSTER" >> "$dir/log"; sleep 0.3; echo "end $CLUSTER" >> "$dir/log"
        echo '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "t"}}'"#;
    let plugin = FakePlugin::script(script);
    for index in 0..12 {
        hub.profile(&format!("c{index:02}"), "x");
    }
    let limits = json!({"pluginRuns": 2, "pluginRunsPerProvider": 2});
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
    let (hub, plugin) = (Hub::start(), FakePlugin::builder().exit_code(1).build());
    hub.profile("paris", "paris");
    let broker = hub.broker_with(&plugin, &json!({"prewarm": [{}]}));
    let mut caller = Caller::of(&broker).await;
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
