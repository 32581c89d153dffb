//! `credbroker kubeconfig proxy` and `credbroker shell`: the real commands, a real broker, and a hub.

use std::{
    fs,
    os::unix::{fs::PermissionsExt as _, process::ExitStatusExt as _},
    path::Path,
    process::{Command, Output, Stdio},
};

use credbroker_config::{
    self as config,
    kubeconfig::{Kubeconfig as Read, Mode},
};
use credbroker_test_support::{Accepts, ApiServer, Broker, FakePlugin, Home, Kubeconfig};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

const PROGRAM: &str = env!("CARGO_BIN_EXE_credbroker");

/// A user whose broker has contexts with a plugin and with a token, and a hub with one cluster.
struct Person {
    home: Home,
    broker: Broker,
    _hub: ApiServer,
}

impl Person {
    fn new() -> Self {
        let (home, hub) = (Home::own(), ApiServer::start(Accepts::Either));
        hub.accept_token("hub");
        let profile = json!({"spec": {"clusterManager": {"name": "m"}}, "status": {"accessProviders": [
            {"name": "cloud", "cluster": {"server": "https://paris.example"}}]}});
        hub.apply_cluster_profile("fleet", "paris", profile);
        let of_hub = Kubeconfig::new().cluster_of(&hub, "hub").user("hub", &json!({"token": "hub"}));
        home.write("hub", of_hub.context("hub", "hub", "hub").to_yaml(), 0o600);
        let plugin = FakePlugin::builder().token("c4n4ry").expires_in(3600).build();
        let own = Kubeconfig::new()
            .cluster("c", &json!({"server": "https://c.example"}))
            .exec_user("dev", &plugin.exec_stanza())
            .user("robot", &json!({"token": "c4n4ry"}))
            .context("Prod EU", "c", "dev")
            .context("kind", "c", "robot");
        let own =
            own.to_yaml().replace("      user: \"dev\"\n", "      user: \"dev\"\n      namespace: shop\n");
        home.write("own", own, 0o600);
        fs::create_dir_all(home.path("proxy")).unwrap();
        let config = json!({
            "apiVersion": "credbroker.io/v1alpha1",
            "kind": "BrokerConfig",
            "providers": [{"name": "cloud", "execConfig": plugin.exec_stanza()}],
            "kubeconfigs": [home.path("own")],
            "clusterProfiles": {"kubeconfig": home.path("hub")},
            "proxy": {"directory": home.path("proxy"), "tls": {"listen": "127.0.0.1:7443"}},
        });
        home.write("config.yaml", config.to_string(), 0o600);
        let broker = Broker::builder(PROGRAM).config(&config.to_string()).start();
        let person = Self { home, broker, _hub: hub };
        // The hub is read after the start.
        while !String::from_utf8_lossy(&person.run(&["clusters"]).stdout).contains("fleet/paris") {}
        person
    }

