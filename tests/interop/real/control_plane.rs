//! What `tests/interop/controlplane` starts, as a test uses it.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use credbroker_test_support::{FakePlugin, Kubeconfig};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    kubectl::{Kubectl, newest_api_version, stdout},
    programs::shim_stanza,
};

const PROFILES: &str = "/apis/multicluster.x-k8s.io/v1alpha1";

/// A control plane, and a namespace in it that no other test uses.
pub(super) struct ControlPlane {
    folder: PathBuf,
    pub(super) namespace: String,
    /// It ends with the test.
    own: Option<TempDir>,
}

impl ControlPlane {
    /// The one that the variable names. `None`: the test is skipped.
    pub(super) fn shared() -> Option<Self> {
        let Some(folder) = std::env::var_os("CREDBROKER_CONTROLPLANE") else {
            let name = std::thread::current().name().unwrap_or_default().to_owned();
            // The test harness shows what a macro prints only if the test fails.
            let skipped = format!("SKIPPED: {name}: run it with: tests/interop/run.sh controlplane\n");
            std::io::stderr().write_all(skipped.as_bytes()).unwrap();
            return None;
        };
        Some(Self::at(PathBuf::from(folder), None))
    }

    /// Another one, which the test can stop.
    pub(super) fn own() -> Option<Self> {
        Self::shared()?;
        let directory = tempfile::tempdir().unwrap();
        let folder = directory.path().to_owned();
        script("start.sh", &folder, &[]);
        Some(Self::at(folder, Some(directory)))
    }

