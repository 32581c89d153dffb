pub(in crate::cli) mod fleet;

use clap::Parser;
use credbroker_proto::{
    Reason,
    v1::{
        Cluster, ClusterState, Failure,
        cluster_state::{Property, Readiness, SkippedProvider},
    },
};

use serde_json::{Value, json};

use self::fleet::{FakeBroker, Fleet, fleet, hub, ready, unusable};
use super::{
    super::console::{fail, tests::console},
    ClusterList, ClustersArgs, Environment, as_table, run,
};

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    args: ClustersArgs,
}

fn ran(broker: &FakeBroker, line: &[&str]) -> (u8, String, String) {
    let mut args = Line::try_parse_from([&["clusters"], line].concat()).unwrap().args;
    args.query.broker.socket.path = Some(broker.socket().into());
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let ran = run(&args, &mut console(&Environment::default(), &mut out, &mut err));
    let code = ran.unwrap_or_else(|error| fail(&error, &mut err));
    (code, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
}

fn everything() -> Fleet {
    let paris = ClusterState {
        cluster_manager: Some("fleet-manager".into()),
        kubernetes_version: Some("v1.34.1-gke.1200".into()),
        ..ready("https://paris.example:6443")
    };
    let failed = ClusterState {
        readiness: Readiness::Failed.into(),
        failure: Some(Failure {
            reason: Reason::PluginExit.into(),
            message: "plugin `aws` failed (exit code 255):\n  token expired".into(),
            ..Failure::default()
        }),
        provider: Some("eks".into()),
        cluster_manager: Some("a-manager-with-a-very-long-name".into()),
        ..ready("https://0A1B2C3D4E5F60718293A4B5C6D7E8F9.gr7.eu-west-1.eks.amazonaws.com")
    };
    let waits = |readiness: Readiness| ClusterState { readiness: readiness.into(), ..ready("https://x") };
    fleet([
        ("prod/paris", paris),
        ("prod/oslo", failed),
        (
            "dev/rome",
            unusable(Reason::NoMatchingProvider, "the profile lists `aks`, the broker's config `gke`, `eks`"),
        ),
        ("dev/bern", waits(Readiness::Idle)),
        ("dev/graz", waits(Readiness::Fetching)),
    ])
}

#[test]
fn the_table_has_the_failures_below() {
    insta::assert_snapshot!(as_table(&everything().into()), @r"
    CLUSTER     PROVIDER  SERVER                                        STATE                            VERSION           MANAGER
    dev/bern    gke       https://x                                     idle                             -                 -
    dev/graz    gke       https://x                                     fetching                         -                 -
    dev/rome    -         -                                             unusable (NO_MATCHING_PROVIDER)  -                 -
    prod/oslo   eks       https://0A1B2C3D4E5F60…t-1.eks.amazonaws.com  failed (PLUGIN_EXIT)             -                 a-manager-…long-name
    prod/paris  gke       https://paris.example:6443                    ready                            v1.34.1-gke.1200  fleet-manager

    dev/rome: the profile lists `aks`, the broker's config `gke`, `eks`
    prod/oslo: plugin `aws` failed (exit code 255): token expired
    ");
}

#[test]
fn a_list_without_failures_has_only_the_table() {
    insta::assert_snapshot!(as_table(&fleet([("a/b", ready("https://x"))]).into()), @r"
    CLUSTER  PROVIDER  SERVER     STATE  VERSION  MANAGER
    a/b      gke       https://x  ready  -        -
    ");
    insta::assert_snapshot!(as_table(&fleet([]).into()), @"CLUSTER  PROVIDER  SERVER  STATE  VERSION  MANAGER");
}

#[test]
fn texts_of_the_hub_cannot_move_the_cursor_or_break_a_line() {
    let odd = |message: &str| ClusterState {
        kubernetes_version: Some("\u{1b}]0;title\u{7}".into()),
        cluster_manager: Some("a\nb\u{202e}c".into()),
        ..unusable(Reason::PluginNotFound, message)
    };
    insta::assert_snapshot!(as_table(&fleet([("a/\u{1b}[2J", odd("one\ntwo\u{9b}2J"))]).into()), @r"
    CLUSTER      PROVIDER  SERVER  STATE                        VERSION               MANAGER
    a/U+001B[2J  -         -       unusable (PLUGIN_NOT_FOUND)  U+001B]0;titleU+0007  a bU+202Ec

    a/U+001B[2J: one twoU+009B2J
    ");
}

#[test]
fn json_has_every_field_with_the_names_of_the_api() {
    let profile = ClusterState {
        display_name: Some("Paris".into()),
        cluster_manager: Some("m".into()),
        kubernetes_version: Some("v1.34.1".into()),
        properties: vec![Property { name: "zone".into(), value: "\"eu\"\n".into() }],
        provider: Some("gke".into()),
        skipped_providers: vec![SkippedProvider {
            name: "eks".into(),
            message: "the profile does not list it".into(),
        }],
        cluster: Some(Cluster {
            server: "https://paris".into(),
            tls_server_name: Some("internal".into()),
            insecure_skip_tls_verify: true,
            certificate_authority_data: Some(b"ca".as_slice().into()),
            proxy_url: Some("socks5://p:1".into()),
            disable_compression: true,
            config: Some(br#"{"clusterName":"p"}"#.as_slice().into()),
        }),
        readiness: Readiness::Failed.into(),
        failure: Some(Failure {
            reason: Reason::PluginExit.into(),
            message: "no".into(),
            ..Failure::default()
        }),
        ..ClusterState::default()
    };
    let mut fleet =
        fleet([("fleet/paris", profile), ("fleet/rome", unusable(Reason::NoMatchingProvider, "m"))]);
    fleet.hub = Some(hub(false, "down"));
    insta::assert_snapshot!(format!("{:#}", json!(ClusterList::from(fleet))), @r#"
    {
      "clusters": [
        {
          "cluster": {
            "certificateAuthorityData": "Y2E=",
            "config": {
              "clusterName": "p"
            },
            "disableCompression": true,
            "insecureSkipTlsVerify": true,
            "proxyUrl": "socks5://p:1",
            "server": "https://paris",
            "tlsServerName": "internal"
          },
          "clusterManager": "m",
          "clusterProfile": {
            "name": "paris",
            "namespace": "fleet"
          },
          "displayName": "Paris",
          "failure": {
            "message": "no",
            "reason": "PLUGIN_EXIT"
          },
          "kubernetesVersion": "v1.34.1",
          "properties": [
            {
              "name": "zone",
              "value": "\"eu\"\n"
            }
          ],
          "provider": "gke",
          "readiness": "failed",
          "skippedProviders": [
            {
              "message": "the profile does not list it",
              "name": "eks"
            }
          ]
        },
        {
          "cluster": null,
          "clusterManager": "",
          "clusterProfile": {
            "name": "rome",
            "namespace": "fleet"
          },
          "displayName": "",
          "failure": {
            "message": "m",
            "reason": "NO_MATCHING_PROVIDER"
          },
          "kubernetesVersion": "",
          "properties": [],
          "provider": null,
          "readiness": "unusable",
          "skippedProviders": []
        }
      ],
      "hub": {
        "failure": {
          "message": "down",
          "reason": "HUB_UNAVAILABLE"
        },
        "sinceTime": null,
        "synced": false
      }
    }
    "#);
}

#[test]
fn without_a_hub_the_list_in_json_is_empty() {
    assert_eq!(json!(ClusterList::default()), json!({"clusters": [], "hub": null}));
}

#[test]
fn two_thousand_clusters_are_two_thousand_lines() {
    let names: Vec<_> = (0..2000).map(|number| format!("fleet/cluster-{number:04}")).collect();
    let all = fleet(names.iter().map(|name| (name.as_str(), ready("https://x"))));
    let table = as_table(&all.into());
    let first: Vec<_> = table.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(first, names);
}

#[test]
fn clusters_go_to_stdout_and_the_hubs_problem_to_stderr() {
    let mut known = everything();
    known.hub = Some(hub(true, "connection refused"));
    let expected = as_table(&known.clone().into());
    let broker = FakeBroker::of(known);
    let (code, out, err) = ran(&broker, &[]);
    assert_eq!((code, out), (0, expected));
    assert_eq!(
        err,
        "credbroker: this list may be out of date, because the hub cannot be read: connection refused\n"
    );

    let (code, out, _) = ran(&broker, &["-o", "json", "-n", "prod"]);
    let json: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(code, 0);
    assert_eq!(json["clusters"][0]["clusterProfile"], json!({"namespace": "prod", "name": "oslo"}));
    assert_eq!(json["clusters"].as_array().unwrap().len(), 2);
}

#[test]
fn a_failure_prints_nothing_on_stdout() {
    let broker = FakeBroker::failing(tonic::Status::permission_denied("not you"));
    assert_eq!(ran(&broker, &[]), (77, String::new(), "credbroker: not you\n".to_owned()));
}
