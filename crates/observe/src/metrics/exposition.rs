//! The text format of Prometheus, version 0.0.4.

use std::fmt::Write as _;

use super::{counter::Observed, families::Family};

/// A scrape that is being written.
#[derive(Debug, Default)]
pub struct Exposition {
    text: String,
    name: &'static str,
}

/// Labels of one sample.
type Labels<'a> = [(&'a str, &'a str)];

impl Exposition {
    /// The content type of the text.
    pub const CONTENT_TYPE: &'static str = "text/plain; version=0.0.4; charset=utf-8";

    /// Begins a family. The samples that follow are its.
    pub fn family(&mut self, family: &'static Family) {
        self.name = family.name;
        let Family { name, kind, help, .. } = family;
        let _infallible = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {}\n", kind.name());
    }

    /// Writes a whole number.
    pub fn sample(&mut self, labels: &Labels<'_>, value: u64) {
        self.line("", labels, &value.to_string());
    }

    /// Writes a number.
    pub fn value(&mut self, labels: &Labels<'_>, value: f64) {
        self.line("", labels, &number(value));
    }

    /// Writes a histogram.
    pub fn histogram(&mut self, labels: &Labels<'_>, observed: &Observed) {
        let bounds = observed.cumulative.iter().map(|(bound, count)| (number(*bound), *count));
        for (bound, count) in bounds.chain([("+Inf".to_owned(), observed.count)]) {
            let labels: Vec<_> = labels.iter().copied().chain([("le", bound.as_str())]).collect();
            self.line("_bucket", &labels, &count.to_string());
        }
        self.line("_sum", labels, &number(observed.sum));
        self.line("_count", labels, &observed.count.to_string());
    }

    /// The text so far.
    pub fn into_text(self) -> String {
        self.text
    }

    fn line(&mut self, suffix: &str, labels: &Labels<'_>, value: &str) {
        let _infallible = write!(self.text, "{}{suffix}", self.name);
        for (index, (name, label)) in labels.iter().enumerate() {
            let open = if index == 0 { '{' } else { ',' };
            let label = label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _infallible = write!(self.text, "{open}{name}=\"{label}\"");
        }
        let close = if labels.is_empty() { "" } else { "}" };
        let _infallible = writeln!(self.text, "{close} {value}");
    }
}

fn number(value: f64) -> String {
    if value == f64::INFINITY { "+Inf".to_owned() } else { value.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{
        counter::Histogram,
        families::{BUILD, RUN_TIME},
    };

    #[test]
    fn the_format_is_that_of_prometheus() {
        let mut text = Exposition::default();
        text.family(&BUILD);
        text.sample(&[("version", "a\\b\"c\nd"), ("commit", "é")], 1);
        text.value(&[], f64::INFINITY);
        text.value(&[], -0.5);
        text.family(&RUN_TIME);
        let histogram = Histogram::new(&[0.5, 10.0]);
        histogram.observe(std::time::Duration::from_millis(750));
        text.histogram(&[("provider", "gke")], &histogram.observed(0));
        insta::assert_snapshot!(text.into_text());
    }
}
