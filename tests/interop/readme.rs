//! Every command that the documents name is run by something.

use std::{fs, path::Path, process::Command};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use credbroker_test_support::{Accepts, ApiServer, Broker, FakePlugin, Kubeconfig};
use serde_json::json;

use crate::{
    kubectl::newest_api_version,
    programs::{broker, shim},
};

/// The fenced `sh` blocks of a document, in their order.
fn blocks(document: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut rest = document;
    while let Some((_, tail)) = rest.split_once("```sh\n") {
        let (block, tail) = tail.split_once("```").expect("a block ends");
        blocks.push(block.to_owned());
        rest = tail;
    }
    blocks
}

fn read(file: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap()
}

#[test]
fn the_three_lines_of_the_readme_serve_a_kubeconfig() {
    let server = ApiServer::start(Accepts::Tokens);
    server.accept_token("token-1");
    let plugin = FakePlugin::builder().token_per_run().expires_in(3600).build();
    let home = tempfile::tempdir().unwrap();
    fs::create_dir(home.path().join(".kube")).unwrap();
    Kubeconfig::for_server(&server, "NAME", &plugin.exec_stanza()).write(home.path().join(".kube/config"));
    let bin = home.path().join("bin");
    fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink(broker(), bin.join("credbroker")).unwrap();
    std::os::unix::fs::symlink(shim(), bin.join("credbroker-exec")).unwrap();
    let runtime = home.path().join("run");
    fs::create_dir(&runtime).unwrap();

    let mine = |block: &String| block.starts_with("credbroker ") && !block.starts_with("credbroker clusters");
    let blocks: Vec<_> = blocks(&read("README.md")).into_iter().filter(mine).collect();
    assert_eq!(blocks.len(), 3, "the three lines, a credential, see and steer: {blocks:?}");
    // As in a terminal, but for the end: the broker must not outlive the test.
    let script = format!("set -e\ntrap 'kill %1' EXIT\n{}", blocks.concat());
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let output = Command::new("bash")
        .args(["-c", &script])
        .env_clear()
        .env("PATH", path)
        .env("HOME", home.path())
        // Root's broker is the machine's; here everything is private.
        .env("CREDBROKER_SOCKET", runtime.join("credbroker.sock"))
        .output()
        .unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}{stderr}");
    let tokens = server.seen_tokens();
    assert!(!tokens.is_empty() && tokens.iter().all(|token| token == "token-1"), "{tokens:?} {stderr}");
    // A caller's KUBECONFIG can change what a plugin answers, and `get` was called without: a run of its own.
    assert!(stdout.lines().any(|line| line == "token-2"), "`get -o token`: {stdout}{stderr}");
    // Both are refreshed, and then forgotten.
    assert_eq!(plugin.runs(), 4, "{stdout}{stderr}");
    assert_eq!(stdout.lines().last(), Some("2 credentials forgotten"), "{stdout}{stderr}");
}

