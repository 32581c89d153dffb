//! The programs under test, and how each is named where it is used.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use credbroker_test_support::FakePlugin;
use serde_json::{Value, json};

/// The broker, as cargo built it for this target.
pub(crate) fn broker() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_credbroker"))
}

/// The shim that `SHIM` names, else the one beside the broker.
pub(crate) fn shim() -> PathBuf {
    let shim = match std::env::var_os("SHIM") {
        Some(path) => PathBuf::from(path),
        None => broker().with_file_name("credbroker-exec"),
    };
    assert!(
        shim.is_absolute() && shim.is_file(),
        "no shim at {} (an absolute path is needed); build it with: cargo build -p credbroker-exec",
        shim.display()
    );
    shim
}

/// A `PATH` on which a shell finds the shim: kubeconfigs of ours name it so.
pub(crate) fn path_with_shim() -> String {
    format!("{}:{}", shim().parent().unwrap().display(), std::env::var("PATH").unwrap())
}

/// The provider `name` that runs `plugin` for callers that name no cluster.
pub(crate) fn clusterless(name: &str, plugin: &FakePlugin) -> Value {
    let mut stanza = plugin.exec_stanza();
    stanza["provideClusterInfo"] = json!(false);
    json!({"name": name, "execConfig": stanza})
}

/// Runs the plugin of `provider` again.
pub(crate) fn refresh(socket: &Path, provider: &str) {
    let mut command = Command::new(broker());
    let output = command.args(["refresh", provider, "--socket"]).arg(socket).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The `exec` stanza of a user whose credential comes from `provider` through the shim.
pub(crate) fn shim_stanza(api_version: &str, provider: &str, socket: &Path) -> Value {
    json!({
        "apiVersion": api_version,
        "command": shim(),
        "args": ["--provider", provider, "--socket", socket],
        "interactiveMode": "Never",
        "provideClusterInfo": true,
    })
}
