//! int128/kubelogin and an OIDC issuer: what `docs/logins.md` says of that plugin, with its stanza.
//!
//! `tests/interop/kubelogin/setup.sh` builds both.

mod issuer;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Duration,
};

use credbroker_client::{Client, CredentialRef, ExposeSecret as _, Socket};
use credbroker_test_support::{Accepts, ApiServer, Broker, Kubeconfig, Terminal, private_directory};
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::timeout;

use self::issuer::{Issuer, is_skipped, prepared};
use crate::{
    kubectl::{Kubectl, newest_api_version, stdout},
    programs::{broker, shim_stanza},
    readme::blocks,
};

/// For what has to come on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// The broker of one user, whose kubelogin keeps its tokens in the home directory.
struct Person {
    home: TempDir,
    broker: Broker,
}

impl Person {
    /// With the stanza of the document, changed by `edit`.
    fn new(issuer: &Issuer, edit: impl FnOnce(String) -> String) -> Self {
        let home = private_directory();
        let command = format!("command: {}", prepared("kubectl-oidc_login").display());
        let stanza = blocks("docs/logins.md", "yaml").remove(0);
        let stanza = stanza.replace("https://issuer.example", issuer.url());
        let stanza = edit(stanza.replace("command: kubectl-oidc_login", &command));
        assert!(stanza.contains(issuer.url()) && stanza.contains(&command), "{stanza}");
        let config = format!("apiVersion: credbroker.io/v1alpha1\nkind: BrokerConfig\n{stanza}");
        let broker = Broker::builder(broker()).config(&config).env("HOME", home.path()).start();
        Self { home, broker }
    }

    fn socket(&self) -> PathBuf {
        self.broker.socket()
    }

    /// A command without a terminal.
    fn run(&self, args: &[&str]) -> Output {
        Command::new(broker()).args(args).arg("--socket").arg(self.socket()).env_clear().output().unwrap()
    }

