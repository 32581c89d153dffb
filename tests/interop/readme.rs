//! The commands and programs in the documents work.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::{DirBuilderExt as _, symlink},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use credbroker_test_support::{
    Accepts, ApiServer, Broker, FakePlugin, Kubeconfig, private_directory, private_file,
};
use serde_json::json;

use crate::{
    kubectl::newest_api_version,
    programs::{broker, clusterless, shim},
};

/// The fenced blocks of a document in `language`, in their order.
pub(crate) fn blocks(file: &str, language: &str) -> Vec<String> {
    let document = read(file);
    let fence = format!("```{language}\n");
    let parts = document.split(&fence).skip(1);
    parts.map(|part| part.split_once("```").expect("a block has an end").0.to_owned()).collect()
}

/// The blocks of `file` with a command of credbroker in them.
fn credbroker_blocks(file: &str) -> Vec<String> {
    blocks(file, "sh").into_iter().filter(|block| block.starts_with("credbroker ")).collect()
}

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A directory with both programs by their names.
fn programs(directory: &Path) -> PathBuf {
    let bin = directory.join("bin");
    fs::create_dir(&bin).unwrap();
    for (name, program) in [("credbroker", broker().to_owned()), ("credbroker-exec", shim())] {
        symlink(program, bin.join(name)).unwrap();
    }
    bin
}

/// Runs `script` like a terminal of the user with the home `home`; returns standard output and error.
fn bash(script: &str, home: &Path, socket: &Path) -> (String, String) {
    bash_in(&programs(home), script, home, socket)
}

