//! A broker that lets the shim run a plugin in its terminal.

use std::{
    os::unix::{fs::chown, net::UnixListener},
    thread,
};

use credbroker_test_support::Terminal;
use rustix::{
    process::{Uid, geteuid},
    thread::set_thread_res_uid,
};

use crate::broker::{Answer, Broker, set_mode};

const SHIM: &str = env!("CARGO_BIN_EXE_credbroker-exec");
const OTHER: u32 = 2001;

/// A plugin that asks for a line, and leaves a mark that it ran.
fn plugin(broker: &Broker) -> Answer {
    let script = format!(
        "touch {}; test -z \"$CREDBROKER_SOCKET\" || exit 1; printf 'Name: ' >&2; read name; printf %s \"$name $A\"",
        broker.directory.path().join("ran").display()
    );
    Answer::Leased([&b"/bin/sh"[..], b"-c", script.as_bytes()].map(<[u8]>::to_vec).to_vec())
}

fn has_run(broker: &Broker) -> bool {
    broker.directory.path().join("ran").exists()
}

/// The shim at a terminal, with more flags or a redirection of the shell.
fn shim(broker: &Broker, provider: &str, more: &str) -> Terminal {
    let script = format!("exec {SHIM} --provider {provider} {more}");
    let socket = broker.socket();
    let variables = [("CREDBROKER_SOCKET", socket.as_os_str()), ("TERM", "xterm".as_ref())];
    Terminal::start("/bin/sh", ["-c", &script], variables)
}

#[test]
fn the_plugin_runs_in_the_terminal_as_the_broker_says_and_its_output_goes_to_the_broker() {
    for provider in ["p", "slow"] {
        let mut broker = Broker::absent();
        broker.start(plugin(&broker));
        let mut shim = shim(&broker, provider, "");
        shim.wait_for("Name: ");
        shim.types("me\n");
        let (status, stdout, shown) = shim.end();
        assert!(status.success() && stdout.contains("7 0 me b"), "{stdout}{shown}");
        let shown = shown.rsplit("\r\u{1b}[K").next().unwrap();
        assert_eq!(shown, "Name: me\r\n", "{provider}");
        assert_eq!(*broker.lenders.lock().unwrap(), [true]);
    }
}

#[test]
fn without_two_terminals_nothing_runs_even_if_the_broker_says_so() {
    for (provider, more, code, attends) in
        [("p", "< /dev/null", 1, 0), ("p", "2> /dev/null", 1, 0), ("slow", "--timeout 2s < /dev/null", 75, 1)]
    {
        let mut broker = Broker::absent();
        broker.start(plugin(&broker));
        let (status, stdout, shown) = shim(&broker, provider, more).end();
        assert_eq!((status.code(), stdout.as_str()), (Some(code), ""), "{more}: {shown}");
        assert_eq!(shown.contains("INTERACTION_REQUIRED"), more == "< /dev/null", "{shown}");
        assert!(!has_run(&broker), "{more}");
        assert_eq!(*broker.lenders.lock().unwrap(), vec![false; attends], "{provider} {more}");
    }
}

/// Such a broker is trusted with a credential, and not with what this process runs.
#[test]
fn only_a_broker_of_this_user_in_a_directory_of_this_user_says_what_runs() {
    if !geteuid().is_root() {
        println!("SKIPPED: only root can act as other users");
        return;
    }
    for (server, owner) in [(OTHER, 0), (0, OTHER)] {
        let mut broker = Broker::absent();
        let answer = plugin(&broker);
        let listener = UnixListener::bind(broker.socket()).unwrap();
        // The kernel records the user of the last call.
        let listening = thread::scope(|scope| {
            let listen = || {
                set_thread_res_uid(None, Some(Uid::from_raw(server)), None).unwrap();
                rustix::net::listen(&listener, 16)
            };
            scope.spawn(listen).join()
        });
        listening.unwrap().unwrap();
        broker.serve(listener, answer);
        chown(broker.directory.path(), Some(owner), None).unwrap();
        set_mode(broker.directory.path(), 0o711);
        let flags = format!("--broker-uid {server}");
        let (status, stdout, shown) = shim(&broker, "p", &flags).end();
        assert_eq!((status.code(), stdout.as_str()), (Some(1), ""), "{server} {owner}: {shown}");
        assert!(shown.contains("INTERACTION_REQUIRED"), "{shown}");
        assert!(!has_run(&broker) && broker.lenders.lock().unwrap().is_empty());
    }
}
