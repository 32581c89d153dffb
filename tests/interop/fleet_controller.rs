//! `tests/interop/programs/fleet.rs`: a controller that reads fifty clusters under fifty identities, through their rotations.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    sync::mpsc::{Receiver, channel},
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use credbroker_test_support::{
    Accepts, ApiServer, Broker, Collection, FakePlugin, Kubeconfig, private_directory,
};
use serde_json::{Value, json};

use crate::programs::broker;

const CLUSTERS: usize = 50;
/// A credential lives so long, and is refreshed after about half of it.
const LIFETIME: u64 = 20;
/// Longer than anything here takes, on any machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Every second cluster has a certificate, the others a token. Each run of a cluster's plugin brings the next one:
/// `c07-1`, `c07-2`, …, as a token or as the name in the certificate. Each run says when it was.
const PLUGIN: &str = r#"
mkdir -p "$dir/count/$CLUSTER"
n=$(($(ls "$dir/count/$CLUSTER" | wc -l) + 1))
: > "$dir/count/$CLUSTER/$n"
expires=$(date -u -d "LIFETIME seconds" +%Y-%m-%dT%H:%M:%SZ)
status="\"token\": \"$CLUSTER-$n\""
[ ! -f "$dir/$CLUSTER-$n" ] || status=$(cat "$dir/$CLUSTER-$n")
printf '%s' "{\"apiVersion\": \"client.authentication.k8s.io/v1\", \"kind\": \"ExecCredential\",
  \"status\": {\"expirationTimestamp\": \"$expires\", $status}}"
"#;

/// Generations of a cluster's credential that are ready to be issued; more than there is time for.
const GENERATIONS: usize = 12;

#[test]
fn fifty_clusters_are_read_under_their_own_identities_through_rotations() {
    let example = broker().with_file_name("examples/fleet");
    assert!(
        example.is_file(),
        "no {}; build it with: cargo build --package credbroker-kube --examples",
        example.display()
    );
    let server = ApiServer::start(Accepts::Either);
    server.accept_token("hub");
    let plugin = FakePlugin::script(&PLUGIN.replace("LIFETIME", &LIFETIME.to_string()));
    let names: Vec<_> = (0..CLUSTERS).map(|index| format!("c{index:02}")).collect();
    for name in &names {
        issue(&server, &plugin, name);
        server.apply_cluster_profile("fleet", name, profile(&server, name));
    }
    set_config_map(&server, 0);
    let directory = private_directory();
    let kubeconfig = Kubeconfig::new().cluster_of(&server, "hub").user("hub", &json!({"token": "hub"}));
    kubeconfig.context("hub", "hub", "hub").write(directory.path().join("hub"));
    let broker = Broker::builder(broker()).config(&config(&plugin, &directory.path().join("hub"))).start();

    let mut command = Command::new(example);
    command.arg("--socket").arg(broker.socket()).args(["--seconds", "300", "--drain-ms", "1000"]);
    let mut controller = command.env_clear().stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = lines(controller.stdout.take().unwrap());
    let complaints = self::lines(controller.stderr.take().unwrap());

    // Each change of the config map reaches every cluster's watch, while the certificates rotate twice, which closes
    // connections. A watch with a token goes on with what it began with.
    let (with_pairs, with_tokens): (Vec<_>, Vec<_>) = names.iter().partition(|name| has_pair(name));
    let mut version = 0;
    let mut changes_until_seen = |of: &[&String], generations: usize| {
        let deadline = Instant::now() + PATIENCE;
        loop {
            version += 1;
            set_config_map(&server, version);
            until_all_read(&lines, &names, &current(&server));
            let seen = identities(&server);
            if of.iter().all(|name| seen.get(*name).is_some_and(|seen| seen.len() >= generations)) {
                return;
            }
            assert!(Instant::now() < deadline, "{generations} generations of {of:?}: {seen:?}");
        }
    };
    changes_until_seen(&with_pairs, 3);
    // A watch that is ended with its certificate's connection is all there is to complain of.
    for complaint in complaints.try_iter() {
        let (cluster, what) = complaint.split_once(": ").unwrap();
        assert!(has_pair(cluster) && what.starts_with("watch stream failed"), "{complaint}");
    }
    server.cut_connections();
    changes_until_seen(&with_tokens, 2);
    server.delete_cluster_profile("fleet", "c00");
    until(&lines, |line| line["change"] == "removed" && line["cluster"] == "fleet/c00");
    controller.kill().unwrap();
    controller.wait().unwrap();

    let requests = server.requests();
    let refused: Vec<_> = requests.iter().filter(|request| request.status >= 400).collect();
    assert!(refused.is_empty(), "{refused:?}");
    let known: BTreeSet<_> = names.iter().cloned().chain(["hub".to_owned()]).collect();
    let seen: BTreeSet<_> = identities(&server).into_keys().collect();
    assert_eq!(seen, known, "each identity is known");
}

