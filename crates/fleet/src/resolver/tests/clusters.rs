//! By a provider's name, with a cluster that the caller sends.

use serde_json::json;

use super::{
    profiles::{apply, by_profile, named, paris, sent, sent_paris, with_fleet, with_unread_fleet},
    *,
};
use credbroker_plugin::{ProfileSourced, ProviderProblem};

fn matching(dir: &Path) -> Provider {
    Provider { cluster_info: ClusterInfo::Match, provide_cluster_info: true, ..provider("p", plugin(dir)) }
}

fn with(cluster: Option<Cluster>) -> CredentialRequest {
    CredentialRequest { cluster: cluster.map(Box::new), ..ask("p") }
}

#[test]
fn a_cluster_of_the_kubeconfig_is_found_and_the_plugin_gets_that_of_the_broker() {
    let dir = tempfile::tempdir().unwrap();
    let known = Cluster { proxy_url: "http://broker".into(), ..sent_paris() };
    let clusters = vec![cluster("https://tokyo", ""), known.clone()];
    let resolver = resolver([Provider { clusters, ..matching(dir.path()) }]);
    let full = resolver.resolve(with(sent(|sent| sent.proxy_url = "http://mine".into()))).unwrap();
    assert_eq!((full.cluster, full.target.is_none()), (Some(known.clone().into()), true));
    let bare = resolver.resolve(with(Some(cluster("https://paris:6443/", "")))).unwrap();
    assert_eq!((bare.key, bare.cluster), (full.key, Some(known.into())));
    let tokyo = resolver.resolve(with(Some(cluster("https://tokyo", "")))).unwrap();
    assert_ne!(tokyo.key, full.key);
}

