//! kubectl and curl through the proxy, to a real API server.

use std::{
    fs,
    io::{BufRead as _, BufReader, Lines},
    net::TcpListener,
    path::PathBuf,
    process::{Child, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use credbroker_test_support::{Broker, FakePlugin, Kubeconfig, private_directory};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::ControlPlane;
use crate::{
    kubectl::{Kubectl, failure, minor_version, newest_api_version, proxy::Proxy as KubectlProxy, stdout},
    programs::{broker, path_with_shim, refresh, shim},
};

/// The contexts: with a token, with a client certificate, and one that no rule allows.
const CONTEXTS: [&str; 3] = ["token", "certificate", "hidden"];
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

/// A broker with the proxy in its process, and a kubeconfig whose contexts use the proxy.
struct Proxied {
    plane: ControlPlane,
    broker: Broker,
    home: TempDir,
    kubectl: Kubectl,
    _plugins: [FakePlugin; 3],
}

impl Proxied {
    fn start() -> Option<Self> {
        let plane = ControlPlane::shared()?;
        let home = private_directory();
        let kinds = [("token", "token"), ("certificate", "certificate"), ("hidden", "token")];
        let plugins = kinds.map(|(name, kind)| plane.plugin(kind, &user(&plane, name), 3600));
        let mut own = Kubeconfig::new().cluster("real", &plane.cluster());
        for (name, plugin) in CONTEXTS.iter().zip(&plugins) {
            own = own.exec_user(name, &plugin.exec_stanza()).context(name, "real", name);
        }
        own.write(home.path().join("own"));
        let uid = rustix::process::geteuid().as_raw();
        // Nothing can say later which port the kernel chose, so it is chosen here.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let config = json!({
            "apiVersion": "credbroker.io/v1alpha1", "kind": "BrokerConfig",
            "kubeconfigs": [home.path().join("own")],
            "audit": {"file": home.path().join("audit")},
            "access": [
                {"name": "proxy", "peers": {"uids": [uid]},
                 "allow": {"providers": ["*"], "verbs": ["watch", "report", "list", "admin"]}},
                {"name": "clients", "peers": {"uids": [uid]},
                 "allow": {"providers": ["token", "certificate"], "verbs": ["proxy"]}},
            ],
            "proxy": {
                "directory": home.path().join("proxy"),
                "listen": {"socket": home.path().join("sandbox/socket")},
                "tls": {"listen": port.to_string()},
            },
        });
        fs::write(home.path().join("config.yaml"), config.to_string()).unwrap();
        let broker = Broker::builder(broker()).config(&config.to_string()).arg("--proxy").start();
        let kubectl = Kubectl::new().env("PATH", path_with_shim());
        let proxied = Self { plane, broker, home, kubectl, _plugins: plugins };
        proxied.write();
        Some(proxied)
    }

    /// `credbroker kubeconfig proxy`.
    fn write(&self) {
        let mut command = Command::new(broker());
        command
            .args(["kubeconfig", "proxy", "--api-version", api_version(), "--output"])
            .arg(self.kubeconfig());
        command.env_clear().env("PATH", path_with_shim()).env("HOME", self.home.path());
        command.env("KUBECONFIG", self.home.path().join("own"));
        command.env("CREDBROKER_CONFIG", self.home.path().join("config.yaml"));
        let output = command.env("CREDBROKER_SOCKET", self.broker.socket()).output().unwrap();
        let complaints = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && complaints.is_empty(), "{complaints}{}", self.broker.log());
        assert!(fs::read_to_string(self.kubeconfig()).unwrap().contains(shim().to_str().unwrap()));
    }

    fn kubeconfig(&self) -> PathBuf {
        self.home.path().join("through")
    }

    /// What kubectl prints in `context` and the namespace of the test.
    #[track_caller]
    fn run(&self, context: &str, arguments: &[&str]) -> String {
        stdout(&self.kubectl.run(&self.kubeconfig(), &self.arguments(context, arguments)))
    }

    fn arguments<'a>(&'a self, context: &'a str, arguments: &[&'a str]) -> Vec<&'a str> {
        [&["--context", context, "--namespace", &self.plane.namespace], arguments].concat()
    }

    fn apply(&self, context: &str, name: &str) {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        let arguments = self.arguments(context, &["apply", "--filename", "-"]);
        let output = self.kubectl.run_with_stdin(&self.kubeconfig(), &arguments, &object.to_string());
        assert_eq!(stdout(&output), format!("configmap/{name} created\n"));
    }

    /// Who the API server says that a user of this context is. With `--raw`, kubectl leaves out the path of the server.
    #[track_caller]
    fn who(&self, context: &str) -> String {
        let path = self.path(context) + REVIEWS;
        let arguments = self.arguments(context, &["create", "--raw", &path, "--filename", "-"]);
        let answer = stdout(&self.kubectl.run_with_stdin(&self.kubeconfig(), &arguments, &review()));
        let answer: Value = serde_json::from_str(&answer).unwrap();
        answer["status"]["userInfo"]["username"].as_str().unwrap().to_owned()
    }

    /// The path of this context at the proxy.
    fn path(&self, context: &str) -> String {
        let query = format!("{{.clusters[?(@.name==\"{context}\")].cluster.server}}");
        let server = self.run(context, &["config", "view", "--output", &format!("jsonpath={query}")]);
        server.splitn(4, '/').nth(3).map(|path| format!("/{path}")).unwrap()
    }

    /// The code and the body of an answer at the Unix socket.
    fn at_socket(&self, path: &str, more: &[&str]) -> (String, Value) {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--max-time", "30", "--write-out", "\n%{http_code}"]);
        curl.arg("--unix-socket").arg(self.home.path().join("sandbox/socket")).args(more);
        let output = curl.arg(format!("http://localhost{path}")).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let (body, code) = text.rsplit_once('\n').unwrap();
        (code.to_owned(), serde_json::from_str(body).unwrap_or_else(|_| panic!("{code} {body}")))
    }

    /// The records of requests in the audit file of the broker.
    fn records(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.home.path().join("audit")).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.filter(|line| line["kind"] == "request").collect()
    }
}

