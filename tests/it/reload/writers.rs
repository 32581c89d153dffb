//! A followed file that another program writes without end.

use std::{
    fs::File,
    os::unix::{fs::FileExt as _, net::UnixDatagram},
    process::Command,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{JoinHandle, yield_now},
};

use credbroker_test_support::Broker;
use rustix::process::{Pid, Signal, kill_process};

use super::*;
use crate::harness::provider;

const PROGRAM: &str = env!("CARGO_BIN_EXE_credbroker");

/// Writes a text over the beginning of a file again and again, and never closes it.
struct Writer {
    text: Arc<Mutex<String>>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    fn new(file: &Path) -> Self {
        let text = Arc::new(Mutex::new(std::fs::read_to_string(file).unwrap()));
        let file = File::options().write(true).open(file).unwrap();
        let is_over = Arc::<AtomicBool>::default();
        let (wanted, ended) = (Arc::clone(&text), Arc::clone(&is_over));
        let thread = std::thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                file.write_all_at(wanted.lock().unwrap().as_bytes(), 0).unwrap();
                yield_now();
            }
        });
        Self { text, is_over, thread: Some(thread) }
    }

    /// Writes another text of the same length from now on.
    fn replace(&self, old: &str, new: &str) {
        assert_eq!(old.len(), new.len());
        let mut text = self.text.lock().unwrap();
        *text = text.replace(old, new);
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

fn config(broker: &Broker) -> PathBuf {
    broker.socket().ancestors().nth(2).unwrap().join("config.yaml")
}

#[test]
fn sighup_does_not_wait_for_a_file_that_is_always_being_written() {
    let directory = private_directory();
    let path = directory.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(AGES)).unwrap();
    let plugin = prints("t");
    let broker = Broker::builder(PROGRAM)
        .providers(&json!([provider("cloud", &plugin)]))
        .env("NOTIFY_SOCKET", &path)
        .start();
    let next = || {
        let mut message = [0; 256];
        let length = manager.recv(&mut message).expect("the service manager hears of it");
        String::from_utf8(message[..length].to_vec()).unwrap()
    };
    assert_eq!(next().trim_end(), "READY=1");
    let _writer = Writer::new(&config(&broker));
    for count in 1..=3 {
        kill_process(Pid::from_raw(i32::try_from(broker.pid()).unwrap()).unwrap(), Signal::HUP).unwrap();
        assert!(next().starts_with("RELOADING=1\nMONOTONIC_USEC="));
        assert_eq!(next().trim_end(), "READY=1");
        while broker.log().matches("configuration unchanged").count() < count {
            yield_now();
        }
    }
}

#[test]
fn a_change_is_active_although_its_file_is_always_being_written() {
    let (old, new) = (prints("old"), prints("new"));
    let broker = Broker::builder(PROGRAM).providers(&json!([provider("cloud", &old)])).start();
    let writer = Writer::new(&config(&broker));
    let prints = |text: &str| {
        let mut command = Command::new(PROGRAM);
        command.args(["get", "cloud", "-o", "token", "--socket"]).arg(broker.socket()).env_clear();
        String::from_utf8_lossy(&command.output().unwrap().stdout).contains(text)
    };
    assert!(prints("old"));
    writer.replace(old.path().to_str().unwrap(), new.path().to_str().unwrap());
    let deadline = std::time::Instant::now() + AGES;
    while !prints("new") {
        assert!(std::time::Instant::now() < deadline, "{}", broker.log());
    }
}
