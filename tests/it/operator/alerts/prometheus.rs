//! What Prometheus makes of real scrapes: `promtool` evaluates the shipped rules over them, one scrape a minute.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::Path,
    process::Command,
    time::{SystemTime, UNIX_EPOCH},
};

use credbroker_test_support::private_directory;

/// The labels that a `PodMonitor` gives every series of a target.
const TARGET: &str = r#"job="controllers/credbroker",instance="10.0.0.7:9464""#;

/// The series of one target at each minute.
#[derive(Debug)]
pub(super) struct Timeline {
    /// The time of the first scrape. promtool begins at 1970.
    begun: f64,
    minutes: Vec<BTreeMap<String, f64>>,
}

impl Timeline {
    pub(super) fn new(begun: SystemTime) -> Self {
        Self { begun: begun.duration_since(UNIX_EPOCH).unwrap().as_secs_f64(), minutes: Vec::new() }
    }

    /// The scrape of the next minute. `None`: it failed.
    pub(super) fn scraped(&mut self, text: Option<&str>) {
        let up = (format!("up{{{TARGET}}}"), f64::from(u8::from(text.is_some())));
        let samples = text.unwrap_or_default().lines().filter(|line| !line.starts_with('#')).map(|line| {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
            let comma = if labels == "}" { "" } else { "," };
            let is_time = name.ends_with("_timestamp_seconds") || name.ends_with("_start_time_seconds");
            let value: f64 = value.parse().unwrap();
            let value = if is_time { value - self.begun } else { value };
            (format!("{name}{{{TARGET}{comma}{labels}"), value)
        });
        self.minutes.push(samples.chain([up]).collect());
    }

    /// Adds a series of another exporter, with its value at each minute so far.
    pub(super) fn beside(&mut self, series: &str, value: impl Fn(usize) -> f64) {
        for (minute, samples) in self.minutes.iter_mut().enumerate() {
            samples.insert(series.to_owned(), value(minute));
        }
    }

    /// The names of all metrics.
    pub(super) fn names(&self) -> BTreeSet<&str> {
        let series = self.minutes.iter().flat_map(BTreeMap::keys);
        series.map(|series| series.split('{').next().unwrap()).collect()
    }

    /// Whether each expression has this value at the end, with the shipped rules. `None`: this machine has no promtool.
    pub(super) fn check(&self, expected: &[(String, &[&str])]) -> Option<Result<(), String>> {
        let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/observability/alerts.yaml");
        let mut test = format!(
            "rule_files: [{}]\nevaluation_interval: 1m\ntests:\n- interval: 1m\n  input_series:\n",
            rules.display()
        );
        let all: BTreeSet<_> = self.minutes.iter().flat_map(BTreeMap::keys).collect();
        for series in all {
            let values = self.minutes.iter().map(|samples| match samples.get(series) {
                // promtool has no notation for a value that is infinite.
                Some(value) if value.is_finite() => value.to_string(),
                _ => "_".to_owned(),
            });
            let values: Vec<_> = values.collect();
            let _infallible = writeln!(test, "  - series: '{series}'\n    values: '{}'", values.join(" "));
        }
        let minute = self.minutes.len() - 1;
        test.push_str("  promql_expr_test:\n");
        for (expression, alerts) in expected {
            let samples = alerts.iter().map(|labels| format!("{{labels: '{labels}', value: 1}}"));
            let samples = samples.collect::<Vec<_>>().join(", ");
            let expression = serde_json::Value::from(expression.as_str());
            let _infallible =
                writeln!(test, "  - {{expr: {expression}, eval_time: {minute}m, exp_samples: [{samples}]}}");
        }
        let directory = private_directory();
        let file = directory.path().join("test.yaml");
        fs::write(&file, &test).unwrap();
        let output = Command::new("promtool").args(["test", "rules"]).arg(&file).output().ok()?;
        let said = [output.stdout, output.stderr].concat();
        Some(if output.status.success() {
            Ok(())
        } else {
            Err(format!("{}\n{test}", String::from_utf8_lossy(&said)))
        })
    }
}
