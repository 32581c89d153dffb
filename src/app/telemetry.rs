//! Logs on stderr.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

use crate::plugin::Environment;

/// Unless somebody asks for more. kube tells of each failed request as an ERROR, without saying to whom it went, and as
/// often as it fails; the hub's reader says the same in our words, and goes quiet.
const DEFAULT: &str = "info,kube_client::client::builder=off,kube_runtime::watcher=off";

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
/// (`error`, `warn`, `info`, `debug`, `trace`, or directives such as `info,credbroker::cache=debug`).
///
/// What `CREDBROKER_LOG` gets wrong comes back as text; the default is used instead.
pub fn start(format: LogFormat, environment: &Environment) -> Option<String> {
    let asked = environment.get("CREDBROKER_LOG").map(|value| value.to_string_lossy().into_owned());
    let (filter, problem) = match asked.filter(|asked| !asked.is_empty()).map(EnvFilter::try_new) {
        Some(Ok(filter)) => (filter, None),
        Some(Err(error)) => {
            (EnvFilter::new(DEFAULT), Some(format!("CREDBROKER_LOG is not understood: {error}")))
        }
        None => (EnvFilter::new(DEFAULT), None),
    };
    let plain = environment.get("NO_COLOR").is_some_and(|value| !value.is_empty());
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // A line that cannot be written (the reader left, the disk is full) is lost. To tell would panic: on stderr.
        .log_internal_errors(false)
        .with_ansi(!plain && std::io::stderr().is_terminal());
    // A second subscriber in one process (tests) is no problem of the user's.
    let _already = match format {
        LogFormat::Text => subscriber.with_target(false).try_init(),
        LogFormat::Json => subscriber.json().flatten_event(true).try_init(),
    };
    problem
}
