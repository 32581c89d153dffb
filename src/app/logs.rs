//! Logs: for people or programs on stderr, or for the journal of systemd. Nothing waits for a reader of the log.

use std::{
    io::{self, IsTerminal as _, Write},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixDatagram,
    },
    panic,
    path::{Path, PathBuf},
    str::FromStr as _,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::{Errno, retry_on_intr},
};
use serde_json::{Map, Value};
use tracing::{Dispatch, dispatcher, error, warn};
use tracing_subscriber::{
    filter::{LevelFilter, Targets},
    fmt::layer,
    layer::{Layer as _, SubscriberExt as _},
    registry,
};

use super::queue::{Batch, ByteQueue};
use credbroker_credential::text::{escape_json, shown};
use credbroker_plugin::Environment;

/// The target of errors that end the process. Every filter lets them pass.
pub(super) const FATAL: &str = "credbroker::fatal";
const OURS: &str = "credbroker";
/// kube logs each failed request as an ERROR without its server, and quotes responses that it cannot decode; the hub's
/// reader logs these failures itself, without repeating them.
const SILENT: [&str; 2] = ["kube_client::client", "kube_runtime::watcher"];

/// What the subscriber writes after an escape character.
const COLOURS: [&str; 9] = ["[0m", "[1m", "[2m", "[3m", "[31m", "[32m", "[33m", "[34m", "[35m"];

/// How a log line looks.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub enum LogFormat {
    /// Lines for people
    Text,
    /// One JSON object per line, for log collectors
    Json,
}

/// Starts logging: times in UTC, colors only on a terminal and without `NO_COLOR`, levels from the number of `-v` flags,
/// `CREDBROKER_LOG` or `RUST_LOG`. Without a `format`, it is the fields of the journal if stderr leads to it, else lines for
/// people.
///
/// Also returns what is wrong with `CREDBROKER_LOG`, if the broker must not start.
pub fn start(
    format: Option<LogFormat>,
    verbose: u8,
    environment: &Environment,
) -> (LogQueue, Option<String>) {
    let (filter, ignored, problem) = match choose(verbose, environment) {
        Ok((filter, ignored)) => (filter, ignored, None),
        Err(problem) => (ours(LevelFilter::INFO), None, Some(problem)),
    };
    let stderr = io::stderr();
    let is_journal = format.is_none() && is_journal(&stderr, environment);
    let journal = is_journal.then(|| JournalSink::open(Path::new(SOCKET)).ok()).flatten();
    let colours = environment.set("NO_COLOR").is_none() && stderr.is_terminal();
    let form = if format == Some(LogFormat::Json) { LogForm::Json } else { LogForm::Text { colours } };
    let queue = match journal {
        Some(journal) => LogQueue::start(journal, LogForm::Journal, report_dropped),
        None => LogQueue::start(stderr, form, report_dropped),
    };
    // In tests, another subscriber may exist already.
    let _already = dispatcher::set_global_default(subscriber(&queue, filter));
    panic::set_hook(Box::new(log_panic));
    if let Some(ignored) = ignored {
        warn!("{ignored}");
    }
    (queue, problem)
}

fn subscriber(queue: &LogQueue, filter: Targets) -> Dispatch {
    let (form, queue) = (queue.form, queue.clone());
    // Internal errors would be written to stderr, past the queue.
    let events = layer().with_writer(move || queue.clone()).log_internal_errors(false);
    let events = match form {
        LogForm::Text { colours } => events.with_target(false).with_ansi(colours).boxed(),
        LogForm::Json => events.json().flatten_event(true).boxed(),
        LogForm::Journal => events.json().flatten_event(true).with_current_span(false).boxed(),
    };
    Dispatch::new(registry().with(events).with(filter))
}

fn report_dropped(lines: u64) {
    error!(lines, "log lines were dropped because they were not read fast enough");
}

/// Logs the location of a panic and, if it is a constant, its message: a message made at run time may contain a secret.
fn log_panic(panic: &panic::PanicHookInfo<'_>) {
    let place = panic.location().map(ToString::to_string).unwrap_or_default();
    let message = panic.payload().downcast_ref::<&'static str>().copied().unwrap_or("(not shown)");
    error!(place, "panic: {message}; please report it");
}