fn has_pair(name: &str) -> bool {
    name.ends_with(['0', '2', '4', '6', '8'])
}

/// Makes the credentials that the plugin issues for `name`, one after the other.
fn issue(server: &ApiServer, plugin: &FakePlugin, name: &str) {
    for generation in 1..=GENERATIONS {
        let identity = format!("{name}-{generation}");
        if has_pair(name) {
            let (certificate, key) = server.issue_client_certificate(&identity, Duration::from_secs(3600));
            let status = json!({"clientCertificateData": certificate, "clientKeyData": key}).to_string();
            let members = status.trim_start_matches('{').trim_end_matches('}');
            fs::write(plugin.dir().join(&identity), members).unwrap();
        } else {
            server.accept_token(&identity);
        }
    }
}

fn profile(server: &ApiServer, name: &str) -> Value {
    let envs = json!({
        "name": "clusterprofiles.multicluster.x-k8s.io/exec/additional-envs",
        "extension": {"CLUSTER": name},
    });
    let cluster = json!({
        "server": server.url(),
        "certificate-authority-data": STANDARD.encode(server.ca_pem()),
        "extensions": [envs],
    });
    let status = json!({"accessProviders": [{"name": "cloud", "cluster": cluster}]});
    json!({"spec": {"clusterManager": {"name": "manager"}}, "status": status})
}

fn config(plugin: &FakePlugin, kubeconfig: &std::path::Path) -> String {
    json!({
        "apiVersion": "credbroker.io/v1alpha1",
        "kind": "BrokerConfig",
        "providers": [{
            "name": "cloud",
            "execConfig": plugin.exec_stanza(),
            "profileSourcedEnvVarsPolicy": "AppendIfNotExists",
            "profileEnv": ["CLUSTER"],
        }],
        "clusterProfiles": {"kubeconfig": kubeconfig, "namespaces": ["fleet"]},
    })
    .to_string()
}

fn set_config_map(server: &ApiServer, version: usize) {
    let body = json!({"data": {"version": version.to_string()}});
    server.apply(Collection::ConfigMaps, "default", "settings", body);
}

/// The resource version of the config map as it is now.
fn current(server: &ApiServer) -> String {
    let object = server.object(Collection::ConfigMaps, "default", "settings").unwrap();
    object["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

/// Waits until the watch of each cluster has reported the current config map.
fn until_all_read(lines: &Receiver<String>, names: &[String], version: &str) {
    let mut waiting: BTreeSet<_> = names.iter().map(|name| format!("fleet/{name}")).collect();
    until(lines, |line| {
        if line["event"] == "config_map" && line["resource_version"] == version {
            waiting.remove(line["cluster"].as_str().unwrap());
        }
        waiting.is_empty()
    });
}

fn until(lines: &Receiver<String>, mut is_so: impl FnMut(&Value) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let line = lines.recv_timeout(left).expect("the controller reports it");
        if is_so(&serde_json::from_str(&line).unwrap()) {
            return;
        }
    }
}

/// Who was seen by the server: by cluster, the generations of its credential.
fn identities(server: &ApiServer) -> BTreeMap<String, BTreeSet<String>> {
    let mut seen: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for identity in server.seen_tokens().into_iter().chain(server.seen_certificates()) {
        let cluster = identity.split('-').next().unwrap_or_default().to_owned();
        seen.entry(cluster).or_default().insert(identity);
    }
    seen
}

fn lines(from: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines() {
            if line.is_err() || sender.send(line.unwrap_or_default()).is_err() {
                return;
            }
        }
    });
    receiver
}
