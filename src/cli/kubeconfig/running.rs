//! Whether the running broker has the definitions that were wrapped.

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
};

use credbroker_client::Error;
use credbroker_exec::Failure;

use crate::cli::broker::{SocketArg, TimeoutArg, ask};
use credbroker_credential::text::listed;
use credbroker_plugin::{Definition, Environment};

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
