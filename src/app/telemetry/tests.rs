use std::{
    io::{Read as _, pipe},
    time::Duration,
};

use tracing::{info, info_span, level_filters::LevelFilter};

use super::*;

/// What a queue of this form writes of `events`.
fn written(form: LogForm, events: impl FnOnce(&LogQueue)) -> String {
    let (mut reader, writer) = pipe().unwrap();
    let queue = LogQueue::start(writer, form, |_| {});
    let subscriber = subscriber(&queue, Targets::new().with_default(LevelFilter::INFO));
    dispatcher::with_default(&subscriber, || events(&queue));
    queue.flush(Duration::from_secs(60));
    let mut bytes = vec![0; 64 * 1024];
    let length = reader.read(&mut bytes).unwrap();
    String::from_utf8(bytes[..length].to_vec()).unwrap()
}

/// What a queue of this form writes of two events and a line.
fn sample(form: LogForm) -> String {
    written(form, |queue| {
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
        queue.line("config.yaml:1:1: first problem\nconfig.yaml:2:1: second problem");
    })
}

#[test]
fn json_lines_have_typed_values_and_the_spans() {
    let text = sample(LogForm::Json);
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
    insta::assert_snapshot!(sample(LogForm::Journal).replace('\0', "--\n"));
}

#[test]
fn an_event_is_one_line_and_controls_no_terminal() {
    let forged = "a\r\n2026-01-01T00:00:00Z  INFO b\x1b[2J\u{9b}2J\u{7f}\x0e\tc";
    let events = |_: &LogQueue| {
        info_span!("plugin_run", provider = %forged)
            .in_scope(|| info!(value = forged, shown = %forged, "{forged}"));
    };
    let text = written(LogForm::Text { colours: false }, events);
    insta::assert_snapshot!(text.split_once("Z  ").unwrap().1, @r#"INFO plugin_run{provider=a\r\n2026-01-01T00:00:00Z  INFO b\u{1b}[2J\u{9b}2J\u{7f}\u{e}	c}: a\r\n2026-01-01T00:00:00Z  INFO b\x1b[2J\u{9b}2J\x7f\u{e}	c value="a\r\n2026-01-01T00:00:00Z  INFO b\u{1b}[2J\u{9b}2J\u{7f}\u{e}\tc" shown=a\r\n2026-01-01T00:00:00Z  INFO b\u{1b}[2J\u{9b}2J\u{7f}\u{e}	c"#);
    let coloured = written(LogForm::Text { colours: true }, events);
    assert!(coloured.contains("\x1b[3mprovider\x1b[0m"), "{coloured}");
    assert!(!coloured.contains("\x1b[2J"), "{coloured}");
    assert!(!sample(LogForm::Text { colours: true }).contains("u{1b}"), "colours are not escaped");
    for line in [&text, &coloured] {
        let is_obeyed = |c: char| c.is_control() && !matches!(c, '\x1b' | '\t');
        assert!(!line.strip_suffix('\n').unwrap().contains(is_obeyed), "{line:?}");
    }
    let json = written(LogForm::Json, |queue| {
        events(queue);
        info!(name = "zero\u{200b}", "exe\u{202e}gpj");
    });
    let is_obeyed = |c: char| c.is_control() || matches!(c, '\u{200b}' | '\u{202e}');
    assert!(!json.lines().any(|line| line.contains(is_obeyed)), "{json:?}");
    let lines: Vec<serde_json::Value> =
        json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2);
    assert_eq!([&lines[0]["message"], &lines[0]["value"], &lines[0]["span"]["provider"]], [forged; 3]);
    assert_eq!((&lines[1]["message"], &lines[1]["name"]), (&"exe\u{202e}gpj".into(), &"zero\u{200b}".into()));
    let record = written(LogForm::Journal, events);
    let names: Vec<_> =
        record.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name).collect();
    let fields = ["CREDBROKER_PROVIDER", "CREDBROKER_VALUE", "CREDBROKER_SHOWN"];
    assert_eq!(names, [&["MESSAGE", "PRIORITY", "SYSLOG_IDENTIFIER", "TARGET"][..], &fields].concat());
}
