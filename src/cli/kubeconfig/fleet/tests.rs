use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use credbroker_proto::{
    Reason,
    v1::{Cluster, ClusterState},
};
use tempfile::TempDir;

use super::*;
use crate::cli::{
    broker::{BrokerArgs, SocketArg},
    clusters::tests::fleet::{FakeBroker, Fleet, fleet, hub, ready, unusable},
    console::{fail, tests::console},
};
use credbroker_plugin::Environment;

fn bin() -> (TempDir, Environment) {
    let directory = tempfile::tempdir().unwrap();
    let shim = directory.path().join("credbroker-exec");
    fs::write(&shim, "").unwrap();
    fs::set_permissions(&shim, fs::Permissions::from_mode(0o700)).unwrap();
    let path = directory.path().to_str().unwrap().to_owned();
    (directory, [("PATH", path.as_str())].into_iter().collect())
}

/// The kubeconfig that is at `path`.
fn written(path: &Path) -> Node {
    shared::open(path, &[], "fleet", |_| true).unwrap().1.unwrap()
}

fn bare_shim() -> Shim {
    Shim { command: "credbroker-exec".to_owned(), is_subcommand: false, flags: Vec::new() }
}

fn rendered(fleet: &Fleet) -> String {
    yaml(&kubeconfig(&fleet.clone().into(), &bare_shim(), "v1")).unwrap()
}

struct Ran {
    code: u8,
    out: String,
    err: String,
}

/// Runs the command with `broker`, whose socket is `SOCKET` in the output.
fn ran(broker: &FakeBroker, namespaces: &[&str], output: Option<&Path>) -> anyhow::Result<Ran> {
    let (_directory, environment) = bin();
    let args = FleetArgs {
        output: output.map(Path::to_owned),
        force: false,
        api_version: "v1".to_owned(),
        bare: true,
        query: broker.query(namespaces),
    };
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = run(&args, &mut console(&environment, &mut out, &mut err))?;
    let text = |bytes| {
        let text = String::from_utf8(bytes).unwrap();
        text.replace(broker.socket().to_str().unwrap(), "SOCKET")
    };
    Ok(Ran { code, out: text(out), err: text(err) })
}

fn with(cluster: Cluster) -> ClusterState {
    ClusterState { cluster: Some(cluster), ..ready("") }
}

