//! `credbroker kubeconfig wrap`: the same contexts in every directory, through the shim.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

use credbroker_test_support::{Accepts, ApiServer, Broker, FakePlugin, Kubeconfig};
use serde_json::json;

use super::{Kubectl, failure, newest_api_version, stdout};
use crate::programs;

#[test]
fn a_wrapped_kubeconfig_works_from_another_directory_and_the_original_stays_as_it_was() {
    let server = ApiServer::start(Accepts::Tokens);
    server.accept_token("token-1");
    let plugin =
        FakePlugin::builder().token_per_run().expires_in(3600).api_version(newest_api_version()).build();
    let home = Kubectl::new();
    let (original, wrapped) = (home.dir().join("original/config"), home.dir().join("wrapped"));
    fs::create_dir_all(home.dir().join("original/bin")).unwrap();
    fs::write(home.dir().join("original/ca.crt"), server.ca_pem()).unwrap();
    symlink(plugin.path(), home.dir().join("original/bin/plugin")).unwrap();
    let mut stanza = plugin.exec_stanza();
    stanza["command"] = json!("./bin/plugin");
    Kubeconfig::new()
        .cluster("prod", &json!({"server": server.url(), "certificate-authority": "ca.crt"}))
        .exec_user("jane", &stanza)
        .context("work", "prod", "jane")
        .write(&original);
    let before = fs::read(&original).unwrap();

    let broker = Broker::builder(programs::broker()).kubeconfig(&original).start();
    let kubectl =
        Kubectl::new().env("CREDBROKER_SOCKET", broker.socket()).env("PATH", programs::path_with_shim());
    let wrap = Command::new(programs::broker())
        .args(["kubeconfig", "wrap", "--kubeconfig"])
        .arg(&original)
        .arg("-o")
        .arg(&wrapped)
        .env_clear()
        .env("HOME", home.dir())
        .env("PATH", programs::path_with_shim())
        .env("CREDBROKER_SOCKET", broker.socket())
        .output()
        .unwrap();
    assert!(wrap.status.success(), "{}", String::from_utf8_lossy(&wrap.stderr));
    assert_eq!(fs::metadata(&wrapped).unwrap().permissions().mode() & 0o777, 0o600);

    for _ in 0..3 {
        let output = kubectl.command(&wrapped, &["get", "pods"]).current_dir("/").output().unwrap();
        assert!(stdout(&output).contains("web-0"));
    }
    assert_eq!(plugin.runs(), 1);
    assert_eq!(server.seen_tokens(), ["token-1"]);
    assert_eq!(fs::read(&original).unwrap(), before);
}

/// Two kubeconfigs that call their user, cluster and context the same: the most dangerous thing that a broker could do
/// is to take the plugin of one for the other.
#[test]
fn kubectl_never_sends_the_token_of_another_kubeconfig_with_the_same_names() {
    let home = Kubectl::new();
    let accounts = ["first", "second"].map(|account| {
        let server = ApiServer::start(Accepts::Tokens);
        server.accept_token(account);
        let plugin =
            FakePlugin::builder().token(account).expires_in(3600).api_version(newest_api_version()).build();
        let file = home.dir().join(account);
        Kubeconfig::for_server(&server, "rel", &plugin.exec_stanza()).write(&file);
        let wrapped = home.dir().join(format!("{account}.wrapped"));
        (server, plugin, file, wrapped)
    });
    let broker = Broker::builder(programs::broker()).kubeconfig(&accounts[0].2).start();
    let kubectl =
        Kubectl::new().env("CREDBROKER_SOCKET", broker.socket()).env("PATH", programs::path_with_shim());
    for (_, _, file, wrapped) in &accounts {
        let mut wrap = Command::new(programs::broker());
        wrap.args(["kubeconfig", "wrap", "--kubeconfig"]).arg(file).arg("-o").arg(wrapped).env_clear();
        wrap.env("PATH", programs::path_with_shim()).env("CREDBROKER_SOCKET", broker.socket());
        assert!(wrap.output().unwrap().status.success());
    }
    let [(first_server, _, _, first), (second_server, second_plugin, _, second)] = &accounts;
    assert!(stdout(&kubectl.run(first, &["get", "pods"])).contains("web-0"));
    assert_eq!(first_server.seen_tokens(), ["first"]);
    let error = failure(&kubectl.run(second, &["get", "pods"]));
    assert!(error.contains("UNKNOWN_DEFINITION"), "{error}");
    assert_eq!(second_server.seen_tokens(), [""; 0]);
    assert_eq!(second_plugin.runs(), 0);
}