fn user(plane: &ControlPlane, context: &str) -> String {
    format!("{context}-of-{}", plane.namespace)
}

fn review() -> String {
    json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}).to_string()
}

fn api_version() -> &'static str {
    newest_api_version().rsplit_once('/').unwrap().1
}

/// `kubectl get configmaps --watch`; killed when dropped.
struct Watch(Child, Lines<BufReader<ChildStdout>>);

impl Watch {
    fn begin(proxied: &Proxied, context: &str) -> Self {
        let arguments =
            proxied.arguments(context, &["get", "configmaps", "--watch-only", "--output", "name"]);
        let mut command = proxied.kubectl.command(&proxied.kubeconfig(), &arguments);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self(child, lines)
    }

    /// The next event about a `ConfigMap` of the test.
    fn next(&mut self) -> String {
        self.1.by_ref().map(Result::unwrap).find(|line| !line.contains("kube-root-ca")).unwrap()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[test]
fn kubectl_uses_a_cluster_through_the_proxy_with_a_token_and_with_a_certificate() {
    let Some(proxied) = Proxied::start() else { return };
    for context in ["token", "certificate"] {
        let user = user(&proxied.plane, context);
        assert_eq!(proxied.who(context), user);
        if minor_version() >= 28 {
            assert!(proxied.run(context, &["auth", "whoami"]).contains(&user));
        }
        let name = format!("settings-{context}");
        proxied.apply(context, &name);
        assert!(proxied.run(context, &["get", "configmap", &name]).contains(&name));
        assert!(proxied.run(context, &["get", "configmaps", "--output", "name"]).contains(&name));
        assert!(proxied.run(context, &["delete", "configmap", &name]).contains("deleted"));
        assert!(proxied.run(context, &["api-resources"]).contains("clusterprofiles"));

        let arguments = proxied.arguments(context, &["--as", "system:admin", "get", "configmaps"]);
        let said = failure(&proxied.kubectl.run(&proxied.kubeconfig(), &arguments));
        assert!(said.contains("(Forbidden): credbroker: ") && said.contains("mpersonat"), "{said}");
    }
}

/// A watch of kubectl ends when its connection does, so an event after a rotation shows that it went on.
#[test]
fn a_watch_goes_on_across_rotations_of_the_token_and_of_the_certificate() {
    let Some(proxied) = Proxied::start() else { return };
    for (context, other) in [("token", "certificate"), ("certificate", "token")] {
        let mut watch = Watch::begin(&proxied, context);
        let has_begun = |record: &Value| {
            record["phase"] == "begin"
                && record["verb"] == "watch"
                && record["target"].as_str().unwrap().contains(context)
        };
        eventually(|| proxied.records().iter().any(has_begun));
        for rotation in 0..3 {
            let name = format!("{context}-{rotation}");
            proxied.apply(other, &name);
            assert_eq!(watch.next(), format!("configmap/{name}"));
            refresh(&proxied.broker.socket(), context);
            assert_eq!(proxied.who(context), user(&proxied.plane, context));
        }
        let records = proxied.records();
        assert_eq!(records.iter().filter(|record| has_begun(record)).count(), 1, "{records:?}");
        let of_context = records.iter().filter(|record| record["target"].as_str().unwrap().contains(context));
        let generations: std::collections::BTreeSet<_> =
            of_context.filter_map(|record| record["generation"].as_str()).collect();
        assert!(generations.len() >= 3, "{generations:?}");
    }
}

#[test]
fn kubectl_proxy_in_front_of_the_proxy_keeps_the_path() {
    let Some(proxied) = Proxied::start() else { return };
    proxied.run("token", &["config", "use-context", "token"]);
    let more = ["--append-server-path"];
    let proxy = KubectlProxy::with(&proxied.kubectl, &proxied.kubeconfig(), &more);
    assert_eq!(proxy.version(), 200);
}

#[test]
fn a_process_with_the_socket_alone_uses_a_cluster_and_learns_nothing_of_others() {
    let Some(proxied) = Proxied::start() else { return };
    let [by_token, by_certificate, hidden] = CONTEXTS.map(|context| proxied.path(context));
    for (context, path) in [("token", &by_token), ("certificate", &by_certificate)] {
        let review =
            json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}).to_string();
        let post = ["--header", "Content-Type: application/json", "--data", &review];
        let (code, answer) = proxied.at_socket(&format!("{path}{REVIEWS}"), &post);
        assert_eq!(
            (&*code, &answer["status"]["userInfo"]["username"]),
            ("201", &user(&proxied.plane, context).into())
        );
    }
    let (code, list) = proxied.at_socket("/", &[]);
    let listed: Vec<_> =
        list["targets"].as_array().unwrap().iter().map(|target| target["name"].as_str().unwrap()).collect();
    assert_eq!((&*code, listed), ("200", vec!["certificate", "token"]));
    let unknown = "/contexts/hidden-0123456789ab";
    let refused = [&hidden, unknown].map(|path| proxied.at_socket(&format!("{path}/version"), &[]));
    assert_eq!(refused[0], refused[1]);
    assert_eq!((&*refused[0].0, &refused[0].1["reason"]), ("403", &"Forbidden".into()));
    let said = failure(&proxied.kubectl.run(&proxied.kubeconfig(), &["--context", "hidden", "get", "nodes"]));
    assert!(said.contains("credbroker"), "{said}");

    // One name joins a record of ours with that of the API server.
    let records = proxied.records();
    let review = records.iter().find(|record| record["resource"] == "selfsubjectreviews").unwrap();
    let event = format!("\"auditID\":{}", review["audit_id"]);
    eventually(|| fs::read_to_string(proxied.plane.file("audit.log")).unwrap().contains(&event));
}

/// Longer than anything here takes, on any machine.
const PATIENCE: Duration = Duration::from_secs(60);

#[track_caller]
fn eventually(is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "in time");
        std::thread::yield_now();
    }
}
