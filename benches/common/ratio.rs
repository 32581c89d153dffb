//! Ratios of what is measured to what it is measured beside.

use crate::report::Report;

impl Report {
    /// A ratio that may be at most `limit`.
    pub(crate) fn ratio(&mut self, name: &str, ratio: f64, limit: f64) {
        self.limited(name, &format!("{ratio:.2}"), &format!("{limit:.2}"), ratio <= limit);
    }
}

/// The median. Without values it is not a number, which is within no limit.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.into_iter().collect();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
