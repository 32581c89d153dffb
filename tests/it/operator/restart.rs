//! A restart under load, with the socket held by the service manager.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use credbroker_client::{Client, Error, Socket};
use credbroker_test_support::{FakePlugin, private_directory, private_file};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tokio::{
    sync::Semaphore,
    time::{Instant, interval},
};
use tokio_util::task::TaskTracker;

use super::{PROGRAM, until};
use crate::harness::{provider, reference};

/// A call every five milliseconds: 200 in a second.
const EVERY: Duration = Duration::from_millis(5);
/// Calls that are under way at most: a loaded machine does not reach the limit of connections.
const AT_ONCE: usize = 100;
/// How long a broker that drains waits for the first call of a connection.
const LAST_CALL: Duration = Duration::from_millis(200);

/// Starts brokers one after the other on the socket that systemd passed, as systemd does.
const SUPERVISOR: &str = r#"
while [ ! -e "$1/stop" ]; do
    /bin/sh -c 'echo $$ >"$1/pid.new"; mv "$1/pid.new" "$1/pid"; export LISTEN_PID=$$; exec "$0" serve --config "$1/config.yaml"' "$0" "$1"
done
"#;

struct Activated {
    supervisor: Child,
    directory: PathBuf,
}

impl Activated {
    /// `None`: this machine has no systemd.
    fn start(directory: &Path) -> Option<Self> {
        let mut command = Command::new("systemd-socket-activate");
        command.arg(format!("--listen={}", socket(directory).display())).arg("--fdname=credbroker");
        command.args(["/bin/sh", "-c", SUPERVISOR, PROGRAM]).arg(directory);
        let supervisor = command.stderr(Stdio::null()).spawn().ok()?;
        let activated = Self { supervisor, directory: directory.to_owned() };
        until("it listens", || socket(directory).exists());
        Some(activated)
    }

    fn pid(&self) -> Option<Pid> {
        let pid = std::fs::read_to_string(self.directory.join("pid")).ok()?;
        Pid::from_raw(pid.trim().parse().ok()?)
    }

    /// Ends the broker that runs, and waits until the next one has started.
    fn restart(&self) {
        let old = self.pid().expect("a broker runs");
        kill_process(old, Signal::TERM).unwrap();
        until("the next broker starts", || self.pid() != Some(old));
    }
}

impl Drop for Activated {
    fn drop(&mut self) {
        drop(std::fs::write(self.directory.join("stop"), ""));
        if let Some(pid) = self.pid() {
            let _ended = kill_process(pid, Signal::TERM);
        }
        drop(self.supervisor.wait());
    }
}

fn socket(directory: &Path) -> PathBuf {
    directory.join("run/credbroker.sock")
}

/// One call on one connection. It comes a moment after the connection, so that some have connected and not called when the
/// broker ends.
async fn call(socket: &Socket) -> Result<(), Error> {
    let client = Client::connect(socket).await?;
    tokio::time::sleep(EVERY).await;
    client.credential(&reference("cloud", None, &[])).await.map(drop)
}

/// A call without another attempt, unless a loaded machine made it too late for a broker that drains.
async fn call_in_time(socket: &Socket) {
    loop {
        let began = Instant::now();
        match call(socket).await {
            Ok(()) => return,
            Err(Error::Unreachable { .. }) if began.elapsed() >= LAST_CALL => {}
            Err(error) => panic!("after {:?}: {error:?}", began.elapsed()),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_call_is_lost_when_the_broker_restarts_under_load() {
    let directory = private_directory();
    let plugin = FakePlugin::builder().token("t").expires_in(3600).build();
    let config = json!({
        "apiVersion": "credbroker.io/v1alpha1", "kind": "BrokerConfig",
        "providers": [provider("cloud", &plugin)],
    });
    private_file(&directory.path().join("config.yaml"), &config.to_string());
    let run = directory.path().join("run");
    std::fs::create_dir(&run).unwrap();
    std::fs::set_permissions(&run, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let Some(activated) = Activated::start(directory.path()) else {
        return eprintln!("SKIPPED: no systemd-socket-activate on PATH");
    };

    let (socket, calls) = (Socket::at(socket(directory.path())), TaskTracker::new());
    let (made, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let places = Arc::new(Semaphore::new(AT_ONCE));
    let load = async {
        let mut turns = interval(EVERY);
        loop {
            turns.tick().await;
            let place = Arc::clone(&places).acquire_owned().await;
            let (socket, done) = (socket.clone(), Arc::clone(&done));
            made.fetch_add(1, Ordering::SeqCst);
            calls.spawn(async move {
                call_in_time(&socket).await;
                drop(place);
                done.fetch_add(1, Ordering::SeqCst);
            });
        }
    };
    let restarts = async {
        for restarts in 0..4 {
            // Some calls, so that the broker holds the credential.
            let enough = done.load(Ordering::SeqCst) + 200;
            while done.load(Ordering::SeqCst) < enough {
                tokio::time::sleep(EVERY).await;
            }
            if restarts < 3 {
                tokio::task::block_in_place(|| activated.restart());
            }
        }
    };
    tokio::select! {
        () = restarts => {}
        never = load => never,
    }
    calls.close();
    calls.wait().await;
    assert_eq!(done.load(Ordering::SeqCst), made.load(Ordering::SeqCst), "calls that were answered");
    assert!(plugin.runs() >= 4, "each broker ran the plugin: {}", plugin.runs());
}
