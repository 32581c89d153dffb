//! The plugin of `deploy/kubernetes/quickstart` needs the shell alone, and works where its token is mounted.

use std::{fs, path::Path};

use credbroker_client::{Client, Socket};
use credbroker_test_support::{Broker, private_directory, private_file};
use rustix::process::geteuid;

use crate::harness::{reference, token};

/// Of a service account; its `exp` is in 2100.
const TOKEN: &str = "e30.eyJleHAiOjQxMDI0NDQ4MDB9.c2lnbmF0dXJl";

#[tokio::test]
async fn the_plugin_of_the_quickstart_prints_the_mounted_token() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/kubernetes/quickstart/config.yaml");
    let text = fs::read_to_string(path).unwrap();
    let directory = private_directory();
    let mounted = directory.path().join("token");
    private_file(&mounted, TOKEN);
    let replaced = [
        ("/var/run/secrets/kubernetes.io/serviceaccount/token", mounted.display().to_string()),
        ("uids: [2001]", format!("uids: [{}]", geteuid().as_raw())),
    ];
    let config = replaced.iter().fold(text, |text, (old, new)| {
        assert_eq!(text.matches(old).count(), 1, "{old}");
        text.replace(old, new)
    });
    let broker = Broker::builder(env!("CARGO_BIN_EXE_credbroker")).config(&config).start();
    let client = Client::connect(&Socket::at(broker.socket())).await.unwrap();
    let credential = client.credential(&reference("own-cluster", None, &[])).await.unwrap();
    assert_eq!(token(&credential), TOKEN);
}
