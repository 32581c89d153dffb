//! Processes of a plugin run are not served.

use std::path::Path;

use credbroker_test_support::Broker;

use super::*;

const PROGRAM: &str = env!("CARGO_BIN_EXE_credbroker");

/// What a client says that a plugin starts with `prefix`, as `line` of its script.
fn said(line: &str) -> String {
    let victim = FakePlugin::builder().token("secret").expires_in(3600).build();
    let directory = credbroker_test_support::private_directory();
    let (socket, out) = (directory.path().join("socket"), directory.path().join("out"));
    let client =
        format!("{PROGRAM} get victim -o token --timeout 20s --socket \"$(cat {})\"", socket.display());
    let line = line.replace("CLIENT", &format!("env -i PATH=\"$PATH\" {client} > {} 2>&1", out.display()));
    let evil = FakePlugin::script(&format!("{line}\nexit 1"));
    let providers = json!([provider("victim", &victim), provider("evil", &evil)]);
    let broker = Broker::builder(PROGRAM).providers(&providers).start();
    std::fs::write(&socket, broker.socket().to_str().unwrap()).unwrap();
    let shim = |provider: &str| {
        let mut command = std::process::Command::new(PROGRAM);
        command.args(["get", provider, "--socket"]).arg(broker.socket());
        command.output().unwrap()
    };
    assert!(shim("victim").status.success(), "another process gets it");
    let evil = shim("evil");
    let error = String::from_utf8_lossy(&evil.stderr);
    assert!(!evil.status.success() && error.contains("RECURSION"), "{line}: {error}");
    wait_for(&out)
}

fn wait_for(out: &Path) -> String {
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    loop {
        let text = std::fs::read_to_string(out).unwrap_or_default();
        if text.contains('\n') || std::time::Instant::now() > deadline {
            return text;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_plugin_that_asks_the_broker_is_refused_however_it_starts_the_client() {
    for line in ["CLIENT", "(CLIENT)", "(CLIENT) & wait", "CLIENT\nexec sleep 300"] {
        let said = said(line);
        assert!(said.contains("RECURSION") && !said.contains("secret"), "{line}: {said}");
    }
}

#[test]
fn another_session_does_not_hide_a_plugin() {
    let said = said("cat > $dir/inner <<'END'\nCLIENT\nEND\nsetsid -w sh $dir/inner");
    assert!(said.contains("RECURSION") && !said.contains("secret"), "{said}");
}
