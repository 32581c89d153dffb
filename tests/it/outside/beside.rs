//! A program that writes other files beside the configuration, as fast as it can.

use std::{
    fs::{self, File, OpenOptions},
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

use credbroker_test_support::{Broker, FakePlugin};
use serde_json::json;

use super::{until, until_idle};
use crate::harness::provider;

const PROGRAM: &str = env!("CARGO_BIN_EXE_credbroker");

/// Does something again and again until it is dropped.
struct Busy(Arc<AtomicBool>, Option<JoinHandle<()>>);

impl Busy {
    fn new(mut act: impl FnMut() + Send + 'static) -> Self {
        let is_over = Arc::<AtomicBool>::default();
        let ended = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                act();
            }
        });
        Self(is_over, Some(thread))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        self.1.take().unwrap().join().unwrap();
    }
}

/// Writes a log, and starts it again before it fills the disk.
fn appends(directory: &Path) -> Busy {
    let log = directory.join("log");
    let (mut file, mut lines) = (File::create(&log).unwrap(), 0);
    Busy::new(move || {
        file.write_all(b"a line\n").unwrap();
        lines += 1;
        if lines % 1_000_000 == 0 {
            file.set_len(0).unwrap();
        }
    })
}

fn opens_and_closes(directory: &Path) -> Busy {
    let cache = directory.join("cache");
    Busy::new(move || {
        let mut file = OpenOptions::new().create(true).write(true).truncate(true).open(&cache).unwrap();
        file.write_all(b"entry").unwrap();
    })
}

fn creates_renames_and_removes(directory: &Path) -> Busy {
    let (new, old) = (directory.join("new"), directory.join("old"));
    Busy::new(move || {
        File::create(&new).unwrap();
        fs::rename(&new, &old).unwrap();
        fs::remove_file(&old).unwrap();
    })
}

fn token(socket: &Path) -> String {
    let mut command = Command::new(PROGRAM);
    command.args(["get", "cloud", "-o", "token", "--socket"]).arg(socket).env_clear();
    String::from_utf8(command.output().unwrap().stdout).unwrap().trim().to_owned()
}

#[test]
fn a_program_that_writes_other_files_keeps_no_broker_busy_and_hides_no_change() {
    let plugins =
        ["0", "1", "2", "3"].map(|token| FakePlugin::builder().token(token).expires_in(3600).build());
    let broker = Broker::builder(PROGRAM).providers(&json!([provider("cloud", &plugins[0])])).start();
    let directory = broker.socket().ancestors().nth(2).map(PathBuf::from).unwrap();
    let config = directory.join("config.yaml");
    assert_eq!(token(&broker.socket()), "0");
    let ways = [appends, opens_and_closes, creates_renames_and_removes];
    for (number, writes) in (1..).zip(ways) {
        let _busy = writes(&directory);
        until_idle(broker.pid());
        let text = fs::read_to_string(&config).unwrap();
        let [before, now] = [number - 1, number].map(|number: usize| plugins[number].path());
        fs::write(&config, text.replace(before.to_str().unwrap(), now.to_str().unwrap())).unwrap();
        until("the change is active", || token(&broker.socket()) == number.to_string());
        until_idle(broker.pid());
    }
}