    fn at(folder: PathBuf, own: Option<TempDir>) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let plane = Self { folder, namespace: format!("test-{}-{count}", std::process::id()), own };
        let namespace = json!({"metadata": {"name": plane.namespace}});
        plane.admin("POST", "/api/v1/namespaces", &namespace);
        plane
    }

    /// Ends the API server, and starts it again with the data it had.
    pub(super) fn stop_api_server(&self) {
        script("stop.sh", &self.folder, &["kube-apiserver"]);
    }

    pub(super) fn start_api_server(&self) {
        script("start.sh", &self.folder, &[]);
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.file(name)).unwrap()
    }

    fn url(&self) -> String {
        self.read("server").trim().to_owned()
    }

    /// A request of the administrator, which has to succeed.
    #[track_caller]
    pub(super) fn admin(&self, method: &str, path: &str, body: &Value) -> Value {
        let file = |name: &str| self.file(name);
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--fail-with-body", "--noproxy", "*", "--max-time", "30"]);
        curl.arg("--cacert").arg(file("ca.pem")).arg("--cert").arg(file("admin.pem"));
        curl.arg("--key").arg(file("admin.key")).args(["--request", method]);
        if !body.is_null() {
            let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
            curl.args(["--header", &format!("Content-Type: {kind}"), "--data", &body.to_string()]);
        }
        let output = curl.arg(self.url() + path).output().unwrap();
        let answer = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{method} {path}: {answer}");
        serde_json::from_str(&answer).unwrap()
    }

    /// The path of ClusterProfiles, or of the one with this name.
    fn profile_path(&self, name: &str) -> String {
        let path = format!("{PROFILES}/namespaces/{}/clusterprofiles", self.namespace);
        if name.is_empty() { path } else { format!("{path}/{name}") }
    }

    /// Creates a ClusterProfile without a status.
    pub(super) fn create_profile(&self, name: &str, labels: &Value) {
        self.admin("POST", &self.profile_path(""), &self.profile(name, labels));
    }

    /// Creates many.
    pub(super) fn create_profiles(&self, names: &[String]) {
        let items: Vec<_> = names.iter().map(|name| self.profile(name, &json!({}))).collect();
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
        let create = ["create", "--validate=false", "--output", "name", "--filename", "-"];
        let kubeconfig = self.file("admin.kubeconfig");
        let created = stdout(&Kubectl::new().run_with_stdin(&kubeconfig, &create, &list));
        assert_eq!(created.lines().count(), names.len());
    }

    fn profile(&self, name: &str, labels: &Value) -> Value {
        json!({
            "apiVersion": "multicluster.x-k8s.io/v1alpha1",
            "kind": "ClusterProfile",
            "metadata": {"name": name, "namespace": self.namespace, "labels": labels},
            "spec": {"clusterManager": {"name": "manager"}},
        })
    }

    /// Says in its status that the cluster is this one, for the provider `cloud`, whose plugin gets `CLUSTER=user`.
    pub(super) fn report(&self, name: &str, user: &str) {
        let envs = json!({
            "name": "clusterprofiles.multicluster.x-k8s.io/exec/additional-envs",
            "extension": {"CLUSTER": user},
        });
        let mut cluster = self.cluster();
        cluster["extensions"] = json!([envs]);
        let status = json!({"accessProviders": [{"name": "cloud", "cluster": cluster}]});
        self.admin("PATCH", &format!("{}/status", self.profile_path(name)), &json!({"status": status}));
    }

    pub(super) fn label_profile(&self, name: &str, labels: &Value) {
        self.admin("PATCH", &self.profile_path(name), &json!({"metadata": {"labels": labels}}));
    }

    pub(super) fn delete_profile(&self, name: &str) {
        self.admin("DELETE", &self.profile_path(name), &Value::Null);
    }

    pub(super) fn cluster(&self) -> Value {
        let authority = STANDARD.encode(self.read("ca.pem"));
        json!({"server": self.url(), "certificate-authority-data": authority})
    }

    /// A kubeconfig for it, of this user.
    pub(super) fn kubeconfig(&self, path: &Path, user: &Value) {
        let config = Kubeconfig::new().cluster("real", &self.cluster()).user("user", user);
        config.context("real", "real", "user").write(path);
    }

    /// A kubectl whose kubeconfig `config` runs the shim for `provider`.
    pub(super) fn kubectl(&self, provider: &str, socket: &Path) -> (Kubectl, PathBuf) {
        let kubectl = Kubectl::new();
        let kubeconfig = kubectl.dir().join("config");
        let stanza = shim_stanza(newest_api_version(), provider, socket);
        self.kubeconfig(&kubeconfig, &json!({"exec": stanza}));
        (kubectl, kubeconfig)
    }

    /// A plugin that issues a credential to `user`, a word of the shell, for `seconds`.
    pub(super) fn plugin(&self, kind: &str, user: &str, seconds: u32) -> FakePlugin {
        let plugin = program("plugin");
        let arguments = format!("'{}' {kind} {user} admins {seconds}", self.folder.display());
        FakePlugin::script(&format!("exec '{}' {arguments}", plugin.display()))
    }

    /// Revokes all tokens of `user`.
    pub(super) fn revoke_tokens_of(&self, user: &str) {
        for token in fs::read_dir(self.file("tokens")).unwrap().map(|entry| entry.unwrap().path()) {
            if token.file_name().unwrap().to_str().unwrap().starts_with(&format!("{user}-")) {
                fs::remove_file(token).unwrap();
            }
        }
    }

    /// How many reviews ended with this verdict, such as `expired ann`.
    pub(super) fn verdicts(&self, verdict: &str) -> usize {
        self.read("reviews.log").lines().filter(|line| line.ends_with(verdict)).count()
    }

    /// How often `user` has listed ClusterProfiles, as the API server saw it.
    pub(super) fn lists_by(&self, user: &str) -> usize {
        let is_list = |line: &&str| {
            let event: Value = serde_json::from_str(line).unwrap();
            event["user"]["username"] == user
                && event["verb"] == "list"
                && event["objectRef"]["resource"] == "clusterprofiles"
        };
        self.read("audit.log").lines().filter(is_list).count()
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        if self.own.is_some() {
            script("stop.sh", &self.folder, &[]);
        }
    }
}

/// Who the API server says that this kubectl is: `kubectl auth whoami`, which kubectl has only since 1.28.
#[track_caller]
pub(super) fn whoami(kubectl: &Kubectl, kubeconfig: &Path, context: &str) -> String {
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let arguments = ["--context", context, "create", "--raw", path, "--filename", "-"];
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let answer = stdout(&kubectl.run_with_stdin(kubeconfig, &arguments, &review.to_string()));
    let answer: Value = serde_json::from_str(&answer).unwrap();
    answer["status"]["userInfo"]["username"].as_str().unwrap().to_owned()
}

fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop/controlplane").join(name)
}

#[track_caller]
fn script(name: &str, folder: &Path, arguments: &[&str]) {
    let mut command = Command::new(program(name));
    let output = command.arg(folder).args(arguments).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
}
