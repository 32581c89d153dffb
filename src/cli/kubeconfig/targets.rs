//! Which users of which kubeconfigs `inject` changes.

use std::{collections::BTreeMap, io::Write, path::PathBuf};

use anyhow::Context as _;

use super::report;
use credbroker_config as config;
use credbroker_config::kubeconfig::Kubeconfig;
use credbroker_credential::{document::Node, text::listed};
use credbroker_plugin::{Definition, Environment};

/// Which users of one file are changed.
#[derive(Debug)]
pub(super) struct FilePlan {
    /// The path that identifies the file.
    pub(super) identity: PathBuf,
    pub(super) users: Vec<(String, Definition)>,
}

/// The users to change, by file.
pub(super) fn plans(
    kubeconfig: &Kubeconfig,
    contexts: &[String],
    environment: &Environment,
    err: &mut dyn Write,
) -> anyhow::Result<BTreeMap<PathBuf, FilePlan>> {
    let definitions = config::definitions(kubeconfig, environment);
    let wanted = users_of(kubeconfig, contexts)?;
    let is_wanted = |name: &str| wanted.as_ref().is_none_or(|wanted| wanted.iter().any(|user| user == name));
    report::warn(&definitions, err)?;
    let users = kubeconfig.users();
    let mut plans: BTreeMap<PathBuf, FilePlan> = BTreeMap::new();
    for (name, definition) in definitions.served.into_iter().filter(|(name, _)| is_wanted(name)) {
        let Some(user) = users.iter().find(|user| user.name == name) else { continue };
        let identity = user.identity.to_owned();
        let plan = plans.entry(user.file.to_owned()).or_insert(FilePlan { identity, users: Vec::new() });
        plan.users.push((name, definition));
    }
    Ok(plans)
}

/// The names of the users of `contexts`; `None`: of all contexts.
fn users_of(kubeconfig: &Kubeconfig, contexts: &[String]) -> anyhow::Result<Option<Vec<String>>> {
    if contexts.is_empty() {
        return Ok(None);
    }
    let all = kubeconfig.contexts();
    let user = |wanted: &String| {
        let context = all.iter().find(|context| context.name == wanted).with_context(|| {
            let names: Vec<_> = all.iter().map(|context| context.name.to_owned()).collect();
            format!("context `{}` not found; the contexts are: {}", wanted.escape_debug(), listed(&names))
        })?;
        let user = context.body.get("user").and_then(Node::as_str);
        Ok(user.with_context(|| format!("context `{}` has no user", wanted.escape_debug()))?.to_owned())
    };
    contexts.iter().map(user).collect::<anyhow::Result<_>>().map(Some)
}