/// The filter of `-v` flags, else of `CREDBROKER_LOG`, else of `RUST_LOG`, else the default; and what is wrong with
/// `RUST_LOG`, which may be set for other programs, and is ignored then. A problem of `CREDBROKER_LOG` is an error.
///
/// A plain level is for our own modules; the libraries below write warnings and errors then. `RUST_LOG` means what it
/// means to every Rust program: a plain level is for all modules.
fn choose(flags: u8, environment: &Environment) -> Result<(Targets, Option<String>), String> {
    let value = |name| {
        let text = environment.get(name).map(|value| value.to_string_lossy().into_owned());
        text.filter(|text| !text.trim().is_empty())
    };
    let mut ignored = None;
    let filter = match (flags, value("CREDBROKER_LOG"), value("RUST_LOG")) {
        (1, ..) => ours(LevelFilter::DEBUG),
        (2, ..) => ours(LevelFilter::TRACE),
        (3.., ..) => Targets::new().with_default(LevelFilter::TRACE),
        (0, Some(value), _) => configured(&value)?,
        (0, None, Some(value)) => Targets::from_str(&value).unwrap_or_else(|error| {
            ignored = Some(format!("RUST_LOG is not valid and has no effect: {error}"));
            ours(LevelFilter::INFO)
        }),
        (0, None, None) => ours(LevelFilter::INFO),
    };
    Ok((filter.with_target(FATAL, LevelFilter::ERROR), ignored))
}

/// Our own events from `level` on, and warnings and errors of libraries.
fn ours(level: LevelFilter) -> Targets {
    let targets = Targets::new().with_default(level.min(LevelFilter::WARN)).with_target(OURS, level);
    targets.with_targets(SILENT.map(|target| (target, LevelFilter::OFF)))
}

/// The filter in the value of `CREDBROKER_LOG`. Not an `EnvFilter`, whose expressions for span fields cost half a megabyte
/// of memory.
///
/// Not parsed by `Targets`, which takes a word that is not a level for the name of a module.
fn configured(value: &str) -> Result<Targets, String> {
    let (mut default, mut named) = (LevelFilter::INFO, Vec::new());
    for directive in value.split(',') {
        let (target, level) = match directive.rsplit_once('=') {
            None => (None, directive.trim()),
            Some((target, level)) => (Some(target.trim()), level.trim()),
        };
        let is_valid = target.is_none_or(is_target) && !level.is_empty();
        let why = "is not valid; it must be one of off, error, warn, info, debug, trace, or MODULE=LEVEL";
        let level = level.parse().ok().filter(|_| is_valid);
        let level = level.ok_or_else(|| format!("CREDBROKER_LOG: `{}` {why}", shown(directive)))?;
        match target {
            None => default = level,
            Some(target) => named.push((target, level)),
        }
    }
    Ok(ours(default).with_targets(named))
}

fn is_target(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':' | '-');
    !name.is_empty() && name.chars().all(is_part)
}

/// Takes whole lines without waiting. Clones share one queue.
#[derive(Clone, Debug)]
pub struct LogQueue {
    bytes: ByteQueue,
    form: LogForm,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum LogForm {
    Text { colours: bool },
    Json,
    Journal,
}

impl LogQueue {
    /// A queue with a thread that writes to `sink`. `report` is called with the number of dropped lines as soon as writing
    /// works again.
    pub(super) fn start(
        mut sink: impl Write + AsFd + Send + 'static,
        form: LogForm,
        report: fn(u64),
    ) -> Self {
        let bytes = ByteQueue::default();
        // Without a thread it has ended.
        let _ended = bytes.start("log", move |batch| {
            // If the reader is gone or the disk is full, the lines are lost.
            if write_batch(&mut sink, &batch.bytes).is_err() {
                return batch.lost;
            }
            if batch.lost > 0 {
                report(batch.lost);
            }
            0
        });
        Self { bytes, form }
    }

    pub(super) async fn ended(&self) {
        self.bytes.ended().await;
    }

    /// Queues an error that ends the process, or counts it as dropped. People get it without time and level.
    pub fn line(&self, error: &str) {
        match self.form {
            LogForm::Text { .. } => self.bytes.push(format!("{error}\n").as_bytes()),
            LogForm::Json | LogForm::Journal => {
                for line in error.lines() {
                    error!(target: FATAL, "{line}");
                }
            }
        }
    }

