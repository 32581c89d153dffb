//! Completion in real shells, at terminals. A shell that this machine lacks is skipped, and a line says so.

use std::{
    ffi::OsStr,
    io::{Write as _, stderr},
    os::unix::fs::symlink,
    path::Path,
};

use credbroker_test_support::{FakePlugin, Terminal, private_directory};
use serde_json::json;

use super::{PROGRAM, broker};
use crate::harness::provider;

/// What is typed before the key for completion, and the words that the shell then has.
const TYPED: [(&str, &str); 10] = [
    ("credbroker get gke", "[credbroker][get][gke-prod]"),
    ("credbroker get arn", "[credbroker][get][arn:aws:eks:eu:1:cluster/prod]"),
    ("credbroker get arn:aws:e", "[credbroker][get][arn:aws:eks:eu:1:cluster/prod]"),
    ("credbroker evict admin@k", "[credbroker][evict][admin@kubernetes]"),
    ("credbroker explain my", "[credbroker][explain][my cluster]"),
    ("credbroker explain my\\ c", "[credbroker][explain][my cluster]"),
    ("credbroker get odd", "[credbroker][get][odd*$(touch run)]"),
    ("credbroker get x --output=to", "[credbroker][get][x][--output=token]"),
    ("credbroker get x --kubeconfig /usr/loc", "[credbroker][get][x][--kubeconfig][/usr/local/]"),
    ("FOO=1 credbroker healthch", "[FOO=1][credbroker][healthcheck]"),
];

/// Completes each of the lines with the names of a broker. `shell` starts the shell and reads `script`.
fn completes(name: &str, shell: &[&str], script: &str) {
    let Some(path) = find(name) else {
        // The harness captures what is printed, and shows nothing of tests that pass.
        stderr().write_all(format!("\nSKIPPED: this machine has no {name}\n").as_bytes()).unwrap();
        return;
    };
    let plugin = FakePlugin::builder().token("t").build();
    let names =
        ["gke-prod", "arn:aws:eks:eu:1:cluster/prod", "admin@kubernetes", "my cluster", "odd*$(touch run)"];
    let broker = broker(&json!(names.map(|name| provider(name, &plugin))));
    let home = private_directory();
    symlink(PROGRAM, home.path().join("credbroker")).unwrap();
    let search = format!("{}:{}", home.path().display(), std::env::var("PATH").unwrap());
    let socket = broker.socket();
    // Standard output too is the terminal.
    let words = [&["-c", "cd \"$HOME\" && exec \"$@\" >/dev/tty", "sh", path.as_str()], shell].concat();
    let variables: [(&'static str, &OsStr); 6] = [
        ("PATH", search.as_ref()),
        ("HOME", home.path().as_os_str()),
        ("CREDBROKER_SOCKET", socket.as_os_str()),
        ("TERM", "dumb".as_ref()),
        ("PS1", "$ ".as_ref()),
        ("LANG", "C.UTF-8".as_ref()),
    ];
    let mut terminal = Terminal::start("sh", words, variables);
    terminal.types(&format!("{script}; echo re''ady\n"));
    terminal.wait_for("ready");
    for (number, (line, words)) in TYPED.iter().enumerate() {
        // Prints the words of the completed line instead of running it. `^A` goes to its begin, `^E` to its end.
        terminal.types(&format!("{line}\t\u{1}printf '[%s]' {number} \u{5}\n"));
        terminal.wait_for(&format!("[{number}]{words}"));
    }
    assert!(!Path::new(home.path()).join("run").exists(), "a name is not run");
}

fn find(name: &str) -> Option<String> {
    let path = std::env::var("PATH").unwrap();
    let mut places = path.split(':').map(|directory| format!("{directory}/{name}"));
    places.find(|place| Path::new(place).is_file())
}

#[test]
fn bash_completes() {
    completes("bash", &["--norc", "--noprofile", "-i"], "source <(credbroker completions bash)");
}

#[test]
fn zsh_completes() {
    let script = "autoload -Uz compinit; compinit -D; source <(credbroker completions zsh)";
    completes("zsh", &["-f", "-i"], script);
}

/// The file that `credbroker setup` writes. The first key for completion loads it.
#[test]
fn zsh_completes_with_a_file_of_its_functions() {
    let script = "mkdir site; credbroker completions zsh >site/_credbroker; fpath=($PWD/site $fpath); \
                  autoload -Uz compinit; compinit -D -u";
    completes("zsh", &["-f", "-i"], script);
}

#[test]
fn fish_completes() {
    completes("fish", &["--no-config", "-i"], "credbroker completions fish | source");
}