    fn text(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// `credbroker login` at a terminal, until the user has entered the code.
    fn log_in(&self, issuer: &Issuer) {
        let (socket, before) = (self.socket(), issuer.counts()[0]);
        let login = Terminal::start(
            broker(),
            ["login", "oidc"],
            [("CREDBROKER_SOCKET", socket.as_os_str()), ("TERM", "xterm".as_ref())],
        );
        let code = issuer.code_after(before);
        login.wait_for(&code);
        issuer.approve(&code);
        let (status, printed, shown) = login.end();
        assert!(status.success(), "{printed}{shown}");
    }

    /// What `credbroker explain` says of the only credential.
    fn explained(&self) -> Value {
        let mut document: Value =
            serde_json::from_str(&self.text(&["explain", "oidc", "-o", "json"])).unwrap();
        document["credentials"][0].take()
    }

    /// Files in which kubelogin keeps tokens.
    fn caches(&self) -> usize {
        fs::read_dir(self.home.path().join(".kube/cache/oidc-login")).map_or(0, Iterator::count)
    }
}

fn unchanged(stanza: String) -> String {
    stanza
}

async fn rust_client(socket: &Path) -> String {
    let client = Client::connect(&Socket::at(socket)).await.unwrap();
    let credential = client.credential(&CredentialRef::provider("oidc")).await.unwrap();
    credential.token().unwrap().expose_secret().to_owned()
}

/// The prompt reaches everyone who waits; one login serves kubectl, the shim and a Rust client.
#[tokio::test]
async fn one_login_with_a_code_serves_many_commands_and_two_kinds_of_clients() {
    if is_skipped() {
        return;
    }
    let issuer = Issuer::start("1h");
    let person = Person::new(&issuer, unchanged);
    let server = ApiServer::start(Accepts::Tokens);
    let kubectl = Kubectl::new();
    let kubeconfig = kubectl.dir().join("config");
    let stanza = shim_stanza(newest_api_version(), "oidc", &person.socket());
    Kubeconfig::for_server(&server, "prod", &stanza).write(&kubeconfig);

    let (home, config) = (kubectl.dir().as_os_str(), kubeconfig.as_os_str());
    let start = || {
        let variables = [("HOME", home), ("KUBECONFIG", config), ("TERM", "xterm".as_ref())];
        Terminal::start("kubectl", ["get", "pods"], variables)
    };
    let waiting = [start(), start(), start()];
    let code = issuer.code_after(0);
    for terminal in &waiting {
        terminal.wait_for(&format!("Please enter the following code when asked in your browser: {code}"));
        terminal
            .wait_for(&format!("Please visit the following URL in your browser: {}/activate", issuer.url()));
    }
    let token = issuer.prepare(&code);
    server.accept_token(&token);
    issuer.approve(&code);
    for terminal in waiting {
        let (status, printed, shown) = terminal.end();
        assert!(status.success() && printed.contains("web-0"), "{printed}{shown}");
    }
    for _ in 0..5 {
        assert!(stdout(&kubectl.run(&kubeconfig, &["get", "pods"])).contains("web-0"));
    }
    assert_eq!(rust_client(&person.socket()).await, token);
    assert_eq!(server.seen_tokens(), [token]);
    assert_eq!(issuer.counts(), [1, 1, 0], "codes, logins, refreshes");
    assert_eq!(person.explained()["lifetime"]["bound"], "expirationTimestamp");
    assert!(person.caches() > 0, "the tokens are below HOME");
}

/// Ahead of expiry and without a user, while a watch keeps the credential in use.
#[tokio::test]
async fn the_refresh_token_renews_without_a_person() {
    if is_skipped() {
        return;
    }
    let issuer = Issuer::start("24s");
    let person = Person::new(&issuer, unchanged);
    person.log_in(&issuer);
    let followed = credbroker_client::Broker::at(Socket::at(person.socket()));
    let mut source = followed.source(CredentialRef::provider("oidc"));
    let first = source.ready().await.unwrap();
    let renewed = async {
        while source.current().is_none_or(|now| now.generation() == first.generation()) {
            source.changed().await;
        }
    };
    timeout(PATIENCE, renewed).await.expect("a refresh");
    assert_ne!(source.current().unwrap().generation(), first.generation());
    let [codes, logins, refreshes] = issuer.counts();
    assert!((codes, logins) == (1, 1) && refreshes >= 1, "{codes} {logins} {refreshes}");
}

/// Without `--force-refresh`, kubelogin prints its cached token until that has expired.
#[test]
fn without_force_refresh_a_run_returns_the_same_token() {
    if is_skipped() {
        return;
    }
    let issuer = Issuer::start("1h");
    let person = Person::new(&issuer, |stanza| without_line(&stanza, "--force-refresh"));
    person.log_in(&issuer);
    let generation = person.explained()["generation"].clone();
    person.text(&["refresh", "oidc"]);
    assert_eq!((&person.explained()["generation"], issuer.counts()), (&generation, [1, 1, 0]));
    assert_eq!(person.explained()["runs"], 2);
}

/// When the session at the issuer has ended, the plugin prompts. Without a user it does so three times at most.
#[test]
fn after_the_session_has_ended_a_few_prompts_wait_in_vain_and_a_login_helps() {
    if is_skipped() {
        return;
    }
    let issuer = Issuer::start("1h");
    let person = Person::new(&issuer, |stanza| stanza.replace("- name: oidc", "- name: oidc\n  timeout: 5s"));
    person.log_in(&issuer);
    issuer.revoke();
    for _ in 0..3 {
        let output = person.run(&["refresh", "oidc"]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
    }
    let explained = person.explained();
    assert_eq!(explained["nextRun"]["cause"], "loginNeeded", "{explained}");
    assert_eq!(explained["state"], "refreshing", "the last credential is served");
    let codes = issuer.counts()[0];
    person.log_in(&issuer);
    assert_eq!((issuer.counts()[0], issuer.counts()[1]), (codes + 1, 2));
    assert_eq!(person.explained()["nextRun"]["cause"], "refreshPoint");
}

/// The password grant asks for nothing if the stanza has the password.
#[test]
fn a_password_grant_needs_no_terminal() {
    if is_skipped() {
        return;
    }
    let issuer = Issuer::start("1h");
    let person = Person::new(&issuer, |stanza| {
        let grant = "--grant-type=password\n    - --username=jane\n    - --password=correct horse";
        without_line(&stanza.replace("--grant-type=device-code", grant), "--skip-open-browser")
    });
    let token = person.text(&["get", "oidc", "-o", "token"]);
    assert_eq!(person.text(&["get", "oidc", "-o", "token"]), token);
    assert_eq!(issuer.counts(), [0, 1, 0]);
}

fn without_line(text: &str, line: &str) -> String {
    let kept: Vec<_> = text.lines().filter(|kept| !kept.contains(line)).collect();
    assert!(kept.len() < text.lines().count(), "{text}");
    kept.join("\n") + "\n"
}
