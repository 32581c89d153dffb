//! Logs: for people or programs on stderr, or for the journal.

use std::{io::IsTerminal as _, panic, path::Path};

use tracing::{Dispatch, dispatcher, error};
use tracing_subscriber::{
    filter::Targets,
    fmt,
    layer::{Layer as _, SubscriberExt as _},
    registry,
};

use super::{
    filter::{self, FilterProblem},
    journal::{self, JournalFormat, JournalSink},
    logs::{LogForm, LogQueue},
};
use credbroker_plugin::Environment;

/// How a log line looks.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub enum LogFormat {
    /// Lines for people
    Text,
    /// One JSON object per line, for log collectors
    Json,
}

/// What the command line says about logs.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogOptions {
    /// `None`: the fields of the journal if stderr leads to it, else lines for people.
    pub format: Option<LogFormat>,
    /// The number of `-v` flags.
    pub verbose: u8,
}

/// Starts logging: times in UTC, colours only on a terminal and without `NO_COLOR`, levels from `-v`, `CREDBROKER_LOG`
/// or `RUST_LOG`. Panics are logged too. Nothing waits for a reader of the log.
///
/// Also returns what is wrong with the level; then the default is used.
pub fn start(options: LogOptions, environment: &Environment) -> (LogQueue, Option<FilterProblem>) {
    let (filter, problem) = filter::choose(options.verbose, environment);
    let stderr = std::io::stderr();
    let journal = (options.format.is_none() && journal::is_stream(&stderr, environment))
        .then(|| JournalSink::open(Path::new(journal::SOCKET)).ok())
        .flatten();
    let plain = environment.get("NO_COLOR").is_some_and(|value| !value.is_empty());
    let text = LogForm::Text { colours: !plain && stderr.is_terminal() };
    let queue = match (journal, options.format) {
        (Some(journal), _) => LogQueue::start(journal, LogForm::Journal, report_dropped),
        (None, Some(LogFormat::Json)) => LogQueue::start(stderr, LogForm::Json, report_dropped),
        (None, Some(LogFormat::Text) | None) => LogQueue::start(stderr, text, report_dropped),
    };
    // In tests, another subscriber may exist already.
    let _already = dispatcher::set_global_default(subscriber(&queue, filter));
    panic::set_hook(Box::new(log_panic));
    (queue, problem)
}

fn subscriber(queue: &LogQueue, filter: Targets) -> Dispatch {
    // Internal errors would be written to stderr, past the queue.
    let events = fmt::layer().with_writer(queue.clone()).log_internal_errors(false);
    let events = match queue.form() {
        LogForm::Text { colours } => events.with_target(false).with_ansi(colours).boxed(),
        LogForm::Json => events.json().flatten_event(true).boxed(),
        LogForm::Journal => events.fmt_fields(JournalFormat).event_format(JournalFormat).boxed(),
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

#[cfg(test)]
mod tests;
