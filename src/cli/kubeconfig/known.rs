//! Waits until the running broker has definitions from the file that they were moved to.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    time::Duration,
};

use credbroker_client::{Client, Error};
use credbroker_exec::Failure;

use crate::cli::{
    broker::{SocketArg, ask},
    progress::explained,
};
use credbroker_plugin::Environment;

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
