//! The table of the sockets that clients trust, with the shim as a process.

use std::{
    fs,
    io::Read as _,
    os::unix::{fs::PermissionsExt as _, net::UnixListener, process::CommandExt as _},
    path::Path,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    thread,
};

use credbroker_client::Socket;
use credbroker_test_support::{TrustCase, Verdict, private_directory, program_file};
use rustix::{
    net::{Shutdown, shutdown},
    process::{Pid, Signal, WaitId, WaitIdOptions, geteuid, kill_process, waitid},
};

use crate::shim::text;

/// The first bytes of HTTP/2.
const PREFACE: usize = 24;

/// Ends the shim when it has sent a request; it does not wait for the answer.
fn serve(listener: &UnixListener, shim: &Child, has_sent: &AtomicBool) {
    for connection in listener.incoming() {
        let Ok(mut connection) = connection else { return };
        let mut received = [0; PREFACE];
        match connection.read(&mut received) {
            Ok(0) | Err(_) => {}
            Ok(_) => {
                has_sent.store(true, SeqCst);
                let _gone = kill_process(Pid::from_child(shim), Signal::KILL);
            }
        }
    }
}

#[test]
fn the_table_of_trusted_sockets_holds() {
    // Every user can read and run it.
    let programs = private_directory();
    fs::set_permissions(programs.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = programs.path().join("shim");
    program_file(&program, fs::read(env!("CARGO_BIN_EXE_credbroker-exec")).unwrap());
    let has_system = Path::new(Socket::SYSTEM).exists();
    for case in TrustCase::all() {
        if has_system && case.verdict == Verdict::Ignored {
            println!("SKIPPED: this machine has a broker of the system: {}", case.name);
            continue;
        }
        let mut shim = Command::new(&program);
        shim.args(["--provider", "gke"]).env_clear().current_dir("/");
        shim.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        shim.envs(case.socket.as_ref().map(|path| ("CREDBROKER_SOCKET", path)));
        shim.envs(case.runtime_directory.as_ref().map(|path| ("XDG_RUNTIME_DIR", path)));
        shim.envs(case.broker_uid.map(|uid| ("CREDBROKER_BROKER_UID", uid.to_string())));
        if case.client != geteuid().as_raw() {
            shim.uid(case.client).gid(case.client);
        }
        let (shim, has_sent) = (shim.spawn().unwrap(), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| serve(&case.listener, &shim, &has_sent));
            // It keeps its number until the thread, which may kill it, has ended.
            let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            waitid(WaitId::Pid(Pid::from_child(&shim)), ended).unwrap();
            shutdown(&case.listener, Shutdown::Both).unwrap();
        });
        let output = shim.wait_with_output().unwrap();
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(stdout, "", "{}", case.name);
        let verdict = match output.status.code() {
            None if has_sent.into_inner() => Verdict::Trusted,
            Some(77) => Verdict::Untrusted,
            Some(69) => Verdict::Ignored,
            code => panic!("{}: {code:?} {stderr}", case.name),
        };
        case.check(verdict, &stderr);
    }
}