/// With the programs in `bin`.
fn bash_in(bin: &Path, script: &str, home: &Path, socket: &Path) -> (String, String) {
    let output = Command::new("bash")
        .args(["-c", &format!("set -e\n{script}")])
        .current_dir(home)
        .env_clear()
        .env("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()))
        .env("HOME", home)
        // The default socket of root is that of the machine.
        .env("CREDBROKER_SOCKET", socket)
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{stdout}{stderr}");
    (stdout, stderr)
}

/// The README's three lines, and the commands of `docs/operations.md` on the same broker.
#[test]
fn the_commands_for_a_kubeconfig_work() {
    let server = ApiServer::start(Accepts::Tokens);
    server.accept_token("token-1");
    let plugin = FakePlugin::builder().token_per_run().expires_in(3600).build();
    let home = tempfile::tempdir().unwrap();
    fs::create_dir(home.path().join(".kube")).unwrap();
    Kubeconfig::for_server(&server, "NAME", &plugin.exec_stanza()).write(home.path().join(".kube/config"));
    let config = json!({"apiVersion": "credbroker.io/v1alpha1", "kind": "BrokerConfig", "kubeconfigs": ["~/.kube/config"]});
    private_file(&home.path().join("FILE"), &config.to_string());
    let runtime = home.path().join("run");
    fs::DirBuilder::new().mode(0o700).create(&runtime).unwrap();

    let commands =
        [credbroker_blocks("README.md"), credbroker_blocks("docs/operations.md")].concat().concat();
    // The broker must not outlive the test.
    let script = format!("trap 'kill %1' EXIT\n{commands}");
    let (stdout, stderr) = bash(&script, home.path(), &runtime.join("credbroker.sock"));
    let tokens = server.seen_tokens();
    assert!(!tokens.is_empty() && tokens.iter().all(|token| token == "token-1"), "{tokens:?} {stderr}");
    assert!(stdout.lines().any(|line| line.starts_with("token-")), "`get -o token`: {stdout}{stderr}");
    assert!(
        stdout.lines().any(|line| line.starts_with("evicted ") && !line.starts_with("evicted 0")),
        "{stdout}"
    );
    assert_eq!(stdout.lines().last(), Some("evicted 0 credentials"), "{stdout}{stderr}");
}

/// The commands of `docs/kubeconfig.md`, each block in its own terminal.
#[test]
fn the_commands_for_a_copy_and_in_place_work() {
    let server = ApiServer::start(Accepts::Tokens);
    server.accept_token("token-1");
    let plugin = FakePlugin::builder().token_per_run().expires_in(3600).build();
    let home = private_directory();
    fs::create_dir(home.path().join(".kube")).unwrap();
    let original = home.path().join(".kube/config");
    Kubeconfig::for_server(&server, "NAME", &plugin.exec_stanza()).write(&original);
    let before = fs::read(&original).unwrap();
    let broker = Broker::builder(broker()).env("HOME", home.path()).start();
    let blocks = credbroker_blocks("docs/kubeconfig.md");
    let [in_place, copy] = &blocks[..] else { panic!("{blocks:?}") };
    let bin = programs(home.path());
    let pods = "kubectl get pods";
    let (stdout, _) = bash_in(&bin, &format!("{copy}{pods}"), home.path(), &broker.socket());
    assert!(stdout.contains("web-0"), "{stdout}");
    let (inject, rest) = in_place.split_once('\n').unwrap();
    let script = format!("{inject}\ngrep -q credbroker ~/.kube/config\n{pods}\n{rest}");
    let (stdout, _) = bash_in(&bin, &script, home.path(), &broker.socket());
    assert!(stdout.contains("web-0"), "{stdout}");
    assert_eq!(fs::read(&original).unwrap(), before);
    assert_eq!((server.seen_tokens(), plugin.runs()), (vec!["token-1".to_owned()], 1));
}

/// The configuration and the commands of `docs/fleet.md`, with the path of the plugin.
#[test]
fn the_commands_for_a_fleet_work() {
    let (hub, paris) = fleet();
    let plugin = FakePlugin::builder().token_per_run().expires_in(3600).build();
    let home = tempfile::tempdir().unwrap();
    fs::create_dir(home.path().join(".kube")).unwrap();
    let kubeconfig = Kubeconfig::new().cluster_of(&hub, "hub").user("hub", &json!({"token": "hub"}));
    kubeconfig.context("hub", "hub", "hub").write(home.path().join(".kube/hub"));

    let config = blocks("docs/fleet.md", "yaml").remove(0);
    let command = plugin.path();
    let config =
        config.replace("command: gke-gcloud-auth-plugin", &format!("command: {}", command.display()));
    let broker = Broker::builder(broker()).config(&config).env("HOME", home.path()).start();

    // kubectl may be too old for v1.
    let version = newest_api_version().trim_start_matches("client.authentication.k8s.io/");
    let commands = credbroker_blocks("docs/fleet.md").concat();
    let commands = commands.replace("kubeconfig fleet", &format!("kubeconfig fleet --api-version {version}"));
    // A request for a cluster waits for the first list of the hub; `clusters` does not.
    let script = format!("credbroker get --cluster-profile fleet/paris\n{commands}");
    let (stdout, _) = bash(&script, home.path(), &broker.socket());
    assert!(stdout.contains("fleet/paris") && stdout.contains("ready"), "{stdout}");
    assert!(stdout.contains("web-0"), "kubectl's pods: {stdout}");
    assert_eq!((paris.seen_tokens(), plugin.runs()), (vec!["token-1".to_owned()], 1));
}

/// The README's program, with the socket of the test.
#[test]
fn the_python_program_of_the_readme_works() {
    let channels = root().join("target/channels");
    let plugin = FakePlugin::builder().token("secret").expires_in(3600).build();
    let broker = Broker::builder(broker()).providers(&json!([clusterless("gke", &plugin)])).start();
    let socket = broker.socket().display().to_string();
    let program = blocks("README.md", "python").remove(0);
    assert!(program.contains("/run/credbroker/credbroker.sock"), "{program}");
    let program = program.replace("/run/credbroker/credbroker.sock", &socket);
    let mut python = Command::new(channels.join("python/venv/bin/python"));
    python.args(["-c", &program]).env("PYTHONPATH", channels.join("python/generated"));
    let line = first_line(python);
    assert!(line.starts_with("use generation "), "{line}");
    assert_eq!(plugin.runs(), 1);
}

/// The README's function, as a package of the module `client/go`.
#[test]
fn the_go_program_of_the_readme_works() {
    let (hub, paris) = fleet();
    let plugin = FakePlugin::builder().token("token-1").expires_in(3600).build();
    let directory = private_directory();
    let kubeconfig = directory.path().join("hub");
    Kubeconfig::new()
        .cluster_of(&hub, "hub")
        .user("hub", &json!({"token": "hub"}))
        .context("hub", "hub", "hub")
        .write(&kubeconfig);
    let provider = json!({"name": "gke", "execConfig": plugin.exec_stanza()});
    let config = json!({
        "apiVersion": "credbroker.io/v1alpha1",
        "kind": "BrokerConfig",
        "providers": [provider],
        "clusterProfiles": {"kubeconfig": kubeconfig},
    });
    let broker = Broker::builder(broker()).config(&config.to_string()).start();

    let imports = [
        "context",
        "fmt",
        "github.com/credbroker/credbroker/client/go",
        "k8s.io/apimachinery/pkg/apis/meta/v1",
        "k8s.io/apimachinery/pkg/runtime/schema",
        "k8s.io/client-go/dynamic",
    ];
    let imports = imports.map(|import| format!("import \"{import}\"\n")).concat();
    let main = r#"func main() {
	client, err := connect(context.Background())
	if err != nil {
		panic(err)
	}
	pods := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).Namespace("default")
	list, err := pods.List(context.Background(), v1.ListOptions{})
	if err != nil {
		panic(err)
	}
	fmt.Println(list.Items[0].GetName())
}
"#;
    let program = directory.path().join("main.go");
    fs::write(&program, format!("package main\n\n{imports}\n{}\n{main}", blocks("README.md", "go")[0]))
        .unwrap();
    let module = root().join("client/go");
    let overlay = directory.path().join("overlay.json");
    let replaced =
        json!({"Replace": {module.join("internal/readme/main.go").display().to_string(): program}});
    fs::write(&overlay, replaced.to_string()).unwrap();
    let mut go = Command::new("go");
    go.args(["run", "-buildvcs=false", "-overlay"]).arg(&overlay).arg("./internal/readme");
    go.current_dir(module).env("CREDBROKER_SOCKET", broker.socket());
    let line = first_line(go);
    assert_eq!(line, "web-0");
    assert_eq!((paris.seen_tokens(), plugin.runs()), (vec!["token-1".to_owned()], 1));
}

