//! Figures and their limits.

use std::time::Duration;

/// Prints each figure as it comes, and remembers whether all of them are within their limits.
#[derive(Debug, Default)]
pub struct Report {
    missed: bool,
}

impl Report {
    /// A figure, its limit, and whether it is within it.
    pub fn limited(&mut self, name: &str, value: &str, limit: &str, holds: bool) {
        let verdict = if holds { "ok" } else { "MISSED" };
        println!("  {name:<44} {value:>14}   limit {limit}: {verdict}");
        self.missed |= !holds;
    }

    /// A ratio that may be at most `limit`.
    pub fn ratio(&mut self, name: &str, ratio: f64, limit: f64) {
        self.limited(name, &format!("{ratio:.2}"), &format!("{limit:.2}"), ratio <= limit);
    }

    /// Whether each figure was within its limit.
    pub fn passed(&self) -> bool {
        !self.missed
    }
}

/// Figures about one thing follow.
pub fn section(title: &str) {
    println!("\n{title}");
}

/// A figure without a limit.
pub fn figure(name: &str, value: &str) {
    println!("  {name:<44} {value:>14}");
}

/// The value below which `percent` of the sorted `values` lie.
pub fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let index = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(index).copied().unwrap_or_default()
}

/// The median. Without values it is not a number, which is within no limit.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.into_iter().collect();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
