//! Logs on stderr.

use std::{io::IsTerminal as _, panic};

use tracing::error;
use tracing_subscriber::{
    filter::{LevelFilter, Targets},
    layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};

use super::logs::LogQueue;
use crate::plugin::Environment;

/// Unless somebody asks for more. kube tells of each failed request as an ERROR, without saying to whom it went, and as
/// often as it fails, and quotes answers that it does not understand as a whole; the hub's reader says the same in our
/// words, and goes quiet.
const DEFAULT: &str = "info,kube_client::client=off,kube_runtime::watcher=off";

/// How a log line looks.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people
    #[default]
    Text,
    /// One JSON object a line, for collectors
    Json,
}

/// Starts logging: times in UTC, colours only on a terminal and without `NO_COLOR`, levels from `CREDBROKER_LOG`
/// (`error`, `warn`, `info`, `debug`, `trace`, or directives such as `info,credbroker::cache=debug`). Panics are logged
/// too, instead of written to stderr, which may block.
///
/// What `CREDBROKER_LOG` gets wrong comes back as text; the default is used instead.
pub fn start(format: LogFormat, environment: &Environment) -> (LogQueue, Option<String>) {
    let asked = environment.get("CREDBROKER_LOG").map(|value| value.to_string_lossy().into_owned());
    // Not an `EnvFilter`: its expressions for fields of spans cost half a megabyte of memory.
    let asked = asked.as_deref().filter(|asked| !asked.is_empty()).map(str::parse::<Targets>);
    let (asked, problem) = match asked.transpose() {
        Ok(asked) => (asked, None),
        Err(error) => (None, Some(format!("CREDBROKER_LOG is not understood: {error}"))),
    };
    // Our own text, which a test parses.
    let filter = asked.or_else(|| DEFAULT.parse().ok()).unwrap_or_default();
    let plain = environment.get("NO_COLOR").is_some_and(|value| !value.is_empty());
    let queue = LogQueue::start(std::io::stderr(), |lines| {
        error!(lines, "log lines were dropped: they were not read fast enough");
    });
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::TRACE)
        .with_writer(queue.clone())
        // Otherwise it would write to stderr.
        .log_internal_errors(false)
        .with_ansi(!plain && std::io::stderr().is_terminal());
    // A second subscriber in one process (tests) is no problem of the user's.
    let _already = match format {
        LogFormat::Text => subscriber.with_target(false).finish().with(filter).try_init(),
        LogFormat::Json => subscriber.json().flatten_event(true).finish().with(filter).try_init(),
    };
    panic::set_hook(Box::new(log_panic));
    (queue, problem)
}

/// The place and, where it is a constant of the program, the message: a message made at run time may quote a secret.
fn log_panic(panic: &panic::PanicHookInfo<'_>) {
    let place = panic.location().map(ToString::to_string).unwrap_or_default();
    let message = panic.payload().downcast_ref::<&'static str>().copied().unwrap_or("(not shown)");
    error!(place, "panic: {message}; please report it");
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn the_default_shows_our_own_news_and_none_of_what_quotes_answers() {
        let filter: Targets = DEFAULT.parse().unwrap();
        assert!(filter.would_enable("credbroker::cache", &Level::INFO));
        assert!(!filter.would_enable("credbroker::cache", &Level::DEBUG));
        assert!(!filter.would_enable("kube_client::client::builder", &Level::ERROR));
    }
}
