//! A broker with the proxy in its process, an API server, and users with and without a right.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::{Duration, Instant},
};

use credbroker_test_support::{
    Accepts, ApiServer, Broker, FakePlugin, FakePluginBuilder, Kubeconfig, private_file,
};
use rustix::process::geteuid;
use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_credbroker");
pub(crate) const USER: u32 = 61_001;
/// May use the proxy and nothing else; and a user without any right.
pub(crate) const AS_USER: [&str; 4] = ["setpriv", "--reuid=61001", "--regid=61001", "--clear-groups"];
pub(crate) const AS_OTHER: [&str; 4] = ["setpriv", "--reuid=61002", "--regid=61002", "--clear-groups"];
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";
const TOKEN: &str = "c4n4ry-token";

/// Longer than any step takes.
pub(crate) const AGES: Duration = Duration::from_secs(30);

/// Whether this machine can run these tests.
pub(crate) fn can_run(tools: &[&str]) -> bool {
    let has =
        |tool: &&str| Command::new("which").arg(tool).output().is_ok_and(|found| found.status.success());
    let can = geteuid().is_root() && tools.iter().all(has);
    if !can {
        println!("SKIPPED: needs root and {tools:?}");
    }
    can
}

pub(crate) struct Setting {
    pub(crate) server: ApiServer,
    pub(crate) directory: TempDir,
    pub(crate) broker: Broker,
    config: PathBuf,
}

impl Setting {
    /// The broker with the proxy in its process.
    pub(crate) fn start() -> Self {
        Self::with(&["--proxy"])
    }

    pub(crate) fn with(arguments: &[&str]) -> Self {
        Self::with_user(&json!({"token": TOKEN}), arguments)
    }

    /// The user of the context has a plugin, which prints `token-1`, then `token-2`, and so on.
    pub(crate) fn with_plugin(arguments: &[&str]) -> (FakePlugin, Self) {
        Self::with_plugin_of(FakePlugin::builder().token_per_run().expires_in(3600), arguments)
    }

    pub(crate) fn with_plugin_of(plugin: FakePluginBuilder, arguments: &[&str]) -> (FakePlugin, Self) {
        let plugin = plugin.build();
        let setting = Self::with_user(&json!({"exec": plugin.exec_stanza()}), arguments);
        (plugin, setting)
    }

    fn with_user(user: &Value, arguments: &[&str]) -> Self {
        let server = ApiServer::start(Accepts::Tokens);
        for token in [TOKEN, "token-1", "token-2", "token-3"] {
            server.accept_token(token);
        }
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), Permissions::from_mode(0o711)).unwrap();
        let kubeconfig = directory.path().join("kubeconfig");
        let contexts = Kubeconfig::new()
            .cluster_of(&server, "prod")
            .user("admin", user)
            .context("prod", "prod", "admin");
        private_file(&kubeconfig, &contexts.to_yaml());
        let config = directory.path().join("config.yaml");
        let text = sections(directory.path(), &rules(&["proxy"]));
        private_file(&config, &text.to_string());
        let mut builder = Broker::builder(PROGRAM).arg("--config").arg(&config);
        for argument in arguments {
            builder = builder.arg(argument);
        }
        let broker = builder.start();
        let run = broker.socket().parent().unwrap().to_owned();
        for path in [run.parent().unwrap(), &run] {
            fs::set_permissions(path, Permissions::from_mode(0o711)).unwrap();
        }
        Self { server, directory, broker, config }
    }

    /// The code and the reason of each record of a request in the audit file `name`.
    pub(crate) fn records(&self, name: &str) -> Vec<(u64, String)> {
        let text = fs::read_to_string(self.directory.path().join(name)).unwrap_or_default();
        assert!(!text.contains("c4n4ry"), "{text}");
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let requests = lines.filter(|line| line["kind"] == "request");
        let field = |line: &Value| line["reason"].as_str().unwrap_or_default().to_owned();
        requests.map(|line| (line["status"].as_u64().unwrap(), field(&line))).collect()
    }

    /// The sample of this series at the socket `name`.
    pub(crate) fn metric(&self, name: &str, series: &str) -> Option<String> {
        let socket = self.directory.path().join(name);
        let output = curl(&["env"], &["--unix-socket", text(&socket), "http://localhost/metrics"]);
        let page = String::from_utf8_lossy(&output.stdout).into_owned();
        let sample = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        sample.map(str::to_owned)
    }

    /// Other verbs for the user.
    pub(crate) fn allow(&self, verbs: &[&str]) {
        private_file(&self.config, &sections(self.directory.path(), &rules(verbs)).to_string());
    }

    /// Runs `credbroker` as the user of the broker.
    pub(crate) fn run(&self, arguments: &[&str]) {
        let socket = self.broker.socket();
        let output = Command::new(PROGRAM).args(arguments).arg("--socket").arg(socket).output().unwrap();
        assert!(output.status.success(), "{output:?} {}", self.broker.log());
    }

    /// What `credbroker status` of the broker's user says of the proxy, as JSON and as text.
    pub(crate) fn status(&self) -> (Value, String) {
        let run = |more: &[&str]| {
            let mut command = Command::new(PROGRAM);
            command.arg("status").args(more).arg("--socket").arg(self.broker.socket());
            let output =
                command.env("CREDBROKER_CONFIG", &self.config).env_remove("KUBECONFIG").output().unwrap();
            assert!(output.status.success(), "{output:?} {}", self.broker.log());
            String::from_utf8(output.stdout).unwrap()
        };
        let document: Value = serde_json::from_str(&run(&["-o", "json"])).unwrap();
        (document["proxy"].clone(), run(&[]))
    }

    pub(crate) fn config(&self) -> &Path {
        &self.config
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("sandbox/proxy.sock")
    }

    pub(crate) fn handles(&self) -> PathBuf {
        self.directory.path().join("proxy/handles.sock")
    }

    pub(crate) fn authority(&self) -> PathBuf {
        self.directory.path().join("proxy/ca.crt")
    }

    /// The URL of the loopback port, as `log` has it.
    pub(crate) fn url(log: impl Fn() -> String) -> String {
        let line = "the proxy is listening on https://";
        until(|| log().split_once(line).map(|(_, rest)| format!("https://{}", rest.lines().next().unwrap())))
    }

    /// The path of the context's requests.
    pub(crate) fn target(&self) -> String {
        until(|| {
            let listed = curl(&AS_USER, &["--unix-socket", text(&self.socket()), "http://localhost/"]);
            let list: Value = serde_json::from_slice(&listed.stdout).ok()?;
            Some(list["targets"][0]["path"].as_str()?.to_owned())
        })
    }

    /// What the shim prints for the user with `prefix`.
    pub(crate) fn handle(&self, prefix: &[&str], target: &str) -> Output {
        handle(&self.handles(), prefix, target)
    }

    pub(crate) fn token(&self, target: &str) -> String {
        let output = self.handle(&AS_USER, target);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{stderr} {}", self.broker.log());
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(document["status"]["expirationTimestamp"].is_string(), "{document}");
        document["status"]["token"].as_str().unwrap().to_owned()
    }

    /// The code of a request to the loopback port.
    pub(crate) fn at_port(&self, prefix: &[&str], url: &str, token: &str, more: &[&str]) -> String {
        let (authority, header) = (self.authority(), format!("authorization: Bearer {token}"));
        let fixed = ["--cacert", text(&authority), "-H", &header, url];
        code(&curl(prefix, &[&fixed[..], more].concat()))
    }

    /// The code of a request to the socket.
    pub(crate) fn at_socket(&self, prefix: &[&str], path: &str) -> String {
        let url = format!("http://localhost{path}");
        code(&curl(prefix, &["--unix-socket", text(&self.socket()), &url]))
    }
}

