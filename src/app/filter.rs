//! Which log events are written.

use std::str::FromStr as _;

use tracing_subscriber::filter::{LevelFilter, Targets};

use crate::{plugin::Environment, text::shown};

/// The prefix of the targets of our own crates.
const OURS: &str = "credbroker";
/// kube logs each failed request as an ERROR without its server, and quotes responses that it cannot decode; the hub's
/// reader logs these failures itself, without repeating them.
const SILENT: [&str; 2] = ["kube_client::client", "kube_runtime::watcher"];

/// A filter, and what is wrong with the variable that should have set it.
#[derive(Debug)]
pub(super) struct Chosen {
    pub(super) filter: Targets,
    pub(super) problem: Option<FilterProblem>,
}

/// What is wrong with a variable.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum FilterProblem {
    /// `CREDBROKER_LOG`, which only credbroker reads: the broker does not start.
    Fatal(String),
    /// `RUST_LOG`, which may be set for other programs: it is ignored.
    Ignored(String),
}

/// The filter of `-v` flags, else of `CREDBROKER_LOG`, else of `RUST_LOG`, else the default.
///
/// A plain level is for our own modules; the libraries below write warnings and errors then. `RUST_LOG` means what it
/// means to every Rust program: a plain level is for all modules.
pub(super) fn choose(flags: u8, environment: &Environment) -> Chosen {
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
    match chosen {
        Ok(filter) => Chosen { filter, problem: None },
        Err(problem) => Chosen { filter: ours(LevelFilter::INFO), problem: Some(problem) },
    }
}

/// Our own events from `level` on, and warnings and errors of libraries.
fn ours(level: LevelFilter) -> Targets {
    let targets = Targets::new().with_default(level.min(LevelFilter::WARN)).with_target(OURS, level);
    targets.with_targets(SILENT.map(|target| (target, LevelFilter::OFF)))
}

/// The filter in the value of `CREDBROKER_LOG`. Not an `EnvFilter`, whose expressions for span fields cost half a megabyte
/// of memory.
///
/// A word without a level is refused: `Targets` takes it for the name of a module.
fn configured(value: &str) -> Result<Targets, String> {
    let mut filter = ours(LevelFilter::INFO);
    let directives = value.split(',').map(|directive| match directive.rsplit_once('=') {
        None => (directive, None, directive.trim()),
        Some((target, level)) => (directive, Some(target.trim()), level.trim()),
    });
    for (directive, target, level) in directives {
        let is_valid = target.is_none_or(is_target) && !level.is_empty();
        let level = level.parse().ok().filter(|_| is_valid).ok_or_else(|| {
            format!(
                "CREDBROKER_LOG: `{}` is not valid; it must be one of off, error, warn, info, debug, trace, or MODULE=LEVEL",
                shown(directive)
            )
        })?;
        filter = match target {
            None => ours(level).with_targets(without_defaults(&filter)),
            Some(target) => filter.with_target(target, level),
        };
    }
    Ok(filter)
}

/// The targets that earlier directives named.
fn without_defaults(filter: &Targets) -> Vec<(String, LevelFilter)> {
    let named = filter.iter().filter(|(target, _)| *target != OURS && !SILENT.contains(target));
    named.map(|(target, level)| (target.to_owned(), level)).collect()
}

fn is_target(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':' | '-');
    !name.is_empty() && name.chars().all(is_part)
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    const LEVELS: [Level; 5] = [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE];

    /// The most detailed level that is written for our own cache, for HTTP/2, and for kube's requests.
    fn levels(flags: u8, variables: &[(&str, &str)]) -> [Option<Level>; 3] {
        let variables = variables.iter().map(|(name, value)| (name.into(), value.into()));
        let chosen = choose(flags, &Environment(variables.collect()));
        assert_eq!(chosen.problem, None);
        ["credbroker::cache", "h2::codec::framed_write", "kube_client::client::builder"]
            .map(|target| LEVELS.into_iter().rev().find(|level| chosen.filter.would_enable(target, level)))
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
        assert_eq!(own("warn,credbroker::cache=debug"), [debug, warn, None]);
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
            choose(0, &Environment(variables.into())).problem
        };
        for value in ["typo", "info,typo", "credbroker=typo", "=debug", "credbroker=", "info,", "x[y]=debug"]
        {
            assert!(matches!(problem("CREDBROKER_LOG", value), Some(FilterProblem::Fatal(_))), "{value}");
        }
        let Some(FilterProblem::Fatal(fatal)) = problem("CREDBROKER_LOG", "info,credbroker=verbose") else {
            panic!("it is refused")
        };
        insta::assert_snapshot!(fatal, @"CREDBROKER_LOG: `credbroker=verbose` is not valid; it must be one of off, error, warn, info, debug, trace, or MODULE=LEVEL");
        let Some(FilterProblem::Ignored(ignored)) = problem("RUST_LOG", "credbroker=verbose") else {
            panic!("it is ignored")
        };
        insta::assert_snapshot!(ignored, @r#"RUST_LOG is not valid and has no effect: error parsing level filter: expected one of "off", "error", "warn", "info", "debug", "trace", or a number 0-5"#);
    }
}
