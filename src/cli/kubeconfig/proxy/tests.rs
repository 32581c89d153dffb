use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use credbroker_config::{self as config, OwnContext, kubeconfig::Mode};
use credbroker_plugin::Environment;
use credbroker_proto::{
    Reason,
    v1::{ClusterState, ContextRef},
};
use credbroker_proxy::KnownTarget;
use credbroker_test_support::{private_directory, private_file, program_file};
use tempfile::TempDir;

use super::*;
use crate::cli::{
    broker::SocketArg,
    clusters::tests::fleet::{FakeBroker, Fleet, fleet, ready, unusable},
    console::{fail, tests::console},
};

const PLUGIN: &str =
    "{exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/plugin, interactiveMode: Never}}";

/// A user with kubeconfigs.
struct Person(TempDir);

#[derive(Debug)]
struct Ran {
    code: u8,
    out: String,
    err: String,
}

impl Person {
    /// With the contexts `prod`, whose user has a plugin, and `kind/a`, whose user has a token, in the kubeconfig `own`.
    fn new() -> Self {
        let person = Self(private_directory());
        person.write(
            "own",
            &format!(
                "clusters: [{{name: c, cluster: {{server: https://c}}}}]\n\
                 users: [{{name: dev, user: {PLUGIN}}}, {{name: robot, user: {{token: c4n4ry}}}}]\n\
                 contexts:\n\
                 - {{name: prod, context: {{cluster: c, user: dev, namespace: shop}}}}\n\
                 - {{name: kind/a, context: {{cluster: c, user: robot}}}}\n\
                 current-context: kind/a\n"
            ),
        );
        program_file(&person.path("bin/credbroker-exec"), "");
        person.configured("own");
        person
    }

    fn path(&self, name: &str) -> PathBuf {
        let path = self.0.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }

    fn write(&self, name: &str, text: &str) {
        private_file(&self.path(name), text);
    }

    /// The broker's configuration names these kubeconfigs.
    fn configured(&self, kubeconfigs: &str) {
        let run = self.path("run");
        let proxy = format!("proxy: {{directory: {}}}\nkubeconfigs: [{kubeconfigs}]\n", run.display());
        self.write(
            "config.yaml",
            &format!("apiVersion: credbroker.io/v1alpha1\nkind: BrokerConfig\n{proxy}"),
        );
    }

    fn contexts(&self, name: &str) -> Vec<OwnContext> {
        let kubeconfig = config::read_kubeconfig(&[self.path(name)], Mode::Named).unwrap();
        config::own_contexts(&kubeconfig, Mode::Ambient, &Environment::default())
    }

    /// A broker that reads the kubeconfig `name`, and clusters besides.
    fn broker(&self, name: &str, clusters: Fleet) -> FakeBroker {
        let contexts = self.contexts(name).into_iter().map(|own| ClusterState {
            context: Some(ContextRef { name: own.id.name.to_string(), digest: own.id.digest.to_string() }),
            ..ready("https://c")
        });
        FakeBroker::of(Fleet {
            clusters: clusters.clusters.into_iter().chain(contexts).collect(),
            ..clusters
        })
    }

    fn args(&self, broker: &FakeBroker) -> ProxyArgs {
        let socket = SocketArg { path: Some(broker.socket().into()), ..SocketArg::default() };
        ProxyArgs {
            kubeconfig: None,
            output: None,
            force: false,
            api_version: "v1".to_owned(),
            bare: true,
            config: Some(self.path("config.yaml")),
            broker: BrokerArgs { socket, ..BrokerArgs::default() },
        }
    }

    fn runs(&self, args: &ProxyArgs, kubeconfig: &str) -> anyhow::Result<Ran> {
        let list = std::env::join_paths(kubeconfig.split(':').map(|name| self.path(name))).unwrap();
        let bin = self.path("bin");
        let environment: Environment =
            [("PATH", bin.to_str().unwrap()), ("KUBECONFIG", list.to_str().unwrap())].into_iter().collect();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let code = run(args, &mut console(&environment, &mut out, &mut err))?;
        let text = |bytes| String::from_utf8(bytes).unwrap().replace(self.0.path().to_str().unwrap(), "~");
        Ok(Ran { code, out: text(out), err: text(err) })
    }
}

fn no_fleet() -> Fleet {
    Fleet { hub: None, ..fleet([]) }
}

/// The digits of a digest differ between machines, because they cover the path of the file.
fn without_digits(person: &Person, text: &str) -> String {
    person
        .contexts("own")
        .iter()
        .fold(text.to_owned(), |text, own| text.replace(&own.id.digest[..12], "DIGEST"))
}

