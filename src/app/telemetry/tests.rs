use std::{
    io::{Read as _, pipe},
    time::Duration,
};

use tracing::{info, info_span, subscriber::with_default};

use super::*;

/// What a queue of this form writes of two events and a line.
fn written(form: LogForm) -> String {
    let (mut reader, writer) = pipe().unwrap();
    let queue = LogQueue::start(writer, form, |_| {});
    let layer = RecordLayer { queue: queue.clone() };
    with_default(registry().with(layer), || {
        let span = info_span!("plugin_run", provider = %"gke", key = %"1234567812345678");
        span.in_scope(|| {
            info_span!("inner", key = %"ab", late = tracing::field::Empty).in_scope(|| {
                tracing::Span::current().record("late", 7_u64);
                info!(
                    reason = "first",
                    outcome = "rotated",
                    duration_ms = 512_u64,
                    ratio = 0.5,
                    ok = true,
                    providers = ?["eks", "g k e"],
                    detail = ?Some("x"),
                    "the plugin ran: {}",
                    "twice\nin lines",
                );
            });
        });
        info!("without fields");
    });
    queue.line("config.yaml:1:1: first problem\nconfig.yaml:2:1: second problem");
    queue.flush(Duration::from_secs(60));
    let mut bytes = vec![0; 64 * 1024];
    let length = reader.read(&mut bytes).unwrap();
    String::from_utf8(bytes[..length].to_vec()).unwrap()
}

#[test]
fn json_lines_have_typed_values_and_the_span_once() {
    let text = written(LogForm::Json);
    let timeless: Vec<_> = text
        .lines()
        .map(|line| {
            let value: serde_json::Value = serde_json::from_str(line).unwrap();
            let time = value["timestamp"].as_str().unwrap();
            assert!(time.ends_with('Z') && time.starts_with("20"), "{time}");
            line.replace(time, "NOW")
        })
        .collect();
    insta::assert_snapshot!(timeless.join("\n"));
}

#[test]
fn records_of_the_journal_have_fields_and_a_priority() {
    insta::assert_snapshot!(written(LogForm::Journal).replace('\0', "--\n"));
}
