use std::sync::Arc;

use super::*;
use crate::{Command, Definition, Environment, testing::provider};

fn variables(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// A provider with variables from the broker and from its stanza.
fn configured() -> Provider {
    let mut provider = provider("gke", Command::Path("/bin/gke".into()));
    let inherited = [("PATH", "/bin"), ("AWS_REGION", "eu"), ("REGION", "broker"), ("KUBECONFIG", "/list")];
    provider.inherited = Arc::new(inherited.into_iter().collect::<Environment>());
    provider.args = vec!["token".into()];
    provider.env = variables(&[("REGION", "stanza"), ("MODE", "own")]);
    provider
}

fn spec(provider: Provider) -> PluginSpec {
    let key = PluginKey::of_provider(&provider);
    let file = Arc::new(PluginFile::new(provider.command.clone(), None));
    let caller_env = [("AWS_PROFILE".to_owned(), "prod".to_owned())].into();
    PluginSpec { key, provider: Arc::new(provider), file, cluster: None, caller_env, target: None }
}

fn shown(spec: &PluginSpec) -> String {
    let line = |part: &IdPart<'_>| {
        let IdPart { kind, name, origin, value } = part;
        let (name, value) = (String::from_utf8_lossy(name), String::from_utf8_lossy(value));
        format!("{kind:?} {name} {value} {origin:?}")
    };
    spec.id_parts().iter().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn each_variable_has_the_value_that_wins_and_its_origin() {
    insta::assert_snapshot!(shown(&spec(configured())), @r"
    Provider  gke Stanza
    Command  /bin/gke Stanza
    ApiVersion  client.authentication.k8s.io/v1 Stanza
    ProvideClusterInfo  false Stanza
    Argument 1 token Stanza
    Variable AWS_PROFILE prod CallerEnv
    Variable AWS_REGION eu PassEnv
    Variable KUBECONFIG /list PassEnv
    Variable MODE own Stanza
    Variable PATH /bin Always
    Variable REGION stanza Stanza
    ");
}

#[test]
fn a_provider_of_a_kubeconfig_has_its_definition_and_the_clusters_of_its_contexts() {
    let mut provider = Provider {
        definition: Some(Definition::new("/home/jane/.kube/config".into(), "rel", "12ab")),
        provide_cluster_info: true,
        env: Vec::new(),
        inherited: Arc::new([("KUBECONFIG", "/home/jane/.kube/config")].into_iter().collect()),
        ..configured()
    };
    let sent = Cluster { server: "https://a".into(), config: "{}".into(), ..Cluster::default() };
    let parts = |provider: &Provider| {
        shown(&PluginSpec { cluster: Some(Arc::new(sent.clone())), ..spec(provider.clone()) })
    };
    insta::assert_snapshot!(parts(&provider), @r"
    Provider  gke Stanza
    Definition  12ab Stanza
    Command  /bin/gke Stanza
    ApiVersion  client.authentication.k8s.io/v1 Stanza
    ProvideClusterInfo  true Stanza
    Argument 1 token Stanza
    Variable AWS_PROFILE prod CallerEnv
    Variable KUBECONFIG /home/jane/.kube/config Kubeconfig
    Cluster server https://a Caller
    Cluster config {} Caller
    ");
    provider.clusters.push(sent.clone());
    assert!(parts(&provider).ends_with("Cluster server https://a Kubeconfig\nCluster config {} Kubeconfig"));
}

#[test]
fn what_a_cluster_profile_adds_is_named_so() {
    let configured = configured();
    let mut added = configured.clone();
    added.args.push("--cluster=paris".into());
    added.env = variables(&[("REGION", "stanza"), ("MODE", "profile"), ("TENANT", "t")]);
    let endpoint = Cluster {
        server: "https://paris".into(),
        tls_server_name: "paris".into(),
        insecure_skip_tls_verify: true,
        certificate_authority_data: "CA".into(),
        proxy_url: "http://proxy".into(),
        disable_compression: true,
        config: "{}".into(),
    };
    let spec = spec(added);
    let provider = Arc::clone(&spec.provider);
    let target =
        Target::new(ProfileName::new("fleet", "paris"), provider, Arc::new(configured), Arc::new(endpoint));
    let spec = PluginSpec { target: Some(Arc::new(target)), ..spec };
    let text = shown(&spec);
    let of_profile: Vec<_> = text.lines().filter(|line| line.ends_with("ClusterProfile")).collect();
    insta::assert_snapshot!(of_profile.join("\n"), @r"
    Argument 2 --cluster=paris ClusterProfile
    Variable MODE profile ClusterProfile
    Variable TENANT t ClusterProfile
    ClusterProfile  5:fleet/paris ClusterProfile
    Cluster server https://paris ClusterProfile
    Cluster tls-server-name paris ClusterProfile
    Cluster insecure-skip-tls-verify true ClusterProfile
    Cluster certificate-authority-data CA ClusterProfile
    Cluster proxy-url http://proxy ClusterProfile
    Cluster disable-compression true ClusterProfile
    Cluster config {} ClusterProfile
    ");
    assert!(text.contains("Variable REGION stanza Stanza"), "{text}");
    let names = |spec: &PluginSpec| {
        let parts = spec.foreign_parts();
        parts
            .iter()
            .map(|part| format!("{:?} {}", part.kind, String::from_utf8_lossy(&part.name)))
            .collect::<Vec<_>>()
    };
    let foreign = ["Argument 2", "Variable AWS_PROFILE", "Variable MODE", "Variable TENANT"];
    assert_eq!(names(&spec), foreign, "the plugin does not receive the cluster");
    let cluster = spec.target.as_ref().map(|target| Arc::clone(&target.endpoint));
    let spec = PluginSpec { cluster, ..spec };
    assert_eq!(names(&spec).len(), foreign.len() + 7);
}

#[test]
fn a_part_shows_no_value() {
    let text = format!("{:?}", spec(configured()).id_parts());
    assert!(text.contains("AWS_PROFILE") && !text.contains("prod") && !text.contains("token"), "{text}");
}