/// The configuration and the commands of the README, but for the plugin's name.
#[test]
fn the_readmes_fleet_is_listed_and_walked() {
    let (hub, paris) = (ApiServer::start(Accepts::Tokens), ApiServer::start(Accepts::Tokens));
    hub.accept_token("hub");
    paris.accept_token("token-1");
    let cluster = json!({
        "server": paris.url(),
        "certificate-authority-data": STANDARD.encode(paris.ca_pem()),
    });
    let status = json!({"accessProviders": [{"name": "gke", "cluster": cluster}]});
    let body = json!({"spec": {"clusterManager": {"name": "m"}}, "status": status});
    hub.apply_cluster_profile("fleet", "paris", body);
    let plugin = FakePlugin::builder().token_per_run().expires_in(3600).build();
    let home = tempfile::tempdir().unwrap();
    fs::create_dir(home.path().join(".kube")).unwrap();
    let kubeconfig = Kubeconfig::new().cluster_of(&hub, "hub").user("hub", &json!({"token": "hub"}));
    kubeconfig.context("hub", "hub", "hub").write(home.path().join(".kube/hub"));

    let readme = read("README.md");
    let config = readme.split("```yaml\n").find(|block| block.contains("kubeconfig: ~/.kube/hub"));
    let config = config.and_then(|block| block.split("```").next()).expect("the fleet's configuration");
    let command = plugin.path();
    let config =
        config.replace("command: gke-gcloud-auth-plugin", &format!("command: {}", command.display()));
    let broker = Broker::builder(broker()).config(&config).env("HOME", home.path()).start();

    let bin = home.path().join("bin");
    fs::create_dir(&bin).unwrap();
    for (name, program) in [("credbroker", self::broker().to_owned()), ("credbroker-exec", shim())] {
        std::os::unix::fs::symlink(program, bin.join(name)).unwrap();
    }
    let block = blocks(&readme).into_iter().find(|block| block.starts_with("credbroker clusters"));
    // The first look at the hub may still be under way: whoever asks for a cluster waits for it.
    let version = newest_api_version().trim_start_matches("client.authentication.k8s.io/");
    let block =
        block.unwrap().replace("kubeconfig fleet", &format!("kubeconfig fleet --api-version {version}"));
    let script = format!("set -e\ncredbroker get --cluster-profile fleet/paris\n{block}");
    let output = Command::new("bash")
        .args(["-c", &script])
        .env_clear()
        .env("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()))
        .env("HOME", home.path())
        .env("CREDBROKER_SOCKET", broker.socket())
        .output()
        .unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}{stderr}{}", broker.log());
    assert!(stdout.contains("fleet/paris") && stdout.contains("ready"), "{stdout}");
    assert!(stdout.contains("web-0"), "kubectl's pods: {stdout}");
    assert_eq!((paris.seen_tokens(), plugin.runs()), (vec!["token-1".to_owned()], 1));
}

/// Either this file runs it, or `.ci/run` does, or it is listed here with what does.
#[test]
fn every_command_of_the_documents_is_run_by_something() {
    let ci = read(".ci/run");
    let elsewhere = [
        // `systemd/check.sh` verifies the units and tries the activation; there is no user manager in CI.
        "mkdir -p ~/.config/systemd/user",
        "cp systemd/user/credbroker.* ~/.config/systemd/user/",
        "systemctl --user daemon-reload",
        "systemctl --user enable --now credbroker.socket",
        "cargo build -p credbroker-exec",
        "cargo bench --bench latency",
        "cargo bench --bench rotation",
        "cargo bench --bench fleet",
        "cargo bench --bench scale",
        // The test command simulates three hundred seeds, and checks the filter with the fuzz target's own properties.
        "CREDBROKER_SEEDS=10000 cargo test -p credbroker --lib cache::simulation::no_seed",
        "cargo +nightly fuzz run authority",
        // `python.rs` does the same in a directory of its own.
        "mkdir -p target/python",
        "target/python-venv/bin/python -m grpc_tools.protoc -I proto --python_out=target/python --grpc_python_out=target/python proto/credbroker/v1/credbroker.proto",
        "PYTHONPATH=target/python target/python-venv/bin/python examples/python/watch.py --provider NAME",
    ];
    for document in ["README.md", "CONTRIBUTING.md", "benches/README.md", "examples/python/README.md"] {
        for line in blocks(&read(document)).iter().flat_map(|block| block.lines()) {
            let command = line.replace("cargo run --release -- demo", "cargo run --release --locked -- demo");
            let command = command.replace("cargo test --test interop", "cargo test --locked --test interop");
            let run = ci.contains(&command)
                || elsewhere.contains(&line)
                || line.starts_with("credbroker ")
                || line.starts_with("KUBECONFIG=~/.kube/broker kubectl")
                || line.starts_with("kubectl --kubeconfig ~/.kube/fleet")
                || line.starts_with("BLESS=1");
            assert!(run, "{document} names a command that nothing runs: {line}");
        }
    }
}
