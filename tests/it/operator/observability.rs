//! `deploy/observability` and the table in `docs/operations.md` name the metrics that exist.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use credbroker_observe::metrics::FAMILIES;

fn read(file: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap()
}

/// The metrics that `text` names, without the suffixes of histograms.
pub(super) fn named(text: &str) -> BTreeSet<&str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c| !is_part(c));
    let metrics = words.filter(|word| {
        ["credbroker_", "rest_client_", "process_"].iter().any(|start| word.starts_with(start))
    });
    let base = |name| ["_bucket", "_sum", "_count"].iter().find_map(|end| str::strip_suffix(name, end));
    metrics.map(|name| base(name).unwrap_or(name)).collect()
}

#[test]
fn dashboard_and_alerts_name_metrics_that_exist() {
    let known: BTreeSet<_> = FAMILIES.iter().map(|family| family.name).collect();
    for file in ["dashboard.json", "alerts.yaml", "alerts.test.yaml"] {
        let text = read(&format!("deploy/observability/{file}"));
        let unknown: Vec<_> = named(&text).into_iter().filter(|name| !known.contains(name)).collect();
        assert!(unknown.is_empty(), "deploy/observability/{file} names {unknown:?}");
    }
    let dashboard = read("deploy/observability/dashboard.json");
    let unused: Vec<_> = known.difference(&named(&dashboard)).copied().collect();
    assert_eq!(unused, ["rest_client_exec_plugin_certificate_rotation_age"], "metrics that no panel shows");
}

#[test]
fn the_dashboard_filters_every_series_by_labels_that_it_has() {
    let dashboard: serde_json::Value =
        serde_json::from_str(&read("deploy/observability/dashboard.json")).unwrap();
    let mut checked = 0;
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expression = target["expr"].as_str().unwrap();
            let unfiltered = FAMILIES.iter().find(|family| {
                let provider = expression.contains("provider=~");
                named(expression).contains(family.name) && provider && !family.labels.contains(&"provider")
            });
            assert!(unfiltered.is_none(), "{expression}: {unfiltered:?} has no label `provider`");
            checked += 1;
        }
    }
    assert!(checked > 15);
}

#[test]
fn promtool_accepts_the_alerts_and_each_of_them_fires() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/observability");
    for args in [["check", "rules", "alerts.yaml"], ["test", "rules", "alerts.test.yaml"]] {
        match Command::new("promtool").args(args).current_dir(&directory).output() {
            Err(_) => {
                return eprintln!("SKIPPED: no promtool on PATH (Debian's package `prometheus` has it)");
            }
            Ok(output) => {
                assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stdout));
            }
        }
    }
    let (alerts, tests) =
        (read("deploy/observability/alerts.yaml"), read("deploy/observability/alerts.test.yaml"));
    for alert in alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        assert!(tests.contains(&format!("alertname: {alert}\n")), "no case in which {alert} fires");
    }
}

#[test]
fn the_table_of_metrics_is_current() {
    const BEGIN: &str = "| Metric | Type | Labels | What it is |\n|---|---|---|---|\n";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/operations.md");
    let text = fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(BEGIN).expect("the table");
    let end = rest.find("\n\n").expect("text after the table") + 1;
    let rows = FAMILIES.iter().map(|family| {
        let labels: Vec<_> = family.labels.iter().map(|label| format!("`{label}`")).collect();
        let (name, kind) = (family.name, family.kind.as_str());
        format!("| `{name}` | {kind} | {} | {} |\n", labels.join(", "), family.help)
    });
    let current = rows.collect::<String>();
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, format!("{before}{BEGIN}{current}{}", &rest[end..])).unwrap();
        return;
    }
    assert_eq!(&rest[..end], current, "BLESS=1 cargo test --test it the_table_of_metrics_is_current");
}
