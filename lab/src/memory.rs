//! What a process holds.

use std::fs;

use anyhow::{Context, Result};

/// The resident memory of process `id`, in bytes.
pub fn resident(id: u32) -> Result<u64> {
    field(id, "VmRSS:")
}

/// The part of it that no file backs. The rest are pages of the binary and of libc. The kernel maps those around each page
/// fault, as they lie in the page cache, so that their number differs by 6 % between two starts of one binary.
pub fn anonymous(id: u32) -> Result<u64> {
    field(id, "RssAnon:")
}

fn field(id: u32, name: &'static str) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{id}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")).context(name)?;
    Ok(kib.parse::<u64>()? * 1024)
}

/// For people.
pub fn kib(bytes: u64) -> String {
    format!("{}.{} KiB", bytes / 1024, bytes % 1024 * 10 / 1024)
}
