use std::{fs, os::unix::fs::PermissionsExt as _};

use credbroker_test_support::private_directory;
use tempfile::TempDir;

use super::*;
use crate::config::kubeconfig::is_shim;

/// A directory with kubeconfigs and a shim.
struct Place(TempDir);

impl Place {
    fn new(files: &[(&str, &str)]) -> Self {
        let place = Self(private_directory());
        for (name, text) in files {
            place.write(name, text);
        }
        place.write("bin/credbroker-exec", "");
        place.write("bin/credbroker", "");
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::write(self.path(name), text).unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o700)).unwrap();
    }

    fn args(&self, file: &str) -> WrapArgs {
        WrapArgs { kubeconfig: Some(self.path(file)), output: None, socket: None, server_uid: None }
    }

    /// Exit code and standard output, in which `~` is the directory.
    fn run(&self, args: &WrapArgs, variables: &[(&str, &str)], shim: &str) -> (u8, String) {
        let mut out = Vec::new();
        let socket = self.path("no-broker.sock");
        let socket = ("CREDBROKER_SOCKET", socket.to_str().unwrap());
        let environment = variables.iter().copied().chain([socket]).collect();
        let code = run(args, &environment, &self.path(shim), &mut out).unwrap();
        (code, masked(&String::from_utf8(out).unwrap()).replace(self.0.path().to_str().unwrap(), "~"))
    }

    fn wrapped(&self, file: &str) -> String {
        let (code, text) = self.run(&self.args(file), &[], "bin/credbroker-exec");
        assert_eq!(code, 0);
        text
    }
}

/// Digests depend on the directory.
fn masked(text: &str) -> String {
    let is_digest = |item: &str| item.len() == 40 && item.bytes().all(|byte| byte.is_ascii_hexdigit());
    let masked = |line: &str| match line.split_once("- ") {
        Some((indent, item)) if is_digest(item.trim_matches('"')) => format!("{indent}- DIGEST\n"),
        _ => format!("{line}\n"),
    };
    text.lines().map(masked).collect()
}

const MINIMAL: &str =
    "users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: x}}}]";

/// Something of everything.
const FULL: &str = r#"apiVersion: v1
kind: Config
current-context: eks
preferences: {}
future: {a: [1, "y"]}
clusters:
- name: eks
  cluster: {server: "https://eks:443", certificate-authority: pki/ca.pem, future: true}
- name: "on"
  cluster: {server: https://other, certificate-authority-data: Y2E=}
contexts:
- {name: eks, context: {cluster: eks, user: eks, namespace: default}}
users:
- name: eks
  user:
    exec:
      apiVersion: client.authentication.k8s.io/v1beta1
      command: ./bin/plugin
      args: [eks, get-token]
      env: [{name: AWS_PROFILE, value: prod}]
      installHint: "Install: \"aws\""
      provideClusterInfo: false
      interactiveMode: IfAvailable
      future: kept
- {name: "arn:aws:eks:eu:1:cluster/x y", user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: aws, interactiveMode: Never}}}
- {name: cert, user: {client-certificate: c.pem, client-key: ../k.pem}}
- {name: token, user: {tokenFile: t, future: 1.5}}
- {name: shim, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: ./credbroker-exec, args: [--provider, other], interactiveMode: IfAvailable}}}
- {name: broken, user: {exec: {command: aws}}}
- {name: nothing}
"#;

