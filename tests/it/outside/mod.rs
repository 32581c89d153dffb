//! What others do to a broker, seen from the real binary: peers, readers of its log, its directory, its hub.

mod beside;
mod bytes;
mod cgroup;
mod door;
mod evil;
mod faults;
mod first_process;
mod hub;
mod logs;
mod memory;
mod peers;
mod plugins;
mod raw;
mod residue;
mod scarcity;
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

/// Open files of a process.
fn descriptors(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

/// Children of a process, zombies included.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let children = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("children")));
    let children: Vec<_> = children.map(Result::unwrap_or_default).collect();
    children.iter().flat_map(|ids| ids.split_whitespace()).map(|id| id.parse().unwrap()).collect()
}

/// Waits until a process uses less than a tenth of a processor.
fn until_idle(pid: u32) {
    // User and system time, in hundredths of a second.
    let used = || -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let fields = stat.rsplit_once(") ").unwrap().1.split(' ').skip(11).take(2);
        fields.map(|field| field.parse::<u64>().unwrap()).sum()
    };
    until("it is idle", || {
        let before = used();
        std::thread::sleep(Duration::from_millis(500));
        used() - before <= 5
    });
}

/// Memory of a process that is resident, in KiB.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
