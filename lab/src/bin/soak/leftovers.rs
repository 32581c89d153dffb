//! The processes that are still there after the broker or a plugin has ended.

use std::fs::{self, DirEntry};

/// The processes whose command line contains `text`, except this one.
pub(crate) fn with_argument(text: &str) -> Vec<u32> {
    let numbers = processes().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let has = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        *pid != std::process::id() && String::from_utf8_lossy(&line).contains(text)
    };
    numbers.filter(has).collect()
}

/// The children of `pid` that have ended and were not waited for.
pub(crate) fn zombies(pid: u32) -> usize {
    let stats = processes().filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
    let parent = pid.to_string();
    stats
        .filter(|stat| {
            let after_name = stat.rsplit(')').next().unwrap_or_default();
            let mut fields = after_name.split_whitespace();
            fields.next() == Some("Z") && fields.next() == Some(&parent)
        })
        .count()
}

fn processes() -> impl Iterator<Item = DirEntry> {
    fs::read_dir("/proc").into_iter().flatten().flatten()
}
