//! What others do to a broker, seen from the real binary: peers, readers of its log, its directory, its hub.

mod door;
mod faults;
mod hub;
mod logs;
mod memory;
mod peers;
mod plugins;
mod raw;
mod residue;
mod socket;
mod watches;

use std::time::{Duration, Instant};

/// Longer than anything here takes, on any machine.
const AGES: Duration = Duration::from_secs(60);

/// Polls, since nothing outside the broker reports it.
fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + AGES;
    while !condition() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Memory of a process that is resident, in KiB.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
