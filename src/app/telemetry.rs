//! Logs on stderr.

use std::{io::IsTerminal as _, panic};

use tracing::error;
use tracing_subscriber::{
    filter::{LevelFilter, Targets},
    layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};

use super::logs::LogQueue;
use crate::{plugin::Environment, text::shown};

/// The filter without `CREDBROKER_LOG`. kube logs each failed request as an ERROR without its server, and quotes responses
/// that it cannot decode; the hub's reader logs these failures itself, without repeating them.
const DEFAULT: &str = "info,kube_client::client=off,kube_runtime::watcher=off";

/// How a log line looks.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, clap::ValueEnum)]
pub enum LogFormat {
    /// Lines for people
    #[default]
    Text,
    /// One JSON object per line, for log collectors
    Json,
}

/// Starts logging: times in UTC, colours only on a terminal and without `NO_COLOR`, levels from `CREDBROKER_LOG`
/// (`error`, `warn`, `info`, `debug`, `trace`, or directives such as `info,credbroker::cache=debug`). Panics are logged
/// too, instead of written to stderr, which may block.
///
/// Also returns why `CREDBROKER_LOG` is not valid; then the default is used.
pub fn start(format: LogFormat, environment: &Environment) -> (LogQueue, Option<String>) {
    let value = environment.get("CREDBROKER_LOG").map(|value| value.to_string_lossy().into_owned());
    let configured = value.filter(|value| !value.is_empty()).map(|value| filter(&value)).transpose();
    let (configured, problem) = match configured {
        Ok(configured) => (configured, None),
        Err(problem) => (None, Some(problem)),
    };
    // A test parses the default.
    let filter = configured.or_else(|| DEFAULT.parse().ok()).unwrap_or_default();
    let plain = environment.get("NO_COLOR").is_some_and(|value| !value.is_empty());
    let queue = LogQueue::start(std::io::stderr(), |lines| {
        error!(lines, "log lines were dropped because they were not read fast enough");
    });
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::TRACE)
        .with_writer(queue.clone())
        // They would be written to stderr, past the queue.
        .log_internal_errors(false)
        .with_ansi(!plain && std::io::stderr().is_terminal());
    // In tests, another subscriber may exist already.
    let _already = match format {
        LogFormat::Text => subscriber.with_target(false).finish().with(filter).try_init(),
        LogFormat::Json => subscriber.json().flatten_event(true).finish().with(filter).try_init(),
    };
    panic::set_hook(Box::new(log_panic));
    (queue, problem)
}

/// The filter in the value of `CREDBROKER_LOG`. Not an `EnvFilter`, whose expressions for span fields cost half a megabyte
/// of memory.
///
/// # Errors
///
/// Why it is not valid. A word without a level is refused: `Targets` takes it for the name of a module.
fn filter(value: &str) -> Result<Targets, String> {
    let is_valid = |directive: &str| {
        let (target, level) = directive.rsplit_once('=').unwrap_or(("all", directive));
        !target.trim().is_empty() && !level.trim().is_empty() && level.trim().parse::<LevelFilter>().is_ok()
    };
    match value.split(',').find(|directive| !is_valid(directive)) {
        Some(directive) => Err(format!(
            "CREDBROKER_LOG: `{}` is not valid; it must be one of off, error, warn, info, debug, trace, or MODULE=LEVEL",
            shown(directive)
        )),
        None => value.parse().map_err(|error| format!("CREDBROKER_LOG is not valid: {error}")),
    }
}

/// Logs the location of a panic and, if it is a constant, its message: a message made at run time may contain a secret.
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
    fn only_levels_and_modules_with_a_level_are_valid() {
        for value in ["debug", "INFO", "off", "info,credbroker::cache=debug", "warn, credbroker=trace"] {
            assert!(filter(value).is_ok(), "{value}");
        }
        for value in
            ["typo", "info,typo", "credbroker=typo", "=debug", "credbroker=", "info,", "x[y]=debug,z"]
        {
            assert!(filter(value).is_err(), "{value}");
        }
        insta::assert_snapshot!(filter("info,credbroker=verbose").unwrap_err(), @"CREDBROKER_LOG: `credbroker=verbose` is not valid; it must be one of off, error, warn, info, debug, trace, or MODULE=LEVEL");
    }

    #[test]
    fn the_default_logs_our_own_events_and_nothing_that_quotes_responses() {
        let filter: Targets = DEFAULT.parse().unwrap();
        assert!(filter.would_enable("credbroker::cache", &Level::INFO));
        assert!(!filter.would_enable("credbroker::cache", &Level::DEBUG));
        assert!(!filter.would_enable("kube_client::client::builder", &Level::ERROR));
    }
}
