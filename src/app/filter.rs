//! Which log events are written.

use std::str::FromStr as _;

use tracing_subscriber::filter::{LevelFilter, Targets};

use credbroker_credential::text::shown;
use credbroker_plugin::Environment;

/// The target of errors that end the process. Every filter lets them pass.
pub(super) const FATAL: &str = "credbroker::fatal";
/// The prefix of the targets of our own crates.
const OURS: &str = "credbroker";
/// kube logs each failed request as an ERROR without its server, and quotes responses that it cannot decode; the hub's
/// reader logs these failures itself, without repeating them.
const SILENT: [&str; 2] = ["kube_client::client", "kube_runtime::watcher"];

/// What is wrong with a variable.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum FilterProblem {
    /// `CREDBROKER_LOG`, which only credbroker reads: the broker does not start.
    Fatal(String),
    /// `RUST_LOG`, which may be set for other programs: it is ignored.
    Ignored(String),
}

/// The filter of `-v` flags, else of `CREDBROKER_LOG`, else of `RUST_LOG`, else the default; and what is wrong with the
/// variable that should have set it.
///
/// A plain level is for our own modules; the libraries below write warnings and errors then. `RUST_LOG` means what it
/// means to every Rust program: a plain level is for all modules.
pub(super) fn choose(flags: u8, environment: &Environment) -> (Targets, Option<FilterProblem>) {
    let value = |name| {
        let text = environment.get(name).map(|value| value.to_string_lossy().into_owned());
        text.filter(|text| !text.trim().is_empty())
    };
    let chosen = match (flags, value("CREDBROKER_LOG"), value("RUST_LOG")) {
        (1, ..) => Ok(ours(LevelFilter::DEBUG)),
        (2, ..) => Ok(ours(LevelFilter::TRACE)),
        (3.., ..) => Ok(Targets::new().with_default(LevelFilter::TRACE)),
        (0, Some(value), _) => configured(&value).map_err(FilterProblem::Fatal),
        (0, None, Some(value)) => Targets::from_str(&value).map_err(|error| {
            FilterProblem::Ignored(format!("RUST_LOG is not valid and has no effect: {error}"))
        }),
        (0, None, None) => Ok(ours(LevelFilter::INFO)),
    };
    let (filter, problem) = match chosen {
        Ok(filter) => (filter, None),
        Err(problem) => (ours(LevelFilter::INFO), Some(problem)),
    };
    (filter.with_target(FATAL, LevelFilter::ERROR), problem)
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
        let level = level.parse().ok().filter(|_| is_valid).ok_or_else(|| {
            format!(
                "CREDBROKER_LOG: `{}` is not valid; it must be one of off, error, warn, info, debug, trace, or MODULE=LEVEL",
                shown(directive)
            )
        })?;
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

#[cfg(test)]
mod tests;
