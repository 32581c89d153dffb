//! The requests that the broker gets.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    process::{Command, Stdio},
};

use credbroker_proto::v1::{
    Cluster, ClusterProfileRef, ExecPluginCaller, GetCredentialRequest, ProviderRef, credential_ref::Source,
};

use crate::{
    broker::Broker,
    shim::{INFO_V1BETA1, asking, bare, complaint, document, env_of},
};

fn caller_of(request: &GetCredentialRequest) -> ExecPluginCaller {
    request.exec_plugin_caller.clone().unwrap()
}

#[test]
fn the_cluster_is_passed_on_as_the_client_wrote_it() {
    let broker = Broker::with_token("t");
    let config = r#"{"audience" :"a\u003cb", "n": 1.50, "n2": 12345678901234567890123}"#;
    let info = format!(
        concat!(
            r#"  {{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","spec":{{"cluster":{{"#,
            r#""server":"https://c:6443","tls-server-name":"api","insecure-skip-tls-verify":true,"#,
            r#""certificate-authority-data":"LS0tLS0=","proxy-url":"http://u:p@proxy","disable-compression":true,"#,
            r#""config":{},"certificate-authority":"/ignored","extensions":[]}},"interactive":true}}}}"#,
            "\n"
        ),
        config
    );
    document(asking(&broker).env("KUBERNETES_EXEC_INFO", info));
    let request = broker.request();
    let reference = request.r#ref.unwrap();
    assert_eq!(
        reference.source,
        Some(Source::Provider(ProviderRef { name: "gke".into(), definition: None }))
    );
    assert_eq!(
        reference.cluster,
        Some(Cluster {
            server: "https://c:6443".into(),
            tls_server_name: Some("api".into()),
            insecure_skip_tls_verify: true,
            certificate_authority_data: Some("-----".into()),
            proxy_url: Some("http://u:p@proxy".into()),
            disable_compression: true,
            config: Some(config.into()),
        })
    );
}

#[test]
fn without_exec_info_there_is_no_cluster_and_the_request_says_so_beside_the_caller() {
    let broker = Broker::with_token("t");
    document(&mut asking(&broker));
    document(asking(&broker).env("KUBERNETES_EXEC_INFO", ""));
    document(asking(&broker).env("KUBERNETES_EXEC_INFO", INFO_V1BETA1));
    let requests = broker.requests();
    let said: Vec<_> = requests.iter().map(|request| caller_of(request).without_exec_info).collect();
    assert_eq!(said, [true, true, false]);
    assert!(requests.iter().all(|request| request.r#ref.as_ref().unwrap().cluster.is_none()));
    let callers: Vec<_> = requests.iter().map(|request| caller_of(request).id).collect();
    assert_eq!((callers[0].len(), &callers[0]), (16, &callers[1]));
    assert_ne!(callers[0], callers[2]);
}

/// fabric8's client for Java starts its plugin with `sh -c`: each time another shell, which may be the shim's parent.
#[test]
fn the_caller_is_the_client_behind_a_shell_that_runs_one_command() {
    let broker = Broker::with_token("t");
    document(&mut asking(&broker));
    let command = format!("'{}' --provider gke; exit", env!("CARGO_BIN_EXE_credbroker-exec"));
    for _ in 0..2 {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", &command]).env_clear().env("CREDBROKER_SOCKET", broker.socket());
        document(shell.stdin(Stdio::null()));
    }
    let callers: Vec<_> = broker.requests().iter().map(|request| caller_of(request).id).collect();
    assert_eq!(callers, [(); 3].map(|()| callers[0].clone()));
}

/// Clients in JavaScript and Java set no `KUBERNETES_EXEC_INFO`.
#[test]
fn the_server_of_the_flag_is_sent_unless_the_client_names_one() {
    let broker = Broker::with_token("t");
    let ask = |info: &str| {
        let mut shim = bare(&["--cluster-profile", "fleet/eu-1", "--server", "https://flag:6443"]);
        document(shim.env("CREDBROKER_SOCKET", broker.socket()).env("KUBERNETES_EXEC_INFO", info));
        broker.requests().pop().unwrap().r#ref.unwrap().cluster.map(|cluster| cluster.server)
    };
    assert_eq!(ask("").as_deref(), Some("https://flag:6443"));
    let info =
        r#"{"apiVersion":"client.authentication.k8s.io/v1","spec":{"cluster":{"server":"https://client"}}}"#;
    assert_eq!(ask(info).as_deref(), Some("https://client"));
}

#[test]
fn the_caller_is_the_process_that_started_the_shim_and_its_cluster() {
    let broker = Broker::with_token("t");
    let caller = |server: &str| {
        let info = format!(
            r#"{{"apiVersion":"client.authentication.k8s.io/v1","spec":{{"cluster":{{"server":"{server}"}}}}}}"#
        );
        document(asking(&broker).env("KUBERNETES_EXEC_INFO", info));
        caller_of(&broker.requests().pop().unwrap()).id
    };
    let first = caller("https://a");
    assert_eq!((first.len(), &first), (16, &caller("https://a")), "as long as this process lives");
    assert_ne!(first, caller("https://b"));
}

#[test]
fn a_cluster_profile_is_asked_for_by_namespace_and_name() {
    let broker = Broker::with_token("t");
    document(bare(&["--cluster-profile", "fleet/eu-1"]).env("CREDBROKER_SOCKET", broker.socket()));
    let profile = ClusterProfileRef { namespace: "fleet".into(), name: "eu-1".into() };
    assert_eq!(broker.request().r#ref.unwrap().source, Some(Source::ClusterProfile(profile)));
}

#[test]
fn only_variables_that_select_an_identity_are_sent() {
    let broker = Broker::with_token("t");
    let mut command = asking(&broker);
    command.env("AWS_PROFILE", "dev").env("CLOUDSDK_CONFIG", "/c").env("KUBECONFIG", "/k").env("HOME", "/h");
    command.env("MY_TENANT", "x").env("CREDBROKER_CALLER_ENV", "MY_*, OTHER");
    document(&mut command);
    let expected = [("AWS_PROFILE", "dev"), ("CLOUDSDK_CONFIG", "/c"), ("MY_TENANT", "x")];
    assert_eq!(env_of(&broker.request()), expected);
}

#[test]
fn an_identity_that_is_not_utf8_is_refused_rather_than_left_out() {
    let broker = Broker::with_token("t");
    let line = complaint(asking(&broker).env("AWS_PROFILE", OsStr::from_bytes(b"c4n4ry\xff")), 78);
    assert!(line.contains("provider gke: the value of AWS_PROFILE is not valid UTF-8"), "{line}");
    assert!(!line.contains("c4n4ry") && broker.requests().is_empty());
}