#[test]
fn of_several_known_clusters_that_fit_none_is_guessed() {
    let dir = tempfile::tempdir().unwrap();
    let clusters =
        vec![cluster("https://one", r#"{"audience":"a"}"#), cluster("https://one", r#"{"audience":"b"}"#)];
    let of = |provide_cluster_info| {
        resolver([Provider { clusters: clusters.clone(), provide_cluster_info, ..matching(dir.path()) }])
    };
    let spec = of(true).resolve(with(Some(cluster("https://one", r#"{"audience":"b"}"#)))).unwrap();
    assert_eq!(spec.cluster.as_deref(), clusters.get(1));
    insta::assert_snapshot!(refused(&of(true), with(Some(cluster("https://one", "")))), @"provider `p`: the caller sent a cluster that differs from the provider's known clusters: it matches several known clusters that the plugin would distinguish; send the cluster's exec extension too; the plugin did not run. If the cluster is from an old kubeconfig, write the kubeconfig again with `credbroker kubeconfig wrap` or `credbroker kubeconfig fleet`");
    assert!(
        of(false).resolve(with(Some(cluster("https://one", "")))).is_ok(),
        "the plugin gets none of them"
    );
}

#[test]
fn a_cluster_of_a_profile_is_the_profiles_run() {
    let dir = tempfile::tempdir().unwrap();
    for provide_cluster_info in [true, false] {
        let resolver = with_fleet([Provider { provide_cluster_info, ..matching(dir.path()) }]);
        apply(&resolver, "paris", "p", &paris());
        let asked = resolver.resolve(by_profile("paris")).unwrap();
        for same in [sent(|_| {}), Some(cluster("https://paris:6443/", ""))] {
            let found = resolver.resolve(with(same)).unwrap();
            assert_eq!(found.key, asked.key);
            assert_eq!(found.cluster, provide_cluster_info.then(|| sent_paris().into()));
            assert_eq!(found.target.unwrap().profile, named("paris"));
        }
    }
}

#[test]
fn a_cluster_that_the_broker_does_not_know_is_refused_with_what_differs() {
    let dir = tempfile::tempdir().unwrap();
    let resolver = with_fleet([matching(dir.path()), provider("q", plugin(dir.path()))]);
    apply(&resolver, "paris", "p", &paris());
    apply(&resolver, "lyon", "q", &json!({"server": "https://lyon"}));
    apply(&resolver, "broken", "p", &json!({"server": ""}));
    let others = [
        sent(|sent| sent.server = "https://tokyo".into()),
        sent(|sent| *sent = cluster("https://lyon", "")),
        sent(|sent| sent.server = String::new()),
        sent(|sent| sent.certificate_authority_data = "other".into()),
        sent(|sent| sent.tls_server_name = "tokyo".into()),
        sent(|sent| sent.config = r#"{"audience":"tokyo"}"#.into()),
    ];
    insta::assert_snapshot!(others.map(|other| refused(&resolver, with(other))).join("\n"), @r"
    provider `p`: the caller sent a cluster that differs from the provider's known clusters: no known cluster has its server; the plugin did not run. If the cluster is from an old kubeconfig, write the kubeconfig again with `credbroker kubeconfig wrap` or `credbroker kubeconfig fleet`
    provider `p`: the caller sent a cluster that differs from the provider's known clusters: no known cluster has its server; the plugin did not run. If the cluster is from an old kubeconfig, write the kubeconfig again with `credbroker kubeconfig wrap` or `credbroker kubeconfig fleet`
    provider `p`: the caller sent a cluster that differs from the provider's known clusters: no known cluster has its server; the plugin did not run. If the cluster is from an old kubeconfig, write the kubeconfig again with `credbroker kubeconfig wrap` or `credbroker kubeconfig fleet`
    provider `p`: the caller sent a cluster that differs from the provider's known clusters: its certificate authorities are different; the plugin did not run. If the cluster is from an old kubeconfig, write the kubeconfig again with `credbroker kubeconfig wrap` or `credbroker kubeconfig fleet`
    provider `p`: the caller sent a cluster that differs from the provider's known clusters: its TLS server name is different; the plugin did not run. If the cluster is from an old kubeconfig, write the kubeconfig again with `credbroker kubeconfig wrap` or `credbroker kubeconfig fleet`
    provider `p`: the caller sent a cluster that differs from the provider's known clusters: its exec extension is different; the plugin did not run. If the cluster is from an old kubeconfig, write the kubeconfig again with `credbroker kubeconfig wrap` or `credbroker kubeconfig fleet`
    ");
    assert!(
        refused(&super::resolver([matching(dir.path())]), with(sent(|_| {})))
            .contains("no known cluster has its server")
    );
}

#[test]
fn without_a_cluster_there_is_nothing_to_match() {
    let dir = tempfile::tempdir().unwrap();
    let resolver = with_fleet([Provider { provide_cluster_info: false, ..matching(dir.path()) }]);
    assert!(resolver.resolve(ask("p")).unwrap().target.is_none());
    let resolver = with_fleet([matching(dir.path())]);
    assert!(matches!(
        resolver.resolve(ask("p")),
        Err(ResolveError::Provider(_, ProviderProblem::NoCluster(0)))
    ));
}

#[test]
fn several_profiles_of_one_cluster_are_one_run_if_they_lead_to_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let sourced = Some(ProfileSourced { args: true, ..ProfileSourced::default() });
    let resolver = with_fleet([Provider { profile_sourced: sourced, ..matching(dir.path()) }]);
    apply(&resolver, "paris-2", "p", &paris());
    apply(&resolver, "paris-1", "p", &paris());
    let found = resolver.resolve(with(sent(|_| {}))).unwrap();
    assert_eq!(found.key, resolver.resolve(by_profile("paris-1")).unwrap().key, "the first by name");

    // One that differs from the caller's cluster does not count.
    let other = json!({"server": "https://paris:6443", "tls-server-name": "other"});
    apply(&resolver, "paris-0", "p", &other);
    assert_eq!(resolver.resolve(with(sent(|_| {}))).unwrap().key, found.key);
    let several = "provider `p`: the caller sent a cluster that differs from the provider's known clusters: several ClusterProfiles have this cluster, but cause different plugin runs; select one with --cluster-profile NAMESPACE/NAME; the plugin did not run. If the cluster is from an old kubeconfig, write the kubeconfig again with `credbroker kubeconfig wrap` or `credbroker kubeconfig fleet`";
    assert_eq!(refused(&resolver, with(Some(cluster("https://paris:6443", "")))), several, "it fits all");

    let mut args = paris();
    let name = "clusterprofiles.multicluster.x-k8s.io/exec/additional-args";
    args["extensions"].as_array_mut().unwrap().push(json!({"name": name, "extension": ["--other"]}));
    apply(&resolver, "paris-2", "p", &args);
    assert_eq!(refused(&resolver, with(sent(|_| {}))), several);
    resolver.fleet().unwrap().remove(&named("paris-2"));
    assert_eq!(resolver.resolve(with(sent(|_| {}))).unwrap().key, found.key);
}

#[test]
fn a_cluster_that_the_hub_may_still_add_is_not_a_mismatch() {
    let dir = tempfile::tempdir().unwrap();
    let resolver = with_unread_fleet([matching(dir.path())]);
    insta::assert_snapshot!(refused(&resolver, with(sent(|_| {}))), @"provider `p`: the cluster that the caller sent is not known yet: the hub has not answered yet");
    let mut other = paris();
    other["tls-server-name"] = json!("other");
    apply(&resolver, "other", "p", &other);
    resolver.fleet().unwrap().set_hub(false, Some("connection reset".into()));
    insta::assert_snapshot!(refused(&resolver, with(sent(|_| {}))), @"provider `p`: the cluster that the caller sent is not known yet: connection reset");
    apply(&resolver, "paris", "p", &paris());
    assert!(resolver.resolve(with(sent(|_| {}))).is_ok(), "what is known already is found");
    resolver.fleet().unwrap().remove(&named("paris"));
    resolver.fleet().unwrap().set_hub(true, None);
    assert!(refused(&resolver, with(sent(|_| {}))).contains("its TLS server name is different"));
}

#[test]
fn from_a_caller_that_is_believed_the_cluster_reaches_the_plugin_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let resolver = with_fleet([Provider { cluster_info: ClusterInfo::FromCaller, ..matching(dir.path()) }]);
    apply(&resolver, "paris", "p", &paris());
    let unknown = cluster("https://unknown", r#"{"z": 1, "a": 2}"#);
    let spec = resolver.resolve(with(Some(unknown.clone()))).unwrap();
    assert_eq!((spec.cluster.as_deref(), spec.target.is_none()), (Some(&unknown), true));
    let same = resolver.resolve(with(sent(|_| {}))).unwrap();
    assert!(same.target.is_none() && same.key != resolver.resolve(by_profile("paris")).unwrap().key);
}
