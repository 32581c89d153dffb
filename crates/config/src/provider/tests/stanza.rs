use super::*;
use crate::{
    problem::{Problem, Report},
    schema::Dialect,
};
use credbroker_credential::document::{Aliases, yaml};

fn read(text: &str, dialect: Dialect, accepts_v1alpha1: bool) -> (Option<Provider>, Report) {
    let node = yaml(text.as_bytes(), Aliases::Follow).unwrap();
    let report = Report::default();
    let fields = Cursor::new(Path::new("/etc/x/f"), dialect, &node, &report).fields(exec::SECTION.names);
    let broker = Environment::default();
    let (pass_env, caller_env) = (Globs::default(), Globs::default());
    let variables = Variables { broker: &broker, pass_env, caller_env, are_of_kubeconfig: false };
    let stanza = fields.and_then(|fields| stanza(&fields, accepts_v1alpha1, "p", &variables));
    (stanza, report)
}

fn problems(text: &str) -> String {
    let (stanza, report) = read(text, Dialect::Strict, false);
    assert!(stanza.is_none());
    report.findings.borrow().problems.iter().map(shown).collect::<Vec<_>>().join("\n")
}

fn shown(problem: &Problem) -> String {
    problem.to_string().replace("/etc/x/", "")
}

const PLAIN: &str = "apiVersion: client.authentication.k8s.io/v1beta1\ncommand: plugin\n";

#[test]
fn a_pasted_stanza_is_read() {
    let text = r#"
apiVersion: client.authentication.k8s.io/v1
command: ./bin/plugin
args: [--flag, "two words", ""]
env: [{name: A, value: "1"}, {name: A, value: "2"}, {name: B}]
provideClusterInfo: true
interactiveMode: IfAvailable
installHint: "Install \e[31mit"
"#;
    let (stanza, report) = read(text, Dialect::Strict, false);
    assert!(
        report.findings.borrow().problems.is_empty() && report.findings.borrow().warnings.is_empty(),
        "{report:?}"
    );
    let stanza = stanza.unwrap();
    assert_eq!(stanza.api_version, ApiVersion::V1);
    assert_eq!(stanza.command, Command::Path("/etc/x/bin/plugin".into()));
    assert_eq!(stanza.args, ["--flag", "two words", ""]);
    let env = stanza.env.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    assert_eq!(env.collect::<Vec<_>>(), [("A", "1"), ("A", "2"), ("B", "")]);
    assert!(stanza.provide_cluster_info);
    assert_eq!(stanza.interactive, Interactive::IfAvailable);
    assert_eq!(stanza.install_hint.as_deref(), Some("Install U+001B[31mit"));
}

