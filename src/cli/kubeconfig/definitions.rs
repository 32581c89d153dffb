//! What becomes of definitions: their plugins are recorded for the shim, and the running broker has them.

use std::{
    collections::{BTreeSet, HashSet},
    io::Write,
    path::{Path, PathBuf},
    time::Duration,
};

use credbroker_client::{Client, Error};
use credbroker_config::Definitions;
use credbroker_exec::{Failure, original_line, originals};
use credbroker_observe::clock::{Clock as _, SystemClock};
use credbroker_plugin::{Definition, Environment};

use crate::cli::{
    broker::BrokerArgs,
    files::{self, Locked, joined},
    programs,
    screen::explained,
};

/// Where the plugins are recorded that the shim may run where no broker answers; `None`: the user has no home.
pub(in crate::cli) fn recorded_plugins(environment: &Environment) -> Option<PathBuf> {
    let variable = |name| environment.set(name).map(Path::new);
    originals(variable("XDG_STATE_HOME"), variable("HOME"))
}

/// Records what the definitions run, and shows it. A plugin that is not installed is left out.
pub(super) fn record(
    definitions: &Definitions,
    environment: &Environment,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let Some(path) = recorded_plugins(environment) else { return Ok(()) };
    let (mut lines, mut programs) = (Vec::new(), BTreeSet::new());
    let current = definitions.served.iter().filter(|(_, definition)| !definition.is_outdated);
    for digest in current.map(|(_, definition)| &*definition.digest) {
        let command = definitions.commands.get(digest);
        let program = command.and_then(|command| programs::of_plugin(command, environment));
        lines.extend(program.as_ref().and_then(|program| Some((digest, original_line(digest, program)?))));
        programs.extend(program);
    }
    if lines.is_empty() {
        return Ok(());
    }
    let directory = path.parent().unwrap_or(Path::new("/"));
    files::check_directory(directory)?;
    files::private_directory(directory)?;
    let file = Locked::take(&path)?;
    let earlier = file.read_text()?.unwrap_or_default();
    let is_kept = |line: &&str| !lines.iter().any(|(digest, _)| line.starts_with(digest));
    let text: String = earlier.split_inclusive('\n').filter(is_kept).collect();
    file.write_private(&(text + &lines.iter().map(|(_, line)| line.as_str()).collect::<String>()))?;
    let programs = joined(programs, ", ");
    writeln!(out, "Where no broker answers, clients run the plugins themselves: {programs}")?;
    Ok(())
}

const PAUSE: Duration = Duration::from_millis(100);

/// Asks the broker until it has all `definitions`, for this long and at least once. Returns why it has not.
pub(super) fn missing<'a>(
    definitions: impl IntoIterator<Item = &'a Definition>,
    patience: Duration,
    broker: &BrokerArgs,
    environment: &Environment,
) -> anyhow::Result<Result<Option<String>, Failure>> {
    let digests: HashSet<_> = definitions.into_iter().map(|known| &*known.digest).collect();
    let explanation = "credbroker: waiting until the broker has read the definitions ...";
    let until = SystemClock.now().boot + patience;
    let ask = async |client: Client| loop {
        let providers = client.admin().providers().await?;
        let known: HashSet<_> =
            providers.iter().filter_map(|provider| provider.definition.as_deref()).collect();
        let count = digests.difference(&known).count();
        if count == 0 {
            return Ok(None);
        }
        if SystemClock.now().boot >= until {
            let broker = client.admin().broker_info().await?;
            let problems = broker.configuration.map(|state| state.problems).unwrap_or_default().join("; ");
            let read = broker.config_files.join(", ");
            return Ok(Some(match problems.as_str() {
                "" => format!("it does not have {count} of the definitions, and reads {read}"),
                problems => format!("its files have problems: {problems}"),
            }));
        }
        tokio::time::sleep(PAUSE).await;
    };
    broker.try_ask(environment, async |client| explained(explanation, ask(client)).await)
}

/// What to do until the broker has all of `definitions`.
pub(super) fn advice(
    definitions: &[(String, Definition)],
    broker: &BrokerArgs,
    environment: &Environment,
) -> anyhow::Result<String> {
    let definitions = definitions.iter().map(|(_, definition)| definition);
    let mut files: Vec<_> = definitions.clone().map(Definition::file).collect();
    files.dedup();
    let (list, path) = (joined(&files, ", "), joined(&files, ":"));
    let add = format!(
        "Add `kubeconfigs: [{list}]` to its configuration, or if it has none set KUBECONFIG={path} for it and"
    );
    Ok(match missing(definitions, Duration::ZERO, broker, environment)? {
        Ok(None) => "The running broker has all of these providers.".to_owned(),
        Ok(Some(why)) => format!(
            "Requests of some users fail until the running broker knows them: {why}. {add} restart it."
        ),
        Err(Failure::Broker(Error::Unreachable { .. })) => format!("No broker is running. {add} start it."),
        Err(failure) => format!("The broker did not say which providers it has: {}.", failure.line(None)),
    })
}
