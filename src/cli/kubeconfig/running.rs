//! Whether the running broker has definitions.

use std::{collections::HashSet, time::Duration};

use credbroker_client::{Client, Error};
use credbroker_exec::Failure;

use crate::cli::{broker::BrokerArgs, files::joined, screen::explained};
use credbroker_plugin::{Definition, Environment};

const PAUSE: Duration = Duration::from_millis(100);

/// Asks the broker until it has all `definitions`, which are digests, for at most its timeout. Returns why it has not.
pub(super) fn wait(
    definitions: &HashSet<String>,
    broker: &BrokerArgs,
    environment: &Environment,
) -> anyhow::Result<Result<Option<String>, Failure>> {
    let explanation = "credbroker: waiting until the broker has read the definitions ...";
    broker.try_ask(environment, async |client| {
        let mut missing = None;
        let waiting = async {
            loop {
                missing = look(&client, definitions).await?;
                if missing.is_none() {
                    return Ok(None);
                }
                tokio::time::sleep(PAUSE).await;
            }
        };
        let outcome = tokio::time::timeout(broker.timeout, explained(explanation, waiting)).await;
        outcome.unwrap_or(Ok(missing))
    })
}

/// Asks the broker once, and returns what to do until it has all of `definitions`.
pub(super) fn advice(
    definitions: &[(String, Definition)],
    broker: &BrokerArgs,
    environment: &Environment,
) -> anyhow::Result<String> {
    let mut files: Vec<_> = definitions.iter().map(|(_, definition)| definition.file()).collect();
    files.dedup();
    let (list, path) = (joined(&files, ", "), joined(&files, ":"));
    let add = format!(
        "Add `kubeconfigs: [{list}]` to its configuration, or if it has none set KUBECONFIG={path} for it and"
    );
    let digests = definitions.iter().map(|(_, definition)| definition.digest().to_owned()).collect();
    Ok(match broker.try_ask(environment, async |client| look(&client, &digests).await)? {
        Ok(None) => "The running broker has all of these providers.".to_owned(),
        Ok(Some(why)) => format!(
            "Requests of some users fail until the running broker knows them: {why}. {add} restart it."
        ),
        Err(Failure::Broker(Error::Unreachable { .. })) => format!("No broker is running. {add} start it."),
        Err(failure) => format!("The broker did not say which providers it has: {}.", failure.line(None)),
    })
}

async fn look(client: &Client, definitions: &HashSet<String>) -> Result<Option<String>, Error> {
    let providers = client.admin().providers().await?;
    let known: HashSet<_> = providers.into_iter().filter_map(|provider| provider.definition).collect();
    let count = definitions.difference(&known).count();
    if count == 0 {
        return Ok(None);
    }
    let broker = client.admin().broker_info().await?;
    let problems = broker.configuration.map(|state| state.problems).unwrap_or_default();
    let read = broker.config_files.join(", ");
    Ok(Some(match problems.as_slice() {
        [] => format!("it does not have {count} of the definitions, and reads {read}"),
        problems => format!("its files have problems: {}", problems.join("; ")),
    }))
}