#[test]
fn all_that_is_missing_is_reported_together() {
    insta::assert_snapshot!(problems("env: [{value: x}]"), @r"
f:1:1: apiVersion must be specified: `client.authentication.k8s.io/v1` or `client.authentication.k8s.io/v1beta1`
f:1:1: command must be specified: the name or the path of the plugin
f:1:7: env[0]: env variable name must be specified
");
    insta::assert_snapshot!(problems("apiVersion: client.authentication.k8s.io/v1\ncommand: x\n"), @"f:1:1: interactiveMode must be specified: `Never`, `IfAvailable` or `Always`");
    insta::assert_snapshot!(problems("apiVersion: ''\ncommand: ''\ninteractiveMode: ''\n"), @r"
f:1:1: apiVersion must be specified: `client.authentication.k8s.io/v1` or `client.authentication.k8s.io/v1beta1`
f:1:1: command must be specified: the name or the path of the plugin
");
}

#[test]
fn all_that_is_wrong_is_reported_together() {
    insta::assert_snapshot!(problems(
        "apiVersion: client.authentication.k8s.io/v2\ncommand: [x]\nargs: -x\nenv: {A: b}\nprovideClusterInfo: 'yes'\ninteractiveMode: never\ninstalHint: x\n"
    ), @r"
f:7:1: unknown key `instalHint`, did you mean `installHint`?
f:1:13: apiVersion: must be one of `client.authentication.k8s.io/v1`, `client.authentication.k8s.io/v1beta1`
f:2:10: command: expected a string, found a list
f:3:7: args: expected a list, found a string
f:4:6: env: expected a list, found a map
f:5:21: provideClusterInfo: expected a boolean, found a string
f:6:18: interactiveMode: must be one of `Never`, `IfAvailable`, `Always`, not `never`
");
}

#[test]
fn a_yaml_1_1_boolean_is_not_text() {
    insta::assert_snapshot!(problems(&format!("{PLAIN}args: [-n, on]\nenv: [{{name: A, value: y}}]\n")), @r"
f:3:12: args[1]: expected a string, found a boolean; put it in quotes
f:4:24: env[0].value: expected a string, found a boolean; put it in quotes
");
}

#[test]
fn a_command_with_a_separator_is_a_path_and_one_without_is_a_name() {
    let table = [
        ("plugin", Command::Name("plugin".into())),
        ("./plugin", Command::Path("/etc/x/plugin".into())),
        ("bin/plugin", Command::Path("/etc/x/bin/plugin".into())),
        ("/bin/plugin", Command::Path("/bin/plugin".into())),
        ("../bin//./plugin", Command::Path("/etc/bin/plugin".into())),
        ("/opt/link/../bin/plugin", Command::Path("/opt/bin/plugin".into())),
    ];
    for (command, expected) in table {
        let text = format!("apiVersion: client.authentication.k8s.io/v1beta1\ncommand: {command}\n");
        assert_eq!(read(&text, Dialect::Strict, false).0.unwrap().command, expected);
    }
}

#[test]
fn v1alpha1_needs_the_providers_word() {
    let text = "apiVersion: client.authentication.k8s.io/v1alpha1\ncommand: x\n";
    assert!(problems(text).contains("acceptV1alpha1"));
    let (stanza, _) = read(text, Dialect::Strict, true);
    assert_eq!(stanza.unwrap().api_version, ApiVersion::V1Alpha1);
}

#[test]
fn whether_a_plugin_reads_a_terminal_is_read_unless_the_host_overrides_it() {
    for (mode, expected) in [
        ("interactiveMode: Always", Interactive::Always),
        ("interactiveMode: IfAvailable", Interactive::IfAvailable),
        ("interactiveMode: Never", Interactive::Never),
        ("", Interactive::IfAvailable),
    ] {
        let text = format!("{PLAIN}{mode}\n");
        let (stanza, report) = read(&text, Dialect::Strict, false);
        assert_eq!(stanza.unwrap().interactive, expected);
        assert!(report.findings.borrow().warnings.is_empty());
        let (stanza, _) = read(&text, Dialect::Stock, false);
        assert_eq!(stanza.unwrap().interactive, Interactive::Never);
    }
}

#[test]
fn a_denied_variable_is_dropped_with_a_warning() {
    let text = format!("{PLAIN}env: [{{name: LD_PRELOAD, value: canary}}, {{name: A, value: b}}]\n");
    let (stanza, report) = read(&text, Dialect::Strict, false);
    assert_eq!(stanza.unwrap().env, [("A".to_owned(), "b".to_owned())]);
    insta::assert_snapshot!(shown(report.findings.borrow().warnings.first().unwrap()), @"f:3:7: env[0]: plugins never get `LD_PRELOAD`; remove it");
}

#[test]
fn unknown_keys_of_a_kubeconfig_belong_to_others() {
    let (stanza, report) = read(&format!("{PLAIN}future: 1\n"), Dialect::Kubeconfig, false);
    assert!(
        stanza.is_some()
            && report.findings.borrow().problems.is_empty()
            && report.findings.borrow().warnings.is_empty()
    );
}
