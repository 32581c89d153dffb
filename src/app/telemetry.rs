//! Logs: for people or programs on stderr, or for the journal.

use std::{io::IsTerminal as _, panic, path::Path};

use tracing::error;
use tracing_subscriber::{
    filter::{LevelFilter, Targets},
    layer::{Layer as _, SubscriberExt as _},
    registry,
    util::SubscriberInitExt as _,
};

use super::{
    filter::{self, FilterProblem},
    journal::{self, JournalSink},
    logs::{LogForm, LogQueue},
    records::RecordLayer,
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
    let queue = match (journal, options.format) {
        (Some(journal), _) => LogQueue::start(journal, LogForm::Journal, report_dropped),
        (None, Some(LogFormat::Json)) => LogQueue::start(stderr, LogForm::Json, report_dropped),
        (None, Some(LogFormat::Text) | None) => LogQueue::start(stderr, LogForm::Text, report_dropped),
    };
    let plain = environment.get("NO_COLOR").is_some_and(|value| !value.is_empty());
    subscribe(&queue, filter, !plain && std::io::stderr().is_terminal());
    panic::set_hook(Box::new(log_panic));
    (queue, problem)
}

fn subscribe(queue: &LogQueue, filter: Targets, colours: bool) {
    // In tests, another subscriber may exist already.
    let _already = if queue.form() == LogForm::Text {
        let lines = tracing_subscriber::fmt()
            .with_max_level(LevelFilter::TRACE)
            .with_writer(queue.clone())
            // They would be written to stderr, past the queue.
            .log_internal_errors(false)
            .with_ansi(colours);
        lines.with_target(false).finish().with(filter).try_init()
    } else {
        registry().with(RecordLayer { queue: queue.clone() }.with_filter(filter)).try_init()
    };
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