/// A hub with the ClusterProfile `fleet/paris`, and that cluster.
fn fleet() -> (ApiServer, ApiServer) {
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
    (hub, paris)
}

/// The first line of the output of `command`, which is then stopped.
fn first_line(mut command: Command) -> String {
    let path = format!("{}:/usr/local/go/bin", std::env::var("PATH").unwrap());
    let mut child = command.env("PATH", path).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    drop(child.kill());
    drop(child.wait());
    line.trim_end().to_owned()
}

/// Commands that neither the tests above nor `.ci/run` and `.ci/full` run as they are written, and what runs them.
const ELSEWHERE: &[(&str, &str)] = &[
    ("cp systemd/user/credbroker.* ~/.config/systemd/user/", SYSTEMD),
    ("mkdir -p ~/.config/systemd/user", SYSTEMD),
    ("rm ~/.config/systemd/user/credbroker.socket ~/.config/systemd/user/credbroker.service", SYSTEMD),
    ("systemctl --user daemon-reload", SYSTEMD),
    ("systemctl --user disable --now credbroker.socket credbroker.service", SYSTEMD),
    ("systemctl --user enable --now credbroker.socket", SYSTEMD),
    ("git clone https://github.com/credbroker/credbroker && cd credbroker", "CI runs in a clone"),
    ("kubectl apply --kustomize deploy/kubernetes/quickstart", NODE),
    ("kubectl rollout status --namespace quickstart deployment/app", NODE),
    (
        "kubectl exec --namespace quickstart deployment/app --container app -- /usr/bin/credbroker get own-cluster",
        NODE,
    ),
    ("kubectl exec --namespace quickstart deployment/app --container credbroker -- credbroker status", NODE),
    ("kubectl delete namespace quickstart", NODE),
    ("deploy/images/build.sh target/dist/amd64", RELEASE),
    ("credbroker restart", STOP),
    ("credbroker setup", SETUP),
    ("credbroker setup --undo", SETUP),
    ("credbroker stop", STOP),
    ("credbroker doctor", "tests/it/doctor.rs"),
    ("credbroker login azure", LOGINS),
    ("credbroker logout azure", LOGINS),
    ("pkill -HUP -f 'credbroker serve'", "tests/it/reload/process.rs sends the signal"),
    ("credbroker serve --proxy &", PROXY),
    ("credbroker kubeconfig proxy -o ~/.kube/proxy", PROXIED),
    ("export KUBECONFIG=~/.kube/proxy", PROXIED),
    ("kubectl get pods", CLIENTS),
    ("credbroker shell prod", PROXIED),
    ("credbroker shell prod -- kubectl get pods", PROXIED),
    ("credbroker shell fleet/paris -- helm list", PROXIED),
    ("PS1='${CREDBROKER_SHELL:+($CREDBROKER_SHELL) }'$PS1", "tests/it/proxied.rs reads the variable"),
    (
        "credbroker bridge --listen 127.0.0.1:0 --socket /run/credbroker-proxy/sandbox/proxy.sock > kubeconfig &",
        PROXY,
    ),
    ("kubectl --kubeconfig kubeconfig get pods", CLIENTS),
    ("credbroker-exec --proxy /clusters/NAMESPACE/NAME", PROXY),
    (
        "curl --unix-socket /run/credbroker-proxy/handles.sock http://localhost/status",
        "`credbroker status` asks the same in tests/it/proxy",
    ),
    ("tests/interop/proxy-bench/run.sh --write", BENCH),
    ("BLESS=1 cargo test -p credbroker-proto", "the test command compares, without writing"),
    ("cargo install --locked --path . --features otlp", ".ci/full tests a build with this feature"),
    ("cargo bench -p credbroker-lab --bench fleet", BENCH),
    ("cargo bench -p credbroker-lab --bench latency", BENCH),
    ("cargo bench -p credbroker-lab --bench rotation", BENCH),
    ("cargo bench -p credbroker-lab --bench scale", BENCH),
    ("cargo build -p credbroker-exec", "the shim of these tests"),
    ("cargo test -p credbroker-cache", "the test command runs the tests of all crates"),
    ("cargo run --release -p credbroker-lab -- --duration 10m", ".ci/full, for a minute"),
    ("cargo +nightly fuzz run authority", "the test command checks the same properties"),
    (
        "CREDBROKER_SEEDS=10000 cargo test -p credbroker-cache simulation::no_seed",
        "the test command runs fifty seeds",
    ),
    ("CREDBROKER_RUNS=10000 cargo test --test it first_process", "the test command, with fewer runs"),
    ("source <(credbroker completions bash)", "tests/it/commands/shells.rs"),
    (
        "python -m grpc_tools.protoc -I proto --python_out=. --grpc_python_out=. credbroker/v1/credbroker.proto",
        GENERATED,
    ),
    ("protoc -I proto --go_out=. --go-grpc_out=. credbroker/v1/credbroker.proto", GENERATED),
    (
        "cargo rustc --locked --profile shim -p credbroker-exec --bin credbroker-exec -- -C target-feature=+crt-static -C relocation-model=static -C link-arg=-Wl,--icf=all",
        "build_shim of .ci/prepare, whose options depend on the machine",
    ),
    (
        "protoc -I proto --ruby_out=. --grpc_out=. --plugin=protoc-gen-grpc=/usr/bin/grpc_ruby_plugin credbroker/v1/credbroker.proto",
        GENERATED,
    ),
    ("python3 -m venv target/python-venv", REAL),
    (
        "target/python-venv/bin/python -m pip install --quiet --requirement examples/python/requirements.txt",
        REAL,
    ),
    ("mkdir -p target/python", REAL),
    (
        "target/python-venv/bin/python -m grpc_tools.protoc -I proto --python_out=target/python --grpc_python_out=target/python proto/credbroker/v1/credbroker.proto",
        REAL,
    ),
    ("PYTHONPATH=target/python target/python-venv/bin/python examples/python/pods.py NAMESPACE NAME", REAL),
    ("mkdir -p gen", GENERATED),
    (
        "PATH=$PWD/bin:$PATH protoc -I ../../proto --go_out=gen --go-grpc_out=gen credbroker/v1/credbroker.proto",
        GENERATED,
    ),
    ("go run . /run/credbroker/credbroker.sock NAME", EXAMPLES),
    ("node pods.js NAMESPACE NAME", REAL),
    ("mvn --batch-mode --quiet compile", REAL),
    (".ci/static amd64", RELEASE),
    (".ci/static arm64", RELEASE),
    ("deploy/images/build.sh target/dist/amd64 target/dist/arm64", RELEASE),
    ("deploy/packages/build.sh target/dist/amd64", RELEASE),
    (
        "java -cp '../../target/channels/java/classes:../../target/channels/java/dependency/*' Pods NAMESPACE NAME",
        REAL,
    ),
];