#[test]
fn each_context_keeps_its_name_and_namespace_and_each_cluster_is_one() {
    let person = Person::new();
    let broker = person.broker("own", fleet([("fleet/paris", ready("https://paris"))]));
    let ran = person.runs(&person.args(&broker), "own").unwrap();
    assert_eq!(ran.code, 0);
    insta::assert_snapshot!(without_digits(&person, &ran.out), @r"
    apiVersion: v1
    kind: Config
    clusters:
    - name: prod
      cluster:
        server: https://127.0.0.1:9465/contexts/prod-DIGEST
        certificate-authority: ~/run/ca.crt
    - name: kind/a
      cluster:
        server: https://127.0.0.1:9465/contexts/kind-a-DIGEST
        certificate-authority: ~/run/ca.crt
    - name: fleet/paris
      cluster:
        server: https://127.0.0.1:9465/clusters/fleet/paris
        certificate-authority: ~/run/ca.crt
    contexts:
    - name: prod
      context:
        cluster: prod
        user: prod
        namespace: shop
    - name: kind/a
      context:
        cluster: kind/a
        user: kind/a
    - name: fleet/paris
      context:
        cluster: fleet/paris
        user: fleet/paris
    users:
    - name: prod
      user:
        exec:
          apiVersion: client.authentication.k8s.io/v1
          command: credbroker-exec
          args:
          - --proxy
          - /contexts/prod-DIGEST
          - --socket
          - ~/run/handles.sock
          - --api-version
          - v1
          provideClusterInfo: false
          interactiveMode: Never
          installHint: The user of this kubeconfig gets a handle from credbroker's proxy, through credbroker-exec. Install credbroker, or if it is installed at another place now, write the kubeconfig again.
    - name: kind/a
      user:
        exec:
          apiVersion: client.authentication.k8s.io/v1
          command: credbroker-exec
          args:
          - --proxy
          - /contexts/kind-a-DIGEST
          - --socket
          - ~/run/handles.sock
          - --api-version
          - v1
          provideClusterInfo: false
          interactiveMode: Never
          installHint: The user of this kubeconfig gets a handle from credbroker's proxy, through credbroker-exec. Install credbroker, or if it is installed at another place now, write the kubeconfig again.
    - name: fleet/paris
      user:
        exec:
          apiVersion: client.authentication.k8s.io/v1
          command: credbroker-exec
          args:
          - --proxy
          - /clusters/fleet/paris
          - --socket
          - ~/run/handles.sock
          - --api-version
          - v1
          provideClusterInfo: false
          interactiveMode: Never
          installHint: The user of this kubeconfig gets a handle from credbroker's proxy, through credbroker-exec. Install credbroker, or if it is installed at another place now, write the kubeconfig again.
    extensions:
    - name: credbroker.io/proxy
      extension: {}
    current-context: kind/a
    ");
    insta::assert_snapshot!(ran.err, @r"
    credbroker: 3 contexts go through the proxy at https://127.0.0.1:9465
    credbroker: No proxy has run since the last boot, because there is no ~/run/ca.crt. Start it: `credbroker proxy`, or `credbroker serve --proxy` if no broker runs.
    ");
}

#[test]
fn a_file_is_written_for_its_owner_and_again_but_not_over_a_foreign_one_or_an_input() {
    let person = Person::new();
    let at = person.path("proxy");
    let args = |broker: &FakeBroker| ProxyArgs { output: Some(at.clone()), ..person.args(broker) };
    let broker = || person.broker("own", no_fleet());
    let written = || fs::read_to_string(&at).unwrap();
    let ran = person.runs(&args(&broker()), "own").unwrap();
    insta::assert_snapshot!(ran.out, @r"
    ~/proxy: 2 contexts go through the proxy at https://127.0.0.1:9465
    Use it with `kubectl --kubeconfig ~/proxy --context prod …`.
    No proxy has run since the last boot, because there is no ~/run/ca.crt. Start it: `credbroker proxy`, or `credbroker serve --proxy` if no broker runs.
    ");
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert_eq!(fs::metadata(&at).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!written().contains("c4n4ry"));
    let first = written();

    // As people use it: the new kubeconfig is the one of the shell, and the user has chosen another context.
    private_file(&at, &first.replace("current-context: kind/a", "current-context: prod"));
    let ran = person.runs(&args(&broker()), "proxy").unwrap();
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(written(), first.replace("current-context: kind/a", "current-context: prod"));

    let mine = first.replace("users:\n", "users:\n- name: me\n  user:\n    token: t\n");
    for foreign in ["precious", "users: []", &mine] {
        private_file(&at, foreign);
        let error = person.runs(&args(&broker()), "own").unwrap_err().to_string();
        assert!(error.contains("`credbroker kubeconfig proxy` did not write"), "{error}");
        assert_eq!(written(), foreign);
    }
    let broker = broker();
    person.runs(&ProxyArgs { force: true, ..args(&broker) }, "own").unwrap();
    assert_eq!(written(), first);

    let broker = person.broker("own", no_fleet());
    let onto_input = ProxyArgs { output: Some(person.path("own")), force: true, ..person.args(&broker) };
    let error = person.runs(&onto_input, "own").unwrap_err().to_string();
    assert!(error.contains("is one of the kubeconfigs that were read"), "{error}");
}

#[test]
fn what_the_broker_does_not_know_or_cannot_use_is_named_and_skipped() {
    let person = Person::new();
    let mut other = fs::read_to_string(person.path("own")).unwrap();
    for (name, new) in
        [("prod", "fleet/rome"), ("kind/a", "x"), ("dev", "me"), ("robot", "bot"), (": c,", ": mine,")]
    {
        other = other.replace(name, new);
    }
    person.write("other", &other);
    let mut states = fleet([
        ("fleet/oslo", unusable(Reason::NoMatchingProvider, "it lists `aks`")),
        ("fleet/rome", ready("https://rome")),
        ("fleet/bonn", ready("")),
    ]);
    for own in person.contexts("own") {
        let context = Some(ContextRef { name: own.id.name.to_string(), digest: own.id.digest.to_string() });
        let state = if &*own.id.name == "prod" {
            ready("https://c")
        } else {
            unusable(Reason::NoMatchingProvider, "no\nkey")
        };
        states.clusters.push(ClusterState { context, ..state });
    }
    let broker = FakeBroker::of(states);
    let Ran { code, out, err } = person.runs(&person.args(&broker), "other:own").unwrap();
    assert_eq!((code, out.matches("- name: ").count()), (0, 4), "{out}");
    insta::assert_snapshot!(err, @r"
    credbroker: skipped fleet/rome: the broker does not know it
    credbroker: skipped x: the broker does not know it
    credbroker: skipped kind/a: no key
    credbroker: skipped fleet/bonn: its ClusterProfile names no server
    credbroker: skipped fleet/oslo: it lists `aks` (NO_MATCHING_PROVIDER)
    credbroker: skipped fleet/rome: a context has the same name
    credbroker: the broker does not read the kubeconfigs of 2 contexts; name them in `kubeconfigs` of its configuration, or with --kubeconfig the one that it reads
    credbroker: 1 context goes through the proxy at https://127.0.0.1:9465
    credbroker: No proxy has run since the last boot, because there is no ~/run/ca.crt. Start it: `credbroker proxy`, or `credbroker serve --proxy` if no broker runs.
    ");
}

/// `credbroker kubeconfig wrap` writes a copy, which the broker does not read.
#[test]
fn a_context_of_a_copy_is_that_of_the_original_only_if_it_means_the_same() {
    let person = Person::new();
    let own = fs::read_to_string(person.path("own")).unwrap();
    let routes_of = |copy: &str| {
        person.write("copy", copy);
        let broker = person.broker("own", no_fleet());
        person.runs(&person.args(&broker), "copy").unwrap()
    };
    let digest = person.contexts("own")[0].id.digest.to_string();
    let ran = routes_of(&own.replace("namespace: shop", "namespace: mine"));
    assert!(ran.out.contains(&format!("/contexts/prod-{}", &digest[..12])), "{ran:?}");
    assert!(ran.out.contains("namespace: mine\n"), "{ran:?}");
    // A token of another file can be of another identity.
    assert!(ran.err.contains("skipped kind/a: the broker does not know it"), "{ran:?}");
    for another in [own.replace("/bin/plugin", "/bin/other"), own.replace("https://c", "https://d")] {
        let ran = routes_of(&another);
        assert!(ran.err.contains("skipped prod: the broker does not know it"), "{ran:?}");
    }
}

#[test]
fn other_files_of_the_configuration_add_contexts_unless_one_kubeconfig_is_named() {
    let person = Person::new();
    person.configured("own");
    person.write("mine", "contexts: [{name: prod, context: {cluster: mine, user: me}}]");
    let broker = person.broker("own", no_fleet());
    // The name `prod` is that of another context for kubectl, which a cluster must not take.
    let ran = person.runs(&person.args(&broker), "mine").unwrap();
    assert!(ran.out.contains("/contexts/kind-a-") && !ran.out.contains("/contexts/prod-"), "{ran:?}");
    assert!(ran.err.contains("skipped prod:"), "{ran:?}");

    let broker = person.broker("own", no_fleet());
    let named = ProxyArgs { kubeconfig: Some(person.path("mine")), ..person.args(&broker) };
    let ran = person.runs(&named, "own").unwrap();
    assert_eq!((ran.code, ran.out.as_str()), (1, ""));
    assert!(ran.err.contains("no context of ~/mine is known to the broker, and no cluster"), "{ran:?}");
}

#[test]
fn a_shell_that_uses_the_kubeconfig_of_the_proxy_learns_how_to_write_it_again() {
    let person = Person::new();
    let broker = person.broker("own", no_fleet());
    let written = person.runs(&person.args(&broker), "own").unwrap();
    person.write("ours", &written.out);
    let broker = person.broker("own", no_fleet());
    let named = ProxyArgs { kubeconfig: Some(person.path("ours")), ..person.args(&broker) };
    let ran = person.runs(&named, "ours").unwrap();
    assert_eq!((ran.code, ran.out.as_str()), (1, ""));
    assert!(
        ran.err.contains(
            "the contexts of ~/ours use the proxy already; run the command with `env -u KUBECONFIG`"
        ),
        "{ran:?}"
    );
}

#[test]
fn the_path_of_a_context_is_readable_bounded_and_url_safe() {
    let path = |name: &str| {
        let digest = "0123456789abcdef".repeat(3);
        KnownTarget::Context { name: name.to_owned(), digest, provider: None }.path()
    };
    assert_eq!(path("Prod"), "/contexts/prod-0123456789ab");
    assert_eq!(path("arn:aws:eks:1:cluster/prod"), "/contexts/arn-aws-eks-1-cluster-prod-0123456789ab");
    assert_eq!(path("../é\u{1b}%2f?#"), "/contexts/2f-0123456789ab");
    assert_eq!(path("  "), "/contexts/context-0123456789ab");
    assert_eq!(path(&"a".repeat(500)).len(), "/contexts/-0123456789ab".len() + 40);
}

#[test]
fn without_a_broker_it_ends_as_the_shim_does() {
    let person = Person::new();
    let socket = SocketArg { path: Some("/nonexistent/broker.sock".into()), ..SocketArg::default() };
    let broker = BrokerArgs { socket, ..BrokerArgs::default() };
    let args = ProxyArgs { broker, ..person.args(&person.broker("own", no_fleet())) };
    assert_eq!(fail(&person.runs(&args, "own").unwrap_err(), &mut Vec::new()), 69);
    assert!(!Path::new("/nonexistent").exists());
}

#[test]
fn an_old_kubectl_is_spoken_to_in_its_own_version() {
    let person = Person::new();
    let broker = person.broker("own", no_fleet());
    let args = ProxyArgs { api_version: "v1beta1".to_owned(), ..person.args(&broker) };
    let text = person.runs(&args, "own").unwrap().out;
    assert!(text.contains("apiVersion: client.authentication.k8s.io/v1beta1\n"), "{text}");
    assert!(text.contains("--api-version\n") && text.contains("v1beta1\n"), "{text}");
}

/// Any name is one context, one cluster and one user, for every reader of YAML.
#[test]
fn odd_names_are_read_back_as_they_are() {
    let names = ["on", "1", "a: b - #c", "\"q\"\\n", "é\u{1f511}\u{85}\u{2028}", "{}["];
    let routes = names.map(|name| routes::Route {
        name: name.to_owned(),
        namespace: String::new(),
        path: "/contexts/x-000000000000".to_owned(),
    });
    let place = Place::at(([127, 0, 0, 1], 1).into(), Path::new("/run/p"));
    let shim = credbroker_config::kubeconfig::Shim {
        command: "credbroker-exec".into(),
        is_subcommand: false,
        flags: vec![],
    };
    let person = Person::new();
    person.write("odd", &yaml(&kubeconfig(&routes, &place, &shim, "v1")).unwrap());
    let read = config::read_kubeconfig(&[person.path("odd")], Mode::Named).unwrap();
    assert_eq!(read.context_names(), names);
    let clusters = read.files[0].root.get("clusters").unwrap().to_json();
    for (name, route) in names.iter().zip(&routes) {
        let user = read.user_of(name).unwrap();
        assert!(user.name == route.name && goes_through(user.body.get("exec").unwrap()), "{name}");
        let cluster = clusters.as_array().unwrap().iter().find(|cluster| cluster["name"] == *name).unwrap();
        assert_eq!(cluster["cluster"]["server"], format!("https://127.0.0.1:1{}", route.path));
    }
}
