mod place;

use std::{fs, os::unix::fs::PermissionsExt as _};

use self::place::{FULL, MINIMAL, Place, masked};
use super::*;
use crate::cli::broker::SocketArg;

fn at(path: Option<std::ffi::OsString>, broker_uid: Option<std::ffi::OsString>) -> BrokerArgs {
    BrokerArgs { socket: SocketArg { path, broker_uid }, ..BrokerArgs::default() }
}

#[test]
fn exec_users_ask_the_shim_and_all_else_means_what_it_meant() {
    let place = Place::new(&[("kube/config", FULL)]);
    insta::assert_snapshot!(place.wrapped(&place.args("kube/config")), @r#"
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
      command: ~/bin/credbroker-exec
      args:
      - --provider
      - eks
      - --api-version
      - v1beta1
      - --env
      - AWS_PROFILE
      - --was
      - provideClusterInfo=false
      - --
      - ~/kube/bin/plugin
      - eks
      - get-token
      env:
      - name: AWS_PROFILE
        value: prod
      installHint: "Install: \"aws\""
      provideClusterInfo: true
      interactiveMode: IfAvailable
      future: kept
- name: arn:aws:eks:eu:1:cluster/x y
  user:
    exec:
      apiVersion: client.authentication.k8s.io/v1
      command: ~/bin/credbroker-exec
      interactiveMode: Never
      args:
      - --provider
      - arn:aws:eks:eu:1:cluster/x y
      - --api-version
      - v1
      - --was
      - provideClusterInfo=absent
      - --was
      - args=absent
      - --
      - aws
      provideClusterInfo: true
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
    let all = WrapArgs::default();
    let (code, text, _) = place.try_run(&all, &[("KUBECONFIG", &list)], "bin/credbroker-exec").unwrap();
    assert_eq!(code, 0);
    for (part, count) in [
        ("- name: u\n", 1),
        ("installHint: one\n", 1),
        ("    tokenFile: ~/two/t\n", 1),
        ("\ncurrent-context: c\npreferences:\n  colors: true\n  other: 1\n", 1),
        ("contexts:\n- name: c\n  context:\n    user: u\n", 1),
    ] {
        assert_eq!(text.matches(part).count(), count, "{part}: {text}");
    }
}

#[test]
fn what_is_wrapped_stays_as_it_is_when_wrapped_again() {
    let place = Place::new(&[("config", MINIMAL)]);
    place.run(&place.to_out());
    place.write("once", &place.text("out"));
    place.run(&WrapArgs { output: Some(place.path("twice")), ..place.args("once") });
    assert!(place.text("once").contains("/bin/credbroker-exec"), "{}", place.text("once"));
    assert_eq!(place.text("twice"), place.text("once"));
}

#[test]
fn a_copy_keeps_its_current_context_and_what_it_has_alone_is_not_overwritten() {
    let contexts =
        "contexts: [{name: a, context: {user: u}}, {name: b, context: {user: u}}]\ncurrent-context: a\n";
    let place = Place::new(&[("config", &format!("{MINIMAL}\n{contexts}"))]);
    place.run(&place.to_out());
    let chosen = place.text("out").replace("current-context: a", "current-context: b");
    place.write("out", &chosen);
    place.run(&place.to_out());
    assert!(place.text("out").contains("current-context: b\n"), "{}", place.text("out"));
    place.write("out", &chosen.replace("name: b", "name: mine\n  context:\n    user: u\n- name: b"));
    assert!(place.refusal(&place.to_out()).contains("--force"));
    assert!(place.text("out").contains("name: mine"));
}

#[test]
fn the_shim_is_named_so_that_it_is_found_from_everywhere() {
    let place = Place::new(&[("config", MINIMAL)]);
    let bin = place.path("bin").display().to_string();
    let run = |args: &WrapArgs, variables: &[(&str, &str)], shim: &str| {
        place.try_run(args, variables, shim).map(|(_, out, _)| out)
    };
    let args = place.args("config");
    let on_path = run(&args, &[("PATH", &bin)], "absent").unwrap();
    assert!(on_path.contains("command: ~/bin/credbroker-exec\n"), "{on_path}");
    let bare = run(&WrapArgs { bare: true, ..place.args("config") }, &[], "absent").unwrap();
    assert!(bare.contains("command: credbroker-exec\n"), "{bare}");
    let beside = run(&args, &[("PATH", "/nowhere")], "bin/credbroker-exec").unwrap();
    assert!(beside.contains("command: ~/bin/credbroker-exec\n"), "{beside}");
    let inner = run(&args, &[], "bin/credbroker").unwrap();
    assert!(
        inner.contains("~/bin/credbroker\n") && inner.contains("- shim\n      - --provider\n"),
        "{inner}"
    );
    let error = run(&args, &[], "absent").unwrap_err().to_string();
    assert!(error.contains("install it"), "{error}");
}

#[test]
fn a_socket_that_is_given_is_given_to_the_shim() {
    let place = Place::new(&[("config", MINIMAL)]);
    let with_socket = |path: &str| WrapArgs { broker: at(Some(path.into()), None), ..place.args("config") };
    for socket in ["/run/x.sock", "unix:///run/x.sock"] {
        let text = place.wrapped(&with_socket(socket));
        assert!(text.contains(&format!("- --socket\n      - {socket}\n")), "{text}");
    }
    let text = place.wrapped(&with_socket("x.sock"));
    assert!(text.contains("/x.sock\n") && !text.contains("- x.sock"), "{text}");
    for socket in ["", "unix://relative"] {
        let error = place.refusal(&with_socket(socket));
        assert!(error.contains("not a valid socket address"), "{error}");
    }
    let broker = at(None, Some("2001".into()));
    let text = place.wrapped(&WrapArgs { broker, ..place.args("config") });
    assert!(text.contains("- --broker-uid\n      - \"2001\"\n"), "{text}");
}

#[test]
fn a_broker_that_does_not_answer_is_waited_for_as_long_as_the_timeout_says() {
    let place = Place::new(&[("config", MINIMAL)]);
    let _silent = std::os::unix::net::UnixListener::bind(place.path("silent.sock")).unwrap();
    let broker = BrokerArgs {
        timeout: std::time::Duration::from_millis(70),
        ..at(Some(place.path("silent.sock").into()), None)
    };
    let args = WrapArgs { broker, ..place.args("config") };
    let (code, _, said) = place.try_run(&args, &[], "bin/credbroker-exec").unwrap();
    assert_eq!(code, 0, "the copy is whole");
    assert!(said.contains("70ms"), "{said}");
}

#[test]
fn an_output_file_is_written_and_the_input_never() {
    let place = Place::new(&[("config", MINIMAL)]);
    let summary = place.wrapped(&place.to_out());
    insta::assert_snapshot!(summary, @r"
~/out: 1 user requests its credential from the broker: u
Use it with `KUBECONFIG=~/out kubectl …`.
No broker is running. Add `kubeconfigs: [~/config]` to its configuration, or if it has none set KUBECONFIG=~/config for it and start it.
");
    let out = masked(&place.text("out")).replace(place.0.path().to_str().unwrap(), "~");
    assert_eq!(out, place.wrapped(&place.args("config")));
    place.refusal(&WrapArgs { output: Some(place.path("config")), ..place.args("config") });
    assert_eq!(place.text("config"), MINIMAL);
}

#[test]
fn nothing_to_wrap_is_a_bad_configuration() {
    let place = Place::new(&[
        ("none", "users: [{name: u, user: {token: t}}]"),
        ("broken", "users: ["),
        ("broken-user", "users: [{name: u, user: {exec: {command: x}}}]"),
    ]);
    for file in ["none", "broken", "broken-user", "absent"] {
        let (code, out, _) = place.run(&place.args(file));
        assert_eq!((code, out.as_str()), (78, ""), "{file}");
    }
}

#[test]
fn a_file_of_another_program_is_not_overwritten_and_a_link_is_followed_with_a_word() {
    let place = Place::new(&[("config", MINIMAL)]);
    for text in ["precious", "users: []", "users: [{name: other, user: {exec: {command: credbroker-exec}}}]"]
    {
        place.write("out", text);
        let error = place.refusal(&place.to_out());
        assert!(error.contains("`credbroker kubeconfig wrap` did not write"), "{error}");
        assert_eq!(place.text("out"), text);
    }
    place.run(&WrapArgs { force: true, ..place.to_out() });
    assert!(place.text("out").contains("credbroker-exec"));
    let mode = fs::metadata(place.path("out")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    std::os::unix::fs::symlink("out", place.path("link")).unwrap();
    let said = place.wrapped(&WrapArgs { output: Some(place.path("link")), ..place.args("config") });
    assert!(said.contains("~/link is a symbolic link; its target was written: ~/out\n"), "{said}");
    assert!(place.path("link").symlink_metadata().unwrap().is_symlink());
}

#[test]
fn a_dash_is_standard_output() {
    let place = Place::new(&[("config", MINIMAL)]);
    let args = WrapArgs { output: Some("-".into()), ..place.args("config") };
    assert_eq!(place.wrapped(&args), place.wrapped(&place.args("config")));
    assert!(!Path::new("-").exists());
}

#[test]
fn a_user_that_the_broker_cannot_serve_stays_as_it_is_with_a_warning() {
    let exec = "apiVersion: client.authentication.k8s.io/v1";
    let users = format!(
        "users:\n- {{name: b, user: {{exec: {{{exec}, command: x, interactiveMode: Never}}}}}}\n- {{name: c, user: {{exec: {{command: pw}}}}}}\n"
    );
    let place = Place::new(&[("config", &users)]);
    let (code, out, err) = place.run(&place.args("config"));
    assert_eq!(code, 0);
    assert!(out.contains("command: pw\n"), "{out}");
    let warnings: Vec<_> = err.lines().filter(|line| !line.starts_with("credbroker: No broker")).collect();
    assert!(!warnings.is_empty() && warnings.iter().all(|line| line.contains("warning: ")), "{err}");
}

/// With `Never`, kubectl gives the shim no terminal that it could lend to the plugin.
#[test]
fn a_user_whose_plugin_may_read_stdin_has_a_shim_with_a_terminal() {
    for (api, mode, expected) in [
        ("v1", "interactiveMode: Always", "IfAvailable"),
        ("v1", "interactiveMode: IfAvailable", "IfAvailable"),
        ("v1", "interactiveMode: Never", "Never"),
    ] {
        let exec = format!("{{apiVersion: client.authentication.k8s.io/{api}, command: pw, {mode}}}");
        let place = Place::new(&[("config", &format!("users: [{{name: a, user: {{exec: {exec}}}}}]\n"))]);
        let (code, out, err) = place.run(&place.args("config"));
        assert_eq!((code, out.contains("command: pw")), (0, false), "{out}");
        assert!(out.contains(&format!("interactiveMode: {expected}\n")), "{mode}: {out}");
        assert!(!err.contains("warning"), "{err}");
    }
}