#[test]
fn exec_users_ask_the_shim_and_all_else_means_what_it_meant() {
    let place = Place::new(&[("kube/config", FULL)]);
    insta::assert_snapshot!(place.wrapped("kube/config"), @r#"
apiVersion: v1
kind: Config
current-context: eks
preferences: {}
future:
  a:
  - 1
  - "y"
clusters:
- name: eks
  cluster:
    server: https://eks:443
    certificate-authority: ~/kube/pki/ca.pem
    future: true
- name: "on"
  cluster:
    server: https://other
    certificate-authority-data: Y2E=
contexts:
- name: eks
  context:
    cluster: eks
    user: eks
    namespace: default
users:
- name: eks
  user:
    exec:
      apiVersion: client.authentication.k8s.io/v1beta1
      installHint: "Install: \"aws\""
      future: kept
      command: ~/bin/credbroker-exec
      args:
      - --provider
      - eks
      - --definition
      - DIGEST
      - --api-version
      - v1beta1
      provideClusterInfo: true
      interactiveMode: Never
- name: arn:aws:eks:eu:1:cluster/x y
  user:
    exec:
      apiVersion: client.authentication.k8s.io/v1
      command: ~/bin/credbroker-exec
      args:
      - --provider
      - arn:aws:eks:eu:1:cluster/x y
      - --definition
      - DIGEST
      - --api-version
      - v1
      provideClusterInfo: true
      interactiveMode: Never
- name: cert
  user:
    client-certificate: ~/kube/c.pem
    client-key: ~/kube/../k.pem
- name: token
  user:
    tokenFile: ~/kube/t
    future: 1.5
- name: shim
  user:
    exec:
      apiVersion: client.authentication.k8s.io/v1
      command: ~/kube/credbroker-exec
      args:
      - --provider
      - other
      interactiveMode: IfAvailable
- name: broken
  user:
    exec:
      command: aws
- name: nothing
"#);
}

#[test]
fn a_list_becomes_one_file_in_which_the_first_definition_wins() {
    let user = "user: {exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: ";
    let one = format!(
        "users:\n- name: u\n  {user}one, installHint: one}}}}\ncurrent-context: \"\"\npreferences: {{colors: true}}\n"
    );
    let two = format!(
        "users:\n- name: u\n  {user}two, installHint: two}}}}\n- {{name: file, user: {{tokenFile: t}}}}\ncontexts: [{{name: c, context: {{user: u}}}}]\ncurrent-context: c\npreferences: {{colors: false, other: 1}}\n"
    );
    let place = Place::new(&[("one/config", &one), ("two/config", &two)]);
    let list =
        ["one/config", "absent", "two/config"].map(|name| place.path(name).display().to_string()).join(":");
    let args = WrapArgs { kubeconfig: None, output: None, socket: None, server_uid: None };
    let (code, text) = place.run(&args, &[("KUBECONFIG", &list)], "bin/credbroker-exec");
    assert_eq!(code, 0);
    insta::assert_snapshot!(text, @r"
apiVersion: v1
kind: Config
users:
- name: u
  user:
    exec:
      apiVersion: client.authentication.k8s.io/v1beta1
      installHint: one
      command: ~/bin/credbroker-exec
      args:
      - --provider
      - u
      - --definition
      - DIGEST
      - --api-version
      - v1beta1
      provideClusterInfo: true
      interactiveMode: Never
- name: file
  user:
    tokenFile: ~/two/t
current-context: c
preferences:
  colors: true
  other: 1
contexts:
- name: c
  context:
    user: u
");
}

#[test]
fn what_is_wrapped_stays_as_it_is_when_wrapped_again() {
    let place = Place::new(&[("config", MINIMAL)]);
    let once = place.wrapped("config");
    place.write("once", &once.replace('~', place.0.path().to_str().unwrap()));
    assert_eq!(place.wrapped("once"), once);
    let kubeconfig = config::read_kubeconfig(&[place.path("once")], Mode::Named).unwrap();
    assert!(kubeconfig.users().iter().all(|user| is_shim(user.body.get("exec").unwrap())));
}

#[test]
fn the_shim_is_named_so_that_it_is_found_from_everywhere() {
    let place = Place::new(&[("config", MINIMAL)]);
    let bin = place.path("bin").display().to_string();
    let args = place.args("config");
    let on_path = place.run(&args, &[("PATH", &bin)], "bin/credbroker-exec").1;
    assert!(on_path.contains("command: credbroker-exec\n"), "{on_path}");
    let beside = place.run(&args, &[("PATH", "/nowhere")], "bin/credbroker-exec").1;
    assert!(beside.contains("command: ~/bin/credbroker-exec\n"), "{beside}");
    let inner = place.run(&args, &[], "bin/credbroker").1;
    assert!(
        inner.contains("~/bin/credbroker\n") && inner.contains("- shim\n      - --provider\n"),
        "{inner}"
    );
    let error = run(&args, &Environment::default(), &place.path("absent"), &mut Vec::new()).unwrap_err();
    assert!(error.to_string().contains("install it"), "{error}");
}

#[test]
fn a_socket_that_is_given_is_given_to_the_shim() {
    let place = Place::new(&[("config", MINIMAL)]);
    for (socket, expected) in [("/run/x.sock", "/run/x.sock"), ("unix:///run/x.sock", "unix:///run/x.sock")] {
        let args = WrapArgs { socket: Some(socket.to_owned()), ..place.args("config") };
        let text = place.run(&args, &[], "bin/credbroker-exec").1;
        assert!(text.contains(&format!("- --socket\n      - {expected}\n")), "{text}");
    }
    let args = WrapArgs { server_uid: Some("2001".to_owned()), ..place.args("config") };
    let text = place.run(&args, &[], "bin/credbroker-exec").1;
    assert!(text.contains("- --server-uid\n      - \"2001\"\n"), "{text}");
    let args = WrapArgs { socket: Some("x.sock".to_owned()), ..place.args("config") };
    let text = place.run(&args, &[], "bin/credbroker-exec").1;
    assert!(text.contains("/x.sock\n") && !text.contains("- x.sock"), "{text}");
}

#[test]
fn an_output_file_is_written_and_the_input_never() {
    let place = Place::new(&[("config", MINIMAL)]);
    let args = WrapArgs { output: Some(place.path("out")), ..place.args("config") };
    let (code, summary) = place.run(&args, &[], "bin/credbroker-exec");
    assert_eq!(code, 0);
    insta::assert_snapshot!(summary, @r"
~/out: 1 user requests its credential from the broker: u
Use it with `KUBECONFIG=~/out kubectl …`.
No broker is running. Add `kubeconfigs: [~/config]` to its configuration, or if it has none set KUBECONFIG=~/config for it and start it.
");
    let out = fs::read_to_string(place.path("out")).unwrap();
    assert_eq!(masked(&out).replace(place.0.path().to_str().unwrap(), "~"), place.wrapped("config"));
    let args = WrapArgs { output: Some(place.path("config")), ..place.args("config") };
    assert!(
        run(&args, &Environment::default(), &place.path("bin/credbroker-exec"), &mut Vec::new()).is_err()
    );
    assert_eq!(fs::read_to_string(place.path("config")).unwrap(), MINIMAL);
}

#[test]
fn nothing_to_wrap_is_a_bad_configuration() {
    let place = Place::new(&[
        ("none", "users: [{name: u, user: {token: t}}]"),
        ("broken", "users: ["),
        ("broken-user", "users: [{name: u, user: {exec: {command: x}}}]"),
    ]);
    for file in ["none", "broken", "broken-user", "absent"] {
        assert_eq!(place.run(&place.args(file), &[], "bin/credbroker-exec"), (78, String::new()), "{file}");
    }
}

#[test]
fn a_socket_address_that_the_shim_would_refuse_is_refused() {
    let place = Place::new(&[("config", MINIMAL)]);
    for socket in ["", "unix://relative"] {
        let args = WrapArgs { socket: Some(socket.to_owned()), ..place.args("config") };
        let shim = place.path("bin/credbroker-exec");
        let error = run(&args, &Environment::default(), &shim, &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("not a valid socket address"), "{error}");
    }
}
