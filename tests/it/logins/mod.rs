//! Logins: people at terminals, and plugins that wait for them.

mod attending;
mod lease;
mod session;
mod unanswered;

use std::{fs, io::Write as _, path::PathBuf};

use credbroker_test_support::{Broker, FakePlugin, Terminal};
use serde_json::{Value, json};

use crate::harness::provider;

const PROGRAM: &str = env!("CARGO_BIN_EXE_credbroker");

/// A plugin that waits for an event after its first words, as for a login in a browser. It says that it polls once a second.
struct Prompting(FakePlugin);

impl Prompting {
    /// What it writes before it waits is `words`.
    fn new(words: &str) -> Self {
        let plugin = FakePlugin::script(&format!(
            r#"printf '%b\n' '{words}' >&2
(n=1; while sleep 0.5; do echo "poll $n"; n=$((n + 1)); done) >&2 & polls=$!
read outcome < "$dir/browser"
kill $polls
test "$outcome" = approved || exit 4
echo '{{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {{"token": "token-'$run'"}}}}'"#
        ));
        let made = std::process::Command::new("mkfifo").arg(plugin.dir().join("browser")).status();
        assert!(made.unwrap().success());
        Self(plugin)
    }

    fn provider(&self, timeout: &str) -> Value {
        let mut provider = provider("p", &self.0);
        (provider["timeout"], provider["interactiveTimeout"]) = (json!(timeout), json!("50s"));
        provider
    }

    /// Ends the wait of the run that waits.
    fn says(&self, outcome: &str) {
        // It blocks until the run has opened it.
        let mut browser = fs::OpenOptions::new().write(true).open(self.browser()).unwrap();
        writeln!(browser, "{outcome}").unwrap();
    }

    fn browser(&self) -> PathBuf {
        self.0.dir().join("browser")
    }
}

fn broker(providers: &Value) -> Broker {
    Broker::builder(PROGRAM).providers(providers).start()
}

/// The shim at a terminal.
fn shim(broker: &Broker) -> Terminal {
    at_terminal(broker, &["shim", "--provider", "p"])
}

fn at_terminal(broker: &Broker, args: &[&str]) -> Terminal {
    let socket = broker.socket();
    Terminal::start(PROGRAM, args, [("CREDBROKER_SOCKET", socket.as_os_str()), ("TERM", "xterm".as_ref())])
}
