//! Each number of the configuration, at the edges of what it may be.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use credbroker_config as config;
use credbroker_plugin::Environment;
use credbroker_proto::v1::{
    ClusterState, WatchClustersRequest, cluster_state::Readiness,
    credential_broker_client::CredentialBrokerClient,
};
use credbroker_test_support::{Accepts, ApiServer, FakePlugin, Kubeconfig, private_directory};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::timeout;
use tonic::Code;

use crate::harness::{InProcess, provider, request};

/// Longer than any step takes, also on a slow machine.
const AGES: Duration = Duration::from_secs(60);

/// The numeric keys of a section, and the largest number of each.
fn counts(section: &str) -> Vec<(String, u64)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/config.schema.json");
    let schema: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let keys = schema["$defs"][section]["properties"].as_object().unwrap();
    let counts = keys.iter().filter(|(_, key)| key.to_string().contains("integer"));
    let counts: Vec<_> = counts.map(|(name, key)| (name.clone(), key["maximum"].as_u64().unwrap())).collect();
    assert!(!counts.is_empty(), "{section}");
    counts
}

/// A configuration with a hub, in which `key` of `section` has this value.
fn sections(section: &str, key: &str, value: &Value, hub: &Path, plugin: &FakePlugin) -> Value {
    let mut cloud = provider("cloud", plugin);
    cloud["profileSourcedEnvVarsPolicy"] = json!("Ignore");
    let mut issuer = json!({"name": "cloud"});
    let (mut limits, mut prewarm) = (json!({}), json!({}));
    let place = match section {
        "limits" => &mut limits,
        "issuer" => &mut issuer,
        "prewarm" => &mut prewarm,
        "exec" => &mut cloud["execConfig"],
        _ => &mut cloud,
    };
    place[key] = value.clone();
    json!({
        "providers": [cloud], "issuers": [issuer], "limits": limits,
        "clusterProfiles": {"kubeconfig": hub, "prewarm": [prewarm]},
    })
}

/// The problems of this configuration; empty: it is accepted.
fn problems(mut sections: Value) -> String {
    sections["apiVersion"] = json!("credbroker.io/v1alpha1");
    sections["kind"] = json!("BrokerConfig");
    let directory = private_directory();
    let file = directory.path().join("config.yaml");
    fs::write(&file, sections.to_string()).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let path = std::env::var_os("PATH").unwrap();
    let environment = Environment([("PATH".into(), path)].into());
    config::load(Some(&file), &environment)
        .map(drop)
        .map_err(|error| error.to_string())
        .err()
        .unwrap_or_default()
}

/// With a number that is accepted, every part of the broker works: it reads its hub, fetches ahead and serves.
async fn works(sections: Value) {
    let broker = InProcess::with(sections, &[]);
    let mut client = CredentialBrokerClient::new(broker.channel().await);
    let watch = client.watch_clusters(WatchClustersRequest::default()).await.unwrap();
    let mut watch = watch.into_inner();
    let is_ready = async {
        let ready = |state: &ClusterState| state.readiness() == Readiness::Ready;
        while !watch.message().await.unwrap().unwrap().changed.iter().any(ready) {}
    };
    timeout(AGES, is_ready).await.expect("the credential is fetched ahead");
    drop(watch);
    broker.get("cloud").await.unwrap();
    broker.stop().await;
}

/// With a limit of 1, a request may be refused, and nothing else ends.
async fn continues(sections: Value) {
    let broker = InProcess::with(sections, &[]);
    let mut client = CredentialBrokerClient::new(broker.channel().await);
    for _ in 0..2 {
        let answer =
            timeout(AGES, client.get_credential(request("cloud", None, &[]))).await.expect("an answer");
        assert_ne!(answer.err().map(|status| status.code()), Some(Code::Internal));
    }
    broker.stop().await;
}

/// A hub with one profile, and a kubeconfig for it.
fn hub() -> (ApiServer, TempDir, PathBuf) {
    let (server, directory) = (ApiServer::start(Accepts::Tokens), private_directory());
    server.accept_token("hub");
    let access = json!([{"name": "cloud", "cluster": {"server": "https://paris"}}]);
    let body = json!({"spec": {"clusterManager": {"name": "m"}}, "status": {"accessProviders": access}});
    server.apply_cluster_profile("fleet", "paris", body);
    let path = directory.path().join("hub.kubeconfig");
    let kubeconfig = Kubeconfig::new().cluster_of(&server, "hub").user("hub", &json!({"token": "hub"}));
    kubeconfig.context("hub", "hub", "hub").write(&path);
    (server, directory, path)
}

#[tokio::test]
async fn a_count_is_refused_or_works() {
    let (_server, _directory, hub) = hub();
    let plugin = FakePlugin::builder().token("t").expires_in(3600).build();
    for section in ["limits", "issuer", "prewarm"] {
        for (key, most) in counts(section) {
            let values = [-1, 0, 1, i128::from(most), i128::from(most) + 1, u32::MAX.into(), u64::MAX.into()];
            for value in values {
                let number: serde_json::Number = value.to_string().parse().unwrap();
                let sections = sections(section, &key, &Value::Number(number), &hub, &plugin);
                let problems = problems(sections.clone());
                if (1..=i128::from(most)).contains(&value) {
                    assert_eq!(problems, "", "{section}.{key}: {value}");
                    if value == 1 && section == "limits" {
                        continues(sections).await;
                    } else {
                        works(sections).await;
                    }
                } else {
                    let expected = match value {
                        _ if !key.to_lowercase().ends_with("bytes") => {
                            format!("{key}: must be a whole number from 1 to {most}")
                        }
                        ..0 => {
                            format!("{key}: must be a size such as `64Mi`, `1Gi` or `500k`: it is negative")
                        }
                        _ => format!("{key}: must be more than 0 and less than 4Gi"),
                    };
                    assert!(problems.contains(&expected), "{section}.{key}: {value}: {problems}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_duration_is_refused_or_works() {
    let (_server, _directory, hub) = hub();
    let plugin = FakePlugin::builder().token("t").expires_in(3600).build();
    for (section, key, longest) in [
        ("provider", "timeout", 24),
        ("provider", "interactiveTimeout", 24),
        ("provider", "maxAge", 8760),
        ("provider", "unknownExpiryMaxAge", 8760),
    ] {
        let mixed = format!("{}h59m59.5s", longest - 1);
        for value in [format!("{longest}h"), format!("{}m", longest * 60), "10s".into(), mixed] {
            let sections = sections(section, key, &json!(value), &hub, &plugin);
            assert_eq!(problems(sections.clone()), "", "{key}: {value}");
            works(sections).await;
        }
        let bounds = format!("it must be from 1s to {longest}h");
        for (value, why) in [
            (format!("{}h", longest + 1), &*bounds),
            (format!("{}s", longest * 3600 + 1), &bounds),
            ("999ms".into(), &bounds),
            ("4294967295h".into(), "it is longer than 2562047h47m16.854775807s"),
            ("30".into(), "`30` has no unit; for seconds, write `30s`"),
        ] {
            let problems = problems(sections(section, key, &json!(value), &hub, &plugin));
            let expected = format!("{key}: must be a duration such as `30s`, `10m` or `1h30m`: {why}");
            assert!(problems.contains(&expected), "{value}: {problems}");
        }
    }
}
