use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

static BROKEN: AtomicBool = AtomicBool::new(true);

/// Panics when it is first called, which the hub reader does.
fn broken_jitter() -> f64 {
    assert!(!BROKEN.swap(false, Ordering::SeqCst), "broken on purpose");
    0.5
}

#[tokio::test]
async fn a_task_that_panics_ends_the_process_with_exit_code_1() {
    let directory = credbroker_test_support::private_directory();
    let file = directory.path().join("config.yaml");
    let hub = directory.path().join("hub.kubeconfig");
    let kubeconfig = r#"{"apiVersion":"v1","kind":"Config","current-context":"hub",
            "clusters":[{"name":"hub","cluster":{"server":"https://127.0.0.1:1"}}],
            "users":[{"name":"hub","user":{"token":"t"}}],
            "contexts":[{"name":"hub","context":{"cluster":"hub","user":"hub"}}]}"#;
    credbroker_test_support::private_file(&hub, kubeconfig);
    let text = format!(
        r#"{{"apiVersion":"credbroker.io/v1alpha1","kind":"BrokerConfig","clusterProfiles":{{"kubeconfig":"{}"}},
            "providers":[{{"name":"p","execConfig":{{"apiVersion":"client.authentication.k8s.io/v1",
            "command":"/bin/false","interactiveMode":"Never"}}}}]}}"#,
        hub.display()
    );
    credbroker_test_support::private_file(&file, &text);
    let environment = Environment::default();
    let loaded = config::load(Some(&file), &environment).unwrap();
    let path = directory.path().join("run/socket");
    let listening = vec![Listening::at(app::socket_options(&loaded.config.listen[0], &path).unwrap())];
    let edges = Edges { jitter: broken_jitter, ..Edges::system(&environment) };
    let place = ConfigPlace { flag: Some(file), environment: Arc::new(environment) };
    let signals = Signals::catch().unwrap();
    assert_eq!(serve(loaded, listening, edges, place, signals).await.unwrap(), 1);
    assert!(!BROKEN.load(Ordering::SeqCst));
}