/// Pages that are one session: their commands, and what these print. Nothing but the programs is needed.
const REPLAYED: [&str; 2] = ["docs/which-identity.md", "docs/write-a-plugin.md"];

#[test]
fn the_commands_of_pages_print_what_the_pages_show() {
    for page in REPLAYED {
        let mut replay = Command::new("tests/interop/walkthroughs/replay");
        let output = replay.arg(page).arg(broker()).arg(shim()).current_dir(root()).output().unwrap();
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        assert!(output.status.success(), "{page}: {}", text.concat());
    }
}

/// There is no user manager in CI.
const SYSTEMD: &str = "systemd/check.sh verifies the units and the activation";
const SETUP: &str = "tests/it/setup.rs, with --yes";
const STOP: &str = "tests/it/stop.rs";
const PROXY: &str = "tests/it/proxy, with paths of the test";
const PROXIED: &str = "tests/it/proxied.rs, with contexts of the test";
const CLIENTS: &str = "`.ci/full clients`, through the proxy at the port and at the socket";
const BENCH: &str = "clippy and the benches themselves, which are measurements";
const LOGINS: &str = "tests/it/logins, at terminals of the test";
const GENERATED: &str = "tests/interop/channels/setup.sh, in directories of the test";
const RELEASE: &str = ".ci/full, for the architecture of the machine";
const EXAMPLES: &str = "channels.rs, with the paths of its test";
const NODE: &str = "tests/interop/node/cases/quickstart.sh, from the page";
const REAL: &str = "real/examples.rs, with a ClusterProfile of the test";

