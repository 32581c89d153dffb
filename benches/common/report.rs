//! Figures and their limits.

use std::time::Duration;

/// Prints each figure as it comes, and remembers whether all of them are within their limits.
#[derive(Debug, Default)]
pub(crate) struct Report {
    missed: bool,
}

impl Report {
    pub(crate) fn limited(&mut self, name: &str, value: &str, limit: &str, holds: bool) {
        let verdict = if holds { "ok" } else { "MISSED" };
        println!("  {name:<44} {value:>14}   limit {limit}: {verdict}");
        self.missed |= !holds;
    }

    pub(crate) fn passed(&self) -> bool {
        !self.missed
    }
}

pub(crate) fn section(title: &str) {
    println!("\n{title}");
}

pub(crate) fn figure(name: &str, value: &str) {
    println!("  {name:<44} {value:>14}");
}

/// The value below which `percent` of the sorted `values` lie.
pub(crate) fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let index = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(index).copied().unwrap_or_default()
}