#[test]
fn each_profile_is_a_context_that_asks_the_shim_and_none_is_current() {
    let all = Cluster {
        server: "https://paris.example:6443".into(),
        tls_server_name: Some("internal.example".into()),
        insecure_skip_tls_verify: true,
        certificate_authority_data: Some(b"-----BEGIN".as_slice().into()),
        proxy_url: Some("socks5://proxy:1080".into()),
        disable_compression: true,
        config: Some(br#"{"clusterName":"paris"}"#.as_slice().into()),
    };
    let fleet = fleet([
        ("prod/paris", with(all)),
        ("dev/oslo", ready("https://oslo")),
        ("dev/rome", unusable(Reason::NoMatchingProvider, "no")),
    ]);
    insta::assert_snapshot!(rendered(&fleet), @r"
    apiVersion: v1
    kind: Config
    clusters:
    - name: dev/oslo
      cluster:
        server: https://oslo
    - name: prod/paris
      cluster:
        server: https://paris.example:6443
        certificate-authority-data: LS0tLS1CRUdJTg==
        tls-server-name: internal.example
        insecure-skip-tls-verify: true
        proxy-url: socks5://proxy:1080
        disable-compression: true
    contexts:
    - name: dev/oslo
      context:
        cluster: dev/oslo
        user: dev/oslo
    - name: prod/paris
      context:
        cluster: prod/paris
        user: prod/paris
    users:
    - name: dev/oslo
      user:
        exec:
          apiVersion: client.authentication.k8s.io/v1
          command: credbroker-exec
          args:
          - --cluster-profile
          - dev/oslo
          - --server
          - https://oslo
          - --api-version
          - v1
          provideClusterInfo: true
          interactiveMode: Never
          installHint: The user of this kubeconfig requests its credential from credbroker, through credbroker-exec. Install credbroker, or if it is installed at another place now, write the kubeconfig again.
    - name: prod/paris
      user:
        exec:
          apiVersion: client.authentication.k8s.io/v1
          command: credbroker-exec
          args:
          - --cluster-profile
          - prod/paris
          - --server
          - https://paris.example:6443
          - --api-version
          - v1
          provideClusterInfo: true
          interactiveMode: Never
          installHint: The user of this kubeconfig requests its credential from credbroker, through credbroker-exec. Install credbroker, or if it is installed at another place now, write the kubeconfig again.
    extensions:
    - name: credbroker.io/fleet
      extension: {}
    ");
}

/// The entries that client-go finds for the names of the contexts, in any syntax.
#[test]
fn odd_names_and_values_are_read_back_as_they_are() {
    let names = [
        "on/true",
        "1/2",
        "a: b/- #c",
        "\"q\"/\\n",
        "é\u{1f511}/\u{85}\u{2028}",
        "a/\u{1b}[2J",
        "/",
        "{}/[",
        "n/b/c",
    ];
    let odd = Cluster {
        server: "https://[::1]:6443/a?b=c#d".into(),
        tls_server_name: Some("no".into()),
        proxy_url: Some("http://u:p@h: x".into()),
        ..Cluster::default()
    };
    let all = fleet(names.map(|name| (name, with(odd.clone()))));
    let text = rendered(&all);
    let tree = credbroker_credential::document::yaml(
        text.as_bytes(),
        credbroker_credential::document::Aliases::Refuse,
    )
    .unwrap()
    .to_json();
    let mut expected = names.to_vec();
    expected.sort_by_key(|name| name.split_once('/'));
    for (list, key) in [("clusters", "cluster"), ("contexts", "context"), ("users", "user")] {
        let items = tree[list].as_array().unwrap();
        let found: Vec<_> = items.iter().map(|item| item["name"].as_str().unwrap()).collect();
        assert_eq!(found, expected, "{list}");
        for (item, name) in items.iter().zip(&expected) {
            match list {
                "clusters" => assert_eq!(
                    item[key],
                    serde_json::json!({"server": odd.server, "tls-server-name": "no", "proxy-url": odd.proxy_url})
                ),
                "contexts" => assert_eq!(item[key], serde_json::json!({"cluster": name, "user": name})),
                _ => assert_eq!(item[key]["exec"]["args"][1], *name),
            }
        }
    }
}

#[test]
fn two_thousand_clusters_are_the_same_bytes_in_any_order() {
    let names: Vec<_> = (0..2000).map(|number| format!("ns-{}/c-{number}", number % 7)).collect();
    let cluster = |name: &str| {
        with(Cluster {
            server: format!("https://{name}"),
            certificate_authority_data: Some(vec![7; 1500].into()),
            ..Cluster::default()
        })
    };
    let one = rendered(&fleet(names.iter().map(|name| (name.as_str(), cluster(name)))));
    let other = rendered(&fleet(names.iter().rev().map(|name| (name.as_str(), cluster(name)))));
    assert_eq!(one, other);
    assert_eq!(one.matches("- --cluster-profile\n").count(), 2000);

    // It can be replaced: the broker's own reader finds only users of the shim.
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("fleet");
    fs::write(&path, one).unwrap();
    let read = written(&path);
    assert!(is_ours(&read));
    assert_eq!(read.get("users").and_then(Node::as_sequence).map(<[_]>::len), Some(2000));
}

#[test]
fn a_running_broker_is_asked_and_its_socket_is_given_to_the_shim() {
    let broker = FakeBroker::of(fleet(["c/x", "a/y", "b/z"].map(|name| (name, ready("https://host")))));
    let Ran { code, out, err } = ran(&broker, &["b", "c"], None).unwrap();
    assert_eq!(code, 0);
    let names: Vec<_> = out.lines().filter(|line| line.starts_with("- name: ")).collect();
    assert_eq!(
        names,
        ["- name: b/z", "- name: c/x"]
            .repeat(3)
            .into_iter()
            .chain(["- name: credbroker.io/fleet"])
            .collect::<Vec<_>>()
    );
    assert_eq!(out.matches("- --socket\n      - SOCKET\n").count(), 2, "{out}");
    insta::assert_snapshot!(err, @"credbroker: 2 contexts, none of them current: use `kubectl --context b/z …`");
}

#[test]
fn without_a_socket_flag_the_shim_uses_the_default_sockets() {
    let broker = FakeBroker::of(fleet([("c/x", ready("https://host"))]));
    let (_directory, mut environment) = bin();
    environment.0.insert("CREDBROKER_SOCKET".into(), broker.socket().into());
    let args = FleetArgs {
        output: None,
        force: false,
        api_version: "v1".to_owned(),
        bare: false,
        query: ClusterQuery::default(),
    };
    let mut out = Vec::new();
    assert_eq!(run(&args, &mut console(&environment, &mut out, &mut Vec::new())).unwrap(), 0);
    let out = String::from_utf8(out).unwrap();
    assert!(out.contains("- c/x\n") && !out.contains("--socket"), "{out}");
}

#[test]
fn a_file_is_written_for_its_owner_and_again_but_not_over_a_foreign_one() {
    let broker = || FakeBroker::of(fleet(["c/x", "a/y"].map(|name| (name, ready("https://host")))));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("fleet");
    let first = ran(&broker(), &[], Some(&path)).unwrap();
    insta::assert_snapshot!(first.out.replace(directory.path().to_str().unwrap(), "~"), @r"
    ~/fleet: 2 contexts, none of them current
    Use it with `kubectl --kubeconfig ~/fleet --context a/y …`.
    ");
    assert_eq!((first.code, first.err.as_str()), (0, ""));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(fs::read_to_string(&path).unwrap().contains("name: c/x"));
    assert_eq!(ran(&broker(), &["a"], Some(&path)).unwrap().code, 0);
    assert!(!fs::read_to_string(&path).unwrap().contains("name: c/x"));

    let ours = fs::read_to_string(&path).unwrap();
    let added = "users:\n- {name: me, user: {token: t}}\n";
    let wrapped = "users: [{name: u, user: {exec: {command: credbroker-exec, args: [--provider, u]}}}]";
    for mine in [wrapped, "just a text", "users: []", &ours.replace("users:\n", added)] {
        fs::write(&path, mine).unwrap();
        let error = ran(&broker(), &[], Some(&path)).err().unwrap().to_string();
        assert!(error.contains("`credbroker kubeconfig fleet` did not write"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), mine);
    }
    fs::write(&path, "").unwrap(); // mktemp's
    assert_eq!(ran(&broker(), &[], Some(&path)).unwrap().code, 0);
    fs::write(&path, "precious").unwrap();
    let (_directory, environment) = bin();
    let broker = broker();
    let args = FleetArgs {
        output: Some(path.clone()),
        force: true,
        api_version: "v1".to_owned(),
        bare: true,
        query: broker.query(&[]),
    };
    let (out, err) = (&mut Vec::new(), &mut Vec::new());
    assert_eq!(run(&args, &mut console(&environment, out, err)).unwrap(), 0);
    assert!(is_ours(&written(&path)));
}

#[test]
fn profiles_without_an_endpoint_are_named_and_skipped() {
    let mut known = fleet([
        ("a/ok", ready("https://host")),
        ("a/one", unusable(Reason::NoMatchingProvider, "it lists `aks`,\nthe broker has `gke`")),
        ("a/two", unusable(Reason::ClusterProfileInvalid, "")),
        ("a/three", ready("")),
    ]);
    known.hub = Some(hub(false, ""));
    let Ran { code, out, err } = ran(&FakeBroker::of(known), &[], None).unwrap();
    assert_eq!(code, 0);
    assert_eq!(out.matches("- name: a/ok\n").count(), 3, "{out}");
    insta::assert_snapshot!(err, @r"
    credbroker: clusters may be missing, because the broker has not read all ClusterProfiles yet
    credbroker: skipped a/one: it lists `aks`, the broker has `gke` (NO_MATCHING_PROVIDER)
    credbroker: skipped a/three: its ClusterProfile names no server
    credbroker: skipped a/two: CLUSTER_PROFILE_INVALID
    credbroker: 1 context, which is not current: use `kubectl --context a/ok …`
    ");
}

#[test]
fn nothing_to_write_is_a_failure_with_a_remedy_and_leaves_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("fleet");
    fs::write(&path, "users: []").unwrap();
    let mut lines = String::new();
    for (clusters, hub) in [
        (vec![], None),
        (vec![], Some(hub(false, "connection refused"))),
        (vec![("a/one", unusable(Reason::NoMatchingProvider, "no"))], Some(hub(true, ""))),
    ] {
        let known = Fleet { hub, ..fleet(clusters) };
        let Ran { code, out, err } = ran(&FakeBroker::of(known), &[], Some(&path)).unwrap();
        assert_eq!((code, out.as_str()), (1, ""));
        lines += &err;
    }
    insta::assert_snapshot!(lines, @r"
    credbroker: the broker reads no ClusterProfiles; name the hub in its configuration: `clusterProfiles: {kubeconfig: FILE or InCluster, namespaces: [NAMESPACE]}`
    credbroker: the broker has no ClusterProfiles, because the hub cannot be read: connection refused
    credbroker: skipped a/one: no (NO_MATCHING_PROVIDER)
    credbroker: no cluster can be written to a kubeconfig; see `credbroker clusters`
    ");
    assert_eq!(fs::read_to_string(&path).unwrap(), "users: []");
}

#[test]
fn without_a_broker_it_ends_as_the_shim_does() {
    let args = FleetArgs {
        api_version: "v1".to_owned(),
        output: None,
        force: false,
        bare: false,
        query: ClusterQuery {
            broker: BrokerArgs {
                socket: SocketArg { path: Some("/nonexistent/broker.sock".into()), ..SocketArg::default() },
                ..BrokerArgs::default()
            },
            namespaces: vec![],
        },
    };
    let (_directory, environment) = bin();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let error = run(&args, &mut console(&environment, &mut out, &mut err)).unwrap_err();
    assert_eq!(fail(&error, &mut err), 69);
    assert!(out.is_empty());
    assert!(String::from_utf8(err).unwrap().contains("no broker answers on /nonexistent/broker.sock"));
}

#[test]
fn an_old_kubectl_is_spoken_to_in_its_own_version() {
    let paris =
        fleet(vec![("fleet/paris", with(Cluster { server: "https://paris".into(), ..Cluster::default() }))]);
    let text = yaml(&kubeconfig(&paris.into(), &bare_shim(), "v1beta1")).unwrap();
    assert!(text.contains("apiVersion: client.authentication.k8s.io/v1beta1\n"), "{text}");
    assert!(text.contains("--api-version\n") && text.contains("v1beta1\n"), "{text}");
}