#[test]
fn each_command_of_the_documents_is_run_by_something() {
    let mut files = vec!["README.md".to_owned(), "CONTRIBUTING.md".into(), "lab/README.md".into()];
    files
        .extend(["go", "java", "node", "plugins", "python"].map(|name| format!("examples/{name}/README.md")));
    let docs = fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let docs = docs.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    files.extend(docs.map(|path| format!("docs/{}", path.file_name().unwrap().display())));
    let tested = ["README.md", "docs/operations.md", "docs/fleet.md", "docs/kubeconfig.md"]
        .map(|file| credbroker_blocks(file).concat())
        .concat();
    let ci = [".ci/run", ".ci/full", ".ci/prepare", "tests/interop/channels/setup.sh"].map(read).concat();
    let mut unused: Vec<_> = ELSEWHERE.iter().map(|(command, _)| *command).collect();
    for file in files.into_iter().filter(|file| !REPLAYED.contains(&&**file)) {
        for line in blocks(&file, "sh").iter().flat_map(|block| block.lines()) {
            let locked = line.replace("cargo run --release", "cargo run --release --locked");
            let locked = locked.replace("cargo test --test interop", "cargo test --locked --test interop");
            let is_run = tested.lines().any(|tested| tested == line) || ci.contains(&locked);
            let is_elsewhere = ELSEWHERE.iter().any(|(command, _)| *command == line);
            assert!(is_run || is_elsewhere, "{file} names a command that nothing runs: {line}");
            unused.retain(|command| *command != line);
        }
    }
    assert!(unused.is_empty(), "no document names {unused:?}");
}
