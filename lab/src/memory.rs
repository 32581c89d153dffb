//! What a process holds.

use std::fs;

use anyhow::{Context, Result};

/// The resident memory of process `id`, in bytes.
pub fn resident(id: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{id}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")).context("no VmRSS")?;
    Ok(kib.parse::<u64>()? * 1024)
}

/// For people.
pub fn kib(bytes: u64) -> String {
    format!("{}.{} KiB", bytes / 1024, bytes % 1024 * 10 / 1024)
}