    /// The proxy has run.
    fn with_authority(self) -> Self {
        self.home.write("proxy/ca.crt", "", 0o444);
        self
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.home.command(PROGRAM);
        let path = std::env::var_os("PATH").unwrap();
        command.args(args).env("CREDBROKER_SOCKET", self.broker.socket()).env("PATH", path);
        command
            .env("CREDBROKER_CONFIG", self.home.path("config.yaml"))
            .env("KUBECONFIG", self.home.path("own"));
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// `credbroker shell CONTEXT -- sh -c SCRIPT`.
    fn in_shell(&self, context: &str, script: &str) -> Output {
        self.run(&["shell", context, "--", "sh", "-c", script])
    }
}

/// What a command that succeeded printed on stderr.
fn text_of_success(output: &Output) -> String {
    let err = text(&output.stderr);
    assert!(output.status.success(), "{err}");
    err
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The server, the authority and the namespace of each context, as client-go would use them.
fn contexts(path: &Path) -> Vec<[String; 4]> {
    let read: Read = config::read_kubeconfig(&[path.to_owned()], Mode::Named).unwrap();
    let root = &read.files[0].root;
    let of = |list: &str, name: &str, body: &str| {
        let items = root.get(list).unwrap().as_sequence().unwrap();
        let is_it =
            |item: &&credbroker_credential::document::Node| item.get("name").unwrap().as_str() == Some(name);
        items.iter().find(is_it).unwrap().get(body).unwrap().to_json()
    };
    let each = |name: String| {
        let context = of("contexts", &name, "context");
        let cluster = of("clusters", context["cluster"].as_str().unwrap(), "cluster");
        let field = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let user = read.user_of(&name).unwrap().body.to_json();
        assert!(user.as_object().unwrap().keys().eq(["exec"]), "{user}");
        let namespace = field(&context["namespace"]);
        [name, field(&cluster["server"]), field(&cluster["certificate-authority"]), namespace]
    };
    read.context_names().into_iter().map(each).collect()
}

#[test]
fn the_kubeconfig_leads_all_contexts_and_clusters_to_the_proxy() {
    let person = Person::new();
    let at = person.home.path("through");
    let output = person.run(&["kubeconfig", "proxy", "-o", at.to_str().unwrap()]);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success() && err.is_empty(), "{err}");
    assert!(out.contains("3 contexts go through the proxy at https://127.0.0.1:7443\n"), "{out}");
    assert!(out.contains("No proxy has run since the last boot"), "{out}");
    assert_eq!(fs::metadata(&at).unwrap().permissions().mode() & 0o777, 0o600);
    let written = fs::read_to_string(&at).unwrap();
    assert!(!written.contains("c4n4ry"), "{written}");
    assert!(written.contains("current-context: Prod EU\n"), "{written}");

    // The digits are the broker's own.
    let listed: serde_json::Value =
        serde_json::from_slice(&person.run(&["clusters", "--contexts", "-o", "json"]).stdout).unwrap();
    let digits = |name: &str| {
        let all = listed["contexts"].as_array().unwrap();
        let context = all.iter().find(|context| context["name"] == name).unwrap();
        context["digest"].as_str().unwrap()[..12].to_owned()
    };
    let authority = person.home.path("proxy/ca.crt").to_str().unwrap().to_owned();
    let server = "https://127.0.0.1:7443";
    let expected = [
        ("Prod EU", format!("{server}/contexts/prod-eu-{}", digits("Prod EU")), "shop"),
        ("kind", format!("{server}/contexts/kind-{}", digits("kind")), ""),
        ("fleet/paris", format!("{server}/clusters/fleet/paris"), ""),
    ];
    let expected = expected
        .map(|(name, server, namespace)| [name.to_owned(), server, authority.clone(), namespace.to_owned()]);
    assert_eq!(contexts(&at), expected);

    // Used instead of the original, it is written again with the same contents.
    let mut again = person.command(&["kubeconfig", "proxy", "-o", at.to_str().unwrap()]);
    let output = again.env("KUBECONFIG", &at).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(fs::read_to_string(&at).unwrap(), written);

    let output = person.command(&["get"]).env("KUBECONFIG", &at).output().unwrap();
    assert!(text(&output.stderr).contains("context `Prod EU` goes through the proxy"), "{output:?}");
    let doctor = || {
        let mut doctor = person.command(&["doctor"]);
        doctor.env("KUBECONFIG", &at).env("HTTPS_PROXY", "http://c4n4ry@corp:3128").env("COLUMNS", "400");
        text(&doctor.output().unwrap().stdout)
    };
    let (found, handles) = (doctor(), person.home.path("proxy/handles.sock"));
    let problem = format!("no proxy answers on {}, for these users of", handles.display());
    assert!(found.contains(&problem) && found.contains("warning  HTTP proxy"), "{found}");
    let _proxy = std::os::unix::net::UnixListener::bind(handles).unwrap();
    let found = doctor();
    assert!(
        found.contains("go through the proxy: Prod EU, kind") && found.contains("warning  HTTP proxy"),
        "{found}"
    );
    assert!(!found.contains("c4n4ry"), "{found}");
}

#[test]
fn a_broker_without_a_fleet_has_contexts() {
    let person = Person::new();
    let text = fs::read_to_string(person.home.path("config.yaml")).unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&text).unwrap();
    config.as_object_mut().unwrap().remove("clusterProfiles");
    let broker = Broker::builder(PROGRAM).config(&config.to_string()).start();
    let mut command = person.command(&["kubeconfig", "proxy"]);
    let output = command.env("CREDBROKER_SOCKET", broker.socket()).output().unwrap();
    let err = text_of_success(&output);
    assert!(err.contains("credbroker: 2 contexts go through the proxy"), "{err}");
}

