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

/// kubectl rewrites the whole file in its own form.
#[test]
fn the_context_that_kubectl_chooses_in_the_copy_is_kept_and_what_it_adds_is_not_overwritten() {
    let kubectl = Kubectl::new().env("CREDBROKER_SOCKET", "/nonexistent/broker.sock");
    let plugin = FakePlugin::builder().token("t").build();
    let (original, copy) = (kubectl.dir().join("config"), kubectl.dir().join("copy"));
    let cluster = json!({"server": "https://c", "certificate-authority": "pki/ca.crt", "future": true});
    Kubeconfig::new()
        .cluster("c", &cluster)
        .exec_user("dev", &plugin.exec_stanza())
        .user("cert", &json!({"client-certificate": "c.pem", "client-key": "../k.pem"}))
        .context("one", "c", "dev")
        .context("two", "c", "dev")
        .context("three", "c", "cert")
        .write(&original);
    let wrap = || {
        let mut wrap = Command::new(programs::broker());
        wrap.args(["kubeconfig", "wrap", "--kubeconfig"]).arg(&original).arg("-o").arg(&copy).env_clear();
        wrap.env("PATH", programs::path_with_shim()).env("CREDBROKER_SOCKET", "/nonexistent/broker.sock");
        wrap.output().unwrap()
    };
    stdout(&wrap());
    stdout(&kubectl.run(&copy, &["config", "use-context", "two"]));
    for _ in 0..2 {
        stdout(&wrap());
        assert_eq!(stdout(&kubectl.run(&copy, &["config", "current-context"])), "two\n");
    }
    stdout(&kubectl.run(&copy, &["config", "set-cluster", "new", "--server", "https://new"]));
    let changed = fs::read_to_string(&copy).unwrap();
    let refused = failure(&wrap());
    assert!(refused.contains("overwrite it with --force"), "{refused}");
    assert_eq!(fs::read_to_string(&copy).unwrap(), changed);
}

/// While a file is locked, kubectl does not change it; and it takes the same lock.
#[test]
fn kubectl_and_credbroker_do_not_change_a_file_at_the_same_time() {
    let kubectl = Kubectl::new();
    let file = kubectl.dir().join("config");
    fs::write(&file, "apiVersion: v1\nkind: Config\n").unwrap();
    let lock = kubectl.dir().join("config.lock");
    fs::write(&lock, "").unwrap();
    let error = failure(&kubectl.run(&file, &["config", "set-cluster", "x", "--server", "https://x"]));
    assert!(error.contains("config.lock"), "{error}");
}
