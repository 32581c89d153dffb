use tracing::Level;

use super::*;

const LEVELS: [Level; 5] = [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE];

/// The most detailed level that is written for our own cache, for HTTP/2, and for kube's requests.
fn levels(flags: u8, variables: &[(&str, &str)]) -> [Option<Level>; 3] {
    let variables = variables.iter().map(|(name, value)| (name.into(), value.into()));
    let (filter, problem) = choose(flags, &Environment(variables.collect()));
    assert_eq!(problem, None);
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
        choose(0, &Environment(variables.into())).1
    };
    for value in ["typo", "info,typo", "credbroker=typo", "=debug", "credbroker=", "info,", "x[y]=debug"] {
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
