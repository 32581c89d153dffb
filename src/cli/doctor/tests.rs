use credbroker_plugin::{Command, Definition, Environment, Globs, Provider, testing::provider};
use serde_json::json;

use super::{
    accounts::{not_sent, not_taken},
    *,
};

#[test]
fn each_finding_is_a_line_with_its_remedy_below_and_the_first_error_decides() {
    let mut findings = Findings::default();
    findings.or("socket", GOOD, || "/run/x.sock".to_owned());
    findings.add("clock", WARNING, "it is not synchronized", "start a time service");
    findings.or("clock", GOOD, || "synchronized".to_owned());
    assert_eq!(findings.exit_code(), 0);
    findings.add("kubeconfig", BAD_CONFIG, "\x1b[31mbroken\n", "repair it");
    findings.add("plugins", BAD, "missing", "");
    assert_eq!(findings.exit_code(), 78);
    insta::assert_snapshot!(findings.text(), @r"
    ok       socket         /run/x.sock
    warning  clock          it is not synchronized
                            -> start a time service
    error    kubeconfig     U+001B[31mbroken
                            -> repair it
    error    plugins        missing
    ");
    let document = findings.document();
    assert_eq!(
        (&document["findings"][1]["level"], &document["findings"][3]["remedy"]),
        (&json!("warning"), &json!(null))
    );
}

/// Of the variables that laptop users set, each that a brokered plugin does not get as one that runs directly.
#[test]
fn variables_that_may_select_an_account_and_reach_no_plugin_are_named() {
    let names = "SCW_PROFILE HCLOUD_CONTEXT AWS_PROFILE GRANTED_SSO CIVO_TOKEN LINODE_CLI_TOKEN RANCHER_TOKEN KUBECACHEDIR
        XDG_CONFIG_HOME SSL_CERT_FILE HTTPS_PROXY HOME MY_VAR ITERM_PROFILE GITHUB_TOKEN PROJECT_DIR";
    let names: Vec<_> = names.split_whitespace().chain(["CREDBROKER_CALLER_ENV"]).collect();
    let environment: Environment =
        names.iter().map(|name| (*name, "RANCHER_*")).chain([("X_PROFILE", "")]).collect();
    let of = |name: &str, caller_env: &[&str]| Provider {
        caller_env: Globs::new(caller_env),
        ..provider(name, Command::Name("x".into()))
    };
    let definition = Some(Definition::new("/k".into(), "scw", "0"));
    let kubeconfig = Provider { definition, ..of("scw", &["AWS_*", "RANCHER_TOKEN"]) };
    let brokers = Provider { refuses_other_identities: false, ..of("brokers", &[]) };
    let set = Provider { env: vec![("SCW_PROFILE".into(), "x".into())], ..of("set", &["*"]) };
    let providers = [kubeconfig, brokers, set, of("eks", &["AWS_*"])];
    assert_eq!(not_sent(&environment), ["CIVO_TOKEN", "GRANTED_SSO", "LINODE_CLI_TOKEN", "XDG_CONFIG_HOME"]);
    let not_taken = providers.each_ref().map(|provider| not_taken(&environment, provider).join(" "));
    assert_eq!(not_taken, ["", "", "HCLOUD_CONTEXT", "HCLOUD_CONTEXT SCW_PROFILE"]);
}

#[test]
fn an_http_proxy_matters_only_if_no_list_has_the_loopback_address() {
    let found = |variables: &[(&str, &str)]| {
        let environment: Environment = variables.iter().copied().collect();
        let (running, loaded) = (None, config::load(Some(Path::new("/absent")), &environment));
        let mut checks = Checks { environment: &environment, running, loaded, findings: Findings::default() };
        checks.http_proxy();
        checks.findings.text()
    };
    assert_eq!(found(&[("NO_PROXY", "x"), ("HTTPS_PROXY", "")]), "");
    insta::assert_snapshot!(found(&[("https_proxy", "http://c4n4ry@corp:3128")]), @r"
    warning  HTTP proxy     https_proxy is set, and the kubeconfig uses 127.0.0.1: Python's client, kube-rs and fabric8 send their requests to that HTTP proxy; versions 34.1 and 35.0 of Python's client `kubernetes` ignore NO_PROXY
                            -> run `export NO_PROXY=127.0.0.1`, and install another version instead of 34.1 and 35.0
    ");
    insta::assert_snapshot!(found(&[("HTTPS_PROXY", "http://corp"), ("NO_PROXY", ".corp,10.0.0.0/8")]), @r"
    warning  HTTP proxy     HTTPS_PROXY is set, and the kubeconfig uses 127.0.0.1: Python's client, kube-rs and fabric8 send their requests to that HTTP proxy; versions 34.1 and 35.0 of Python's client `kubernetes` ignore NO_PROXY
                            -> run `export NO_PROXY=.corp,10.0.0.0/8,127.0.0.1`, and install another version instead of 34.1 and 35.0
    ");
    insta::assert_snapshot!(found(&[("HTTP_PROXY", "a"), ("HTTPS_PROXY", "b"), ("no_proxy", "127.0.0.0/8")]), @r"
    note     HTTP proxy     HTTPS_PROXY is set, and the kubeconfig uses 127.0.0.1: versions 34.1 and 35.0 of Python's client `kubernetes` ignore NO_PROXY
                            -> if you have one of these, install another version, or run it with `env -u HTTPS_PROXY -u HTTP_PROXY`
    ");
}