fn sections(directory: &Path, rules: &Value) -> Value {
    json!({
        "apiVersion": "credbroker.io/v1alpha1", "kind": "BrokerConfig",
        "listen": {"mode": "0666"}, "kubeconfigs": [directory.join("kubeconfig")], "access": rules,
        "audit": {"file": directory.join("audit")},
        "metrics": {"listen": format!("unix://{}", text(&directory.join("metrics.sock")))},
        "proxy": {
            "directory": directory.join("proxy"),
            "listen": {"socket": directory.join("sandbox/proxy.sock"), "mode": "0666"},
            "tls": {"listen": "127.0.0.1:0"},
            "audit": {"file": directory.join("proxy-audit")},
            "metrics": {"listen": format!("unix://{}", text(&directory.join("proxy-metrics.sock")))},
        },
    })
}

fn rules(verbs: &[&str]) -> Value {
    json!([
        {"name": "own", "peers": {"uids": [0]}, "allow": {"providers": ["*"], "verbs": ["watch", "report", "admin", "proxy"]}},
        {"name": "agents", "peers": {"uids": [USER]}, "allow": {"providers": ["admin"], "verbs": verbs}},
    ])
}

pub(crate) fn handle(socket: &Path, prefix: &[&str], target: &str) -> Output {
    let words = [prefix, &[PROGRAM, "shim", "--proxy", target, "--socket", text(socket)]].concat();
    Command::new(words[0]).args(&words[1..]).env_remove("KUBERNETES_EXEC_INFO").output().unwrap()
}

/// curl with `prefix` before it; the last line of its output is the code.
pub(crate) fn curl(prefix: &[&str], arguments: &[&str]) -> Output {
    let words = [prefix, &["curl", "-sS", "-m", "20", "-w", "\n%{http_code}"], arguments].concat();
    let mut output = Command::new(words[0]).args(&words[1..]).output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let (body, code) = stdout.rsplit_once('\n').unwrap_or(("", &stdout));
    output.stderr = [code.as_bytes(), b" ", &output.stderr].concat();
    output.stdout = body.as_bytes().to_vec();
    output
}

fn code(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).split(' ').next().unwrap().to_owned()
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Asks until there is an answer.
pub(crate) fn until<T>(ask: impl Fn() -> Option<T>) -> T {
    let deadline = Instant::now() + AGES;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "in time");
        std::thread::yield_now();
    }
}
