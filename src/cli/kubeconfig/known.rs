//! Whether the running broker has the definitions of a kubeconfig.

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use credbroker_client::{Client, Error};
use credbroker_exec::Failure;

use crate::cli::{
    broker::{SocketArg, TimeoutArg, ask},
    progress::explained,
};
use credbroker_credential::text::listed;
use credbroker_plugin::{Definition, Environment};

const PAUSE: Duration = Duration::from_millis(100);

/// What the broker must have.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    /// Digests of definitions.
    pub(super) definitions: HashSet<String>,
    /// Files that it must have read.
    pub(super) files: HashSet<PathBuf>,
}

/// What the broker has.
#[derive(Debug)]
pub(super) enum Known {
    All,
    /// Why it does not have all of it, for a message.
    Missing(String),
}

/// Asks the broker until it has everything, for at most `limit`.
pub(super) fn wait(
    wanted: &Wanted,
    socket: &SocketArg,
    limit: Duration,
    environment: &Environment,
) -> anyhow::Result<Result<Known, Failure>> {
    let explanation = "credbroker: waiting until the broker has read the definitions ...";
    ask(socket, limit, environment, async |client| {
        let mut missing = String::new();
        let waiting = async {
            loop {
                match look(&client, wanted).await? {
                    Known::All => return Ok(Known::All),
                    Known::Missing(why) => missing = why,
                }
                tokio::time::sleep(PAUSE).await;
            }
        };
        let outcome = tokio::time::timeout(limit, explained(explanation, waiting)).await;
        outcome.unwrap_or(Ok(Known::Missing(missing)))
    })
}

async fn look(client: &Client, wanted: &Wanted) -> Result<Known, Error> {
    let broker = client.admin().broker_info().await?;
    let files: HashSet<_> = broker.config_files.iter().map(PathBuf::from).collect();
    let problems = broker.configuration.map(|state| state.problems).unwrap_or_default();
    if let Some(file) = wanted.files.iter().find(|file| !files.contains(*file)) {
        return Ok(Known::Missing(unread(file, &broker.config_files, &problems)));
    }
    let providers = client.admin().providers().await?;
    let known: HashSet<_> = providers.into_iter().filter_map(|provider| provider.definition).collect();
    if wanted.definitions.is_subset(&known) {
        return Ok(Known::All);
    }
    let count = wanted.definitions.difference(&known).count();
    Ok(Known::Missing(format!("it does not have {count} of the definitions; see `credbroker status`")))
}

fn unread(file: &Path, read: &[String], problems: &[String]) -> String {
    let file = file.display();
    match problems {
        [] => {
            format!("it does not read {file}, but {}; name its configuration with --config", read.join(", "))
        }
        problems => format!("its files have problems: {}", problems.join("; ")),
    }
}

/// Asks the broker, and returns what to do until it serves all of `definitions`.
pub(super) fn advice(
    socket: &SocketArg,
    timeout: &TimeoutArg,
    environment: &Environment,
    definitions: &[(String, Definition)],
) -> anyhow::Result<String> {
    let answer = ask(socket, timeout.limit, environment, async |client| {
        Ok((client.admin().providers().await?, client.admin().broker_info().await?))
    })?;
    let answer = answer.map(|(providers, broker)| {
        let known = providers.into_iter().filter_map(|known| known.definition).collect();
        let files = broker.config_files.iter();
        let files = files.flat_map(|file| [PathBuf::from(file)].into_iter().chain(fs::canonicalize(file)));
        let has_problems = broker.configuration.is_some_and(|state| !state.problems.is_empty());
        Running { known, files: files.collect(), has_problems }
    });
    Ok(text(definitions, answer.as_ref()))
}

/// What the broker says about itself.
struct Running {
    /// The digests of its definitions, each of which covers the name too.
    known: HashSet<String>,
    /// The files that it follows, with symbolic links and without.
    files: HashSet<PathBuf>,
    /// Whether its files have problems, so that it continues with an earlier version of them.
    has_problems: bool,
}

fn text(definitions: &[(String, Definition)], answer: Result<&Running, &Failure>) -> String {
    let Running { known, files, has_problems } = match answer {
        Ok(answer) => answer,
        Err(Failure::Broker(Error::Unreachable { .. })) => {
            return format!("No broker is running. {}", remedy(definitions, "start it"));
        }
        Err(failure) => {
            return format!("The broker did not say which providers it has: {}.", failure.line(None));
        }
    };
    let unknown: Vec<_> =
        definitions.iter().filter(|(_, definition)| !known.contains(definition.digest())).cloned().collect();
    let names: Vec<_> = unknown.iter().map(|(name, _)| name.clone()).collect();
    match (unknown.is_empty(), has_problems) {
        (true, false) => "The running broker has all of these providers.".to_owned(),
        (true, true) => {
            "The running broker has all of these providers, from an earlier version of its files: the files \
                         have problems now, which `credbroker status` shows."
                .to_owned()
        }
        (false, true) => format!(
            "The running broker does not have these definitions: {}. Its files have problems, which `credbroker status` \
             shows; it reads them again when they change.",
            listed(&names)
        ),
        (false, false) if unknown.iter().all(|(_, definition)| files.contains(definition.file())) => format!(
            "The running broker does not have these definitions yet: {}. It reads their files again within a few seconds. If it \
             reads a file only for the hub, add the file to `kubeconfigs` in its configuration.",
            listed(&names)
        ),
        (false, false) => format!(
            "The running broker does not have these definitions: {}. Until it does, requests for them fail. {}",
            listed(&names),
            remedy(&unknown, "restart it")
        ),
    }
}

/// How a broker gets to read the files that define these.
fn remedy(definitions: &[(String, Definition)], then: &str) -> String {
    let files: Vec<_> = files(definitions).into_iter().map(shown).collect();
    let list = |separator| files.join(separator);
    format!(
        "Add `kubeconfigs: [{}]` to its configuration, or if it has none set KUBECONFIG={} for it and {then}.",
        list(", "),
        list(":")
    )
}

fn files(definitions: &[(String, Definition)]) -> Vec<&Path> {
    let mut files: Vec<_> = definitions.iter().map(|(_, definition)| definition.file()).collect();
    files.sort_unstable();
    files.dedup();
    files
}

fn shown(file: &Path) -> String {
    file.display().to_string()
}

#[cfg(test)]
mod tests;
