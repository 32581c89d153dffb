mod journal;

use std::{
    io::{PipeReader, Read as _, pipe},
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use tracing::{Level, info, info_span};

use super::{super::queue::PENDING, *};

const TEXT: LogForm = LogForm::Text { colours: false };
const AGES: Duration = Duration::from_secs(60);

fn read_all(mut reader: PipeReader) -> thread::JoinHandle<usize> {
    thread::spawn(move || {
        let mut text = Vec::new();
        reader.read_to_end(&mut text).unwrap();
        text.len()
    })
}

#[test]
fn lines_beyond_the_bound_are_dropped_and_counted_once_it_flows() {
    static REPORTED: AtomicU64 = AtomicU64::new(0);
    let (reader, writer) = pipe().unwrap();
    let queue = LogQueue::start(writer, TEXT, |dropped| {
        REPORTED.fetch_add(dropped, Ordering::SeqCst);
    });
    let line = [b'x'; 1024];
    let bound = 2 * PENDING / line.len() + 64; // of the queue, of the writer, of the pipe
    let lines = 2 * bound;
    for _ in 0..lines {
        queue.clone().write_all(&line).unwrap();
    }
    queue.flush(Duration::from_millis(1)); // returns although nothing is read
    assert!(queue.bytes.waiting().0 <= PENDING);
    let dropped = queue.bytes.waiting().1;
    assert!(dropped >= u64::try_from(lines - bound).unwrap(), "{dropped}");
    drop(read_all(reader));
    queue.flush(AGES);
    assert_eq!(REPORTED.load(Ordering::SeqCst), dropped);
    assert_eq!(queue.bytes.waiting().1, 0);
}

#[test]
fn a_pipe_that_does_not_block_loses_nothing() {
    let (reader, writer) = pipe().unwrap();
    rustix::io::ioctl_fionbio(&writer, true).unwrap();
    let lines = thread::spawn(move || {
        let mut sink = writer;
        for _ in 0..100 {
            write_batch(&mut sink, &[b'x'; 4096]).unwrap();
        }
    });
    assert_eq!(read_all(reader).join().unwrap(), 100 * 4096);
    lines.join().unwrap();
}

#[test]
fn a_reader_that_left_is_not_reported_over_and_over() {
    let (reader, writer) = pipe().unwrap();
    drop(reader);
    let queue = LogQueue::start(writer, TEXT, |_| panic!("without a reader there is nothing to report"));
    for _ in 0..PENDING {
        queue.line("line");
    }
    queue.flush(AGES);
    assert!(queue.bytes.waiting().0 == 0);
}

/// Panics when it is written to.
struct Broken(io::PipeWriter);

impl Write for Broken {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        panic!("broken on purpose")
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Broken {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[tokio::test]
async fn the_end_of_the_thread_that_writes_is_noticed_and_delays_no_flush() {
    let (_reader, writer) = pipe().unwrap();
    let queue = LogQueue::start(Broken(writer), TEXT, |_| {});
    queue.line("first");
    tokio::time::timeout(AGES, queue.ended()).await.expect("the end is noticed");
    queue.line("second");
    queue.flush(AGES);
    assert!(queue.bytes.waiting().0 == 0, "the rest went to stderr");
}

/// What a queue of this form writes of `events`.
fn written(form: LogForm, events: impl FnOnce(&LogQueue)) -> String {
    let (mut reader, writer) = pipe().unwrap();
    let queue = LogQueue::start(writer, form, |_| {});
    let subscriber = subscriber(&queue, Targets::new().with_default(LevelFilter::INFO));
    dispatcher::with_default(&subscriber, || events(&queue));
    queue.flush(AGES);
    let mut bytes = vec![0; 64 * 1024];
    let length = reader.read(&mut bytes).unwrap();
    String::from_utf8(bytes[..length].to_vec()).unwrap()
}

/// What a queue of this form writes of two events and a line.
fn sample(form: LogForm) -> String {
    written(form, |queue| {
        let span = info_span!("plugin_run", provider = %"gke", id = %"1234567812345678");
        span.in_scope(|| {
            info_span!("inner", id = %"ab", late = tracing::field::Empty).in_scope(|| {
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
            let value: Value = serde_json::from_str(line).unwrap();
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
    assert!(!sample(LogForm::Text { colours: true }).contains("u{1b}"), "colors are not escaped");
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
    let lines: Vec<Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2);
    assert_eq!([&lines[0]["message"], &lines[0]["value"], &lines[0]["span"]["provider"]], [forged; 3]);
    assert_eq!((&lines[1]["message"], &lines[1]["name"]), (&"exe\u{202e}gpj".into(), &"zero\u{200b}".into()));
    let record = written(LogForm::Journal, events);
    let names: Vec<_> =
        record.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name).collect();
    let fields = ["CREDBROKER_PROVIDER", "CREDBROKER_SHOWN", "CREDBROKER_VALUE"];
    assert_eq!(names, [&["MESSAGE", "PRIORITY", "SYSLOG_IDENTIFIER", "TARGET"][..], &fields].concat());
}

const LEVELS: [Level; 5] = [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE];

/// The most detailed level that is written for our own cache, for HTTP/2, and for kube's requests.
fn levels(flags: u8, variables: &[(&str, &str)]) -> [Option<Level>; 3] {
    let variables = variables.iter().map(|(name, value)| (name.into(), value.into()));
    let (filter, ignored) = choose(flags, &Environment(variables.collect())).unwrap();
    assert_eq!(ignored, None);
    assert!(filter.would_enable(FATAL, &Level::ERROR));
    ["credbroker_cache", "h2::codec::framed_write", "kube_client::client::builder"]
        .map(|target| LEVELS.into_iter().rev().find(|level| filter.would_enable(target, level)))
}

#[test]
fn a_level_is_for_our_own_modules() {
    let (warn, info) = (Some(Level::WARN), Some(Level::INFO));
    let (debug, trace) = (Some(Level::DEBUG), Some(Level::TRACE));
    let own = |value| levels(0, &[("CREDBROKER_LOG", value)]);
    assert_eq!(levels(0, &[]), [info, warn, None]);
    assert_eq!(own(""), [info, warn, None]);
    assert_eq!(own("debug"), [debug, warn, None]);
    assert_eq!(own("TRACE"), [trace, warn, None]);
    assert_eq!(own("error"), [Some(Level::ERROR), Some(Level::ERROR), None]);
    assert_eq!(own("off"), [None, None, None]);
    assert_eq!(own("h2=trace"), [info, trace, None]);
    assert_eq!(own("h2=trace, debug"), [debug, trace, None]);
    assert_eq!(own("warn,credbroker_cache=debug"), [debug, warn, None]);
    assert_eq!(own("kube_client::client=debug"), [info, warn, debug]);
}

#[test]
fn rust_log_means_what_it_means_elsewhere_and_flags_come_first() {
    let (warn, debug, trace) = (Some(Level::WARN), Some(Level::DEBUG), Some(Level::TRACE));
    let (rust, own) = (("RUST_LOG", "debug"), ("CREDBROKER_LOG", "warn"));
    assert_eq!(levels(0, &[rust]), [debug, debug, debug]);
    assert_eq!(levels(0, &[("RUST_LOG", "credbroker")]), [trace, None, None]);
    assert_eq!(levels(0, &[rust, own]), [warn, warn, None]);
    assert_eq!(levels(1, &[rust, own]), [debug, warn, None]);
    assert_eq!(levels(2, &[rust, own]), [trace, warn, None]);
    assert_eq!(levels(3, &[rust, own]), [trace, trace, trace]);
}

#[test]
fn other_values_are_refused() {
    let problem = |name: &str, value: &str| {
        let variables = [(name.into(), value.into())];
        choose(0, &Environment(variables.into())).map(|(_, ignored)| ignored)
    };
    for value in ["typo", "info,typo", "credbroker=typo", "=debug", "credbroker=", "info,", "x[y]=debug"] {
        assert!(problem("CREDBROKER_LOG", value).is_err(), "{value}");
    }
    let fatal = problem("CREDBROKER_LOG", "info,credbroker=verbose").unwrap_err();
    insta::assert_snapshot!(fatal, @"CREDBROKER_LOG: `credbroker=verbose` is not valid; it must be one of off, error, warn, info, debug, trace, or MODULE=LEVEL");
    let ignored = problem("RUST_LOG", "credbroker=verbose").unwrap().unwrap();
    insta::assert_snapshot!(ignored, @r#"RUST_LOG is not valid and has no effect: error parsing level filter: expected one of "off", "error", "warn", "info", "debug", "trace", or a number 0-5"#);
}