#[test]
fn a_shell_sees_one_context_and_leaves_nothing_behind() {
    let person = Person::new().with_authority();
    fs::create_dir_all(person.home.path("run")).unwrap();
    let copy = person.home.path("copy");
    let script = format!(
        "cp \"$KUBECONFIG\" {}; stat -c %a \"$KUBECONFIG\" \"$(dirname \"$KUBECONFIG\")\"; echo \"$KUBECONFIG\" \"$CREDBROKER_SHELL\"; exit 7",
        copy.display()
    );
    let output = person.in_shell("Prod EU", &script);
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
    let out = text(&output.stdout);
    let lines: Vec<_> = out.lines().collect();
    assert_eq!(lines[..2], ["600", "700"]);
    let file = lines[2].strip_suffix(" Prod EU").unwrap();
    assert!(Path::new(file).starts_with(person.home.path("run")) && !Path::new(file).exists(), "{file}");
    assert_eq!(fs::read_dir(person.home.path("run")).unwrap().count(), 0);
    let [context] = &contexts(&copy)[..] else { panic!("{out}") };
    assert_eq!((context[0].as_str(), context[3].as_str()), ("Prod EU", "shop"));
    assert!(fs::read_to_string(&copy).unwrap().contains("current-context: Prod EU\n"));
    insta::assert_snapshot!(text(&output.stderr), @r"
    credbroker: this command sees only context `Prod EU`, through the proxy at https://127.0.0.1:7443
    credbroker: it stops accidents, not a process of your user, which can go around it
    ");

    let output = person.in_shell("fleet/paris", "cat \"$KUBECONFIG\"");
    assert!(
        text(&output.stdout).contains("server: https://127.0.0.1:7443/clusters/fleet/paris\n"),
        "{output:?}"
    );
}

#[test]
fn the_exit_code_is_that_of_the_command_and_signals_reach_it() {
    let person = Person::new().with_authority();
    assert_eq!(person.in_shell("kind", "kill -9 $$").status.code(), Some(128 + 9));
    assert_eq!(person.run(&["shell", "kind", "--", "credbroker-absent"]).status.code(), Some(127));
    assert_eq!(person.run(&["shell", "kind", "--", "/"]).status.code(), Some(126));
    // Without a command it is the user's shell.
    let own = person.command(&["shell", "kind"]).env("SHELL", "/bin/false").output().unwrap();
    assert_eq!(own.status.code(), Some(1));
    assert!(text(&own.stderr).contains("`exit` leaves it"), "{own:?}");

    let script = "trap 'echo got; exit 5' TERM; echo ready; while :; do read -r line || exit 6; done";
    let mut command = person.command(&["shell", "kind", "--", "sh", "-c", script]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let stdin = child.stdin.take();
    let mut ready = [0; 6];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    let output = child.wait_with_output().unwrap();
    drop(stdin);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(5), "got\n"), "{output:?}");
    assert_eq!(output.status.signal(), None);
}

#[test]
fn a_shell_in_a_shell_and_a_shell_without_a_proxy_or_a_context_are_refused() {
    let person = Person::new();
    let refused = |output: Output| {
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(1), &b""[..]), "{output:?}");
        text(&output.stderr).replace(person.home.directory().to_str().unwrap(), "~")
    };
    let mut all = refused(person.in_shell("kind", "echo in"));
    person.home.write("proxy/ca.crt", "", 0o444);
    all += &refused(person.in_shell("absent", "echo in"));
    let mut nested = person.command(&["shell", "kind", "--", "echo", "in"]);
    all += &refused(nested.env("CREDBROKER_SHELL", "prod\n").output().unwrap());
    insta::assert_snapshot!(all, @r"
    credbroker: No proxy has run since the last boot, because there is no ~/proxy/ca.crt. Start it: `credbroker proxy`, or `credbroker serve --proxy` if no broker runs.
    credbroker: context `absent` does not go through the proxy: neither your kubeconfigs nor the fleet have it
    credbroker: this is a shell of context `prod\n` already; leave it with `exit` first
    ");
}