    /// Waits until everything is written, at most for `limit`. If the thread that writes has ended, what it left is written
    /// to stderr.
    pub fn flush(&self, limit: Duration) {
        if self.bytes.has_ended() {
            let to_stderr = |batch: Batch| io::stderr().write_all(&batch.bytes).map_or(batch.records, |()| 0);
            let _not_started = self.bytes.start("log", to_stderr);
        }
        self.bytes.flush(limit);
    }
}

/// As `write_all`, but also if another process made the pipe or terminal non-blocking.
fn write_batch(sink: &mut (impl Write + AsFd), mut batch: &[u8]) -> io::Result<()> {
    while !batch.is_empty() {
        match sink.write(batch) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => batch = batch.get(written..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                retry_on_intr(|| poll(&mut [PollFd::new(sink, PollFlags::OUT)], None))?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The subscriber writes each event with one call.
impl Write for LogQueue {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        match (self.form, str::from_utf8(event)) {
            (LogForm::Text { colours }, Ok(text)) => self.bytes.push(one_line(text, colours).as_bytes()),
            (LogForm::Json, Ok(text)) => self.bytes.push(escape_json(text).as_bytes()),
            (LogForm::Journal, Ok(text)) => {
                self.bytes.push(journal_record(text).unwrap_or_default().as_bytes());
            }
            (_, Err(_)) => self.bytes.push(event),
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// `event` with escaped control characters, also line breaks, so that no value looks like another event or controls a
/// terminal: the subscriber escapes few of them, and only in messages. Tabs stay, and `colours`.
fn one_line(event: &str, colours: bool) -> String {
    let event = event.trim_end_matches('\n');
    let mut line = String::with_capacity(event.len() + 1);
    for (at, character) in event.char_indices() {
        let is_colour =
            || event.get(at + 1..).is_some_and(|rest| COLOURS.iter().any(|colour| rest.starts_with(colour)));
        match character {
            '\x1b' if colours && is_colour() => line.push(character),
            _ if character.is_control() && character != '\t' => line.extend(character.escape_debug()),
            _ => line.push(character),
        }
    }
    line + "\n"
}

/// Ends each record in the queue. A value can have any other byte.
const END: char = '\0';

const SOCKET: &str = "/run/systemd/journal/socket";

/// Whether `stderr` is the stream to the journal that systemd opened: `JOURNAL_STREAM` has its device and inode. A process
/// that was started by the service with another stderr inherits the variable, too.
fn is_journal(stderr: impl AsFd, environment: &Environment) -> bool {
    let named = environment.get("JOURNAL_STREAM");
    let found = rustix::fs::fstat(stderr).map(|stat| format!("{}:{}", stat.st_dev, stat.st_ino));
    named.is_some_and(|named| found.is_ok_and(|found| named == found.as_str()))
}

/// The fields of a datagram for journald, of an event in JSON: `NAME=VALUE` in lines of text. Every field of the event and of
/// its spans is `CREDBROKER_NAME`, so that `journalctl CREDBROKER_PROVIDER=gke` finds it. The message repeats them for
/// people, since `journalctl` shows only the message.
fn journal_record(event: &str) -> Option<String> {
    let mut event: Map<String, Value> = serde_json::from_str(event).ok()?;
    let text = |value: &Value| {
        value.as_str().map_or_else(|| value.to_string(), |text| text.replace(['\n', END], " "))
    };
    let mut take = |name| event.remove(name).unwrap_or_default();
    let (message, level, target, spans) = (take("message"), take("level"), take("target"), take("spans"));
    drop(take("timestamp"));
    let priority = match level.as_str() {
        Some("ERROR") => 3,
        Some("WARN") => 4,
        Some("INFO") => 6,
        _ => 7,
    };
    let (mut message, mut fields) = (text(&message), String::new());
    let of_spans = spans.as_array().into_iter().flatten().filter_map(Value::as_object).flatten();
    for (name, value) in of_spans.filter(|(name, _)| *name != "name").chain(&event) {
        let value = text(value);
        message.extend([" ", name, "=", &value]);
        fields.extend(["CREDBROKER_", &name.to_ascii_uppercase(), "=", &value, "\n"]);
    }
    let target = text(&target);
    Some(format!(
        "MESSAGE={message}\nPRIORITY={priority}\nSYSLOG_IDENTIFIER=credbroker\nTARGET={target}\n{fields}{END}"
    ))
}

/// Sends one datagram per record. Only the thread of the log queue waits for journald.
#[derive(Debug)]
struct JournalSink {
    socket: UnixDatagram,
    /// Resolved for each record: a journald that was restarted has another socket at this path.
    path: PathBuf,
}

impl JournalSink {
    /// Fails if journald does not take records there.
    fn open(path: &Path) -> io::Result<Self> {
        UnixDatagram::unbound()?.connect(path)?;
        Ok(Self { socket: UnixDatagram::unbound()?, path: path.to_owned() })
    }
}

impl Write for JournalSink {
    /// Takes the first record of `batch`.
    fn write(&mut self, batch: &[u8]) -> io::Result<usize> {
        let end = batch.iter().position(|byte| char::from(*byte) == END).unwrap_or(batch.len());
        let record = batch.get(..end).unwrap_or_default();
        match self.socket.send_to(record, &self.path) {
            // Without its largest values, which no event of ours has, it would fit. It is lost instead of all others.
            Err(error) if error.raw_os_error() == Some(Errno::MSGSIZE.raw_os_error()) => {}
            sent => drop(sent?),
        }
        Ok((end + 1).min(batch.len()))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for JournalSink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests;
