//! cluster-inventory-api's provider file, read as it is.
//!
//! Other readers of this file run the plugins inside a controller. The broker takes the controller's place, so a plugin
//! gets the broker's environment and is never interactive.

use std::path::Path;

use super::{
    problem::Report,
    provider::{Variables, caller_env, name, profile_sourced, provider, warn_of_unlisted},
    reader::{Cursor, Dialect},
    stanza::{StanzaRules, stanza},
    table::{provider as table, root},
};
use credbroker_credential::document::Node;
use credbroker_plugin::{Environment, Globs, Provider, Sandbox};

/// Whether this JSON document is a provider file and not our own configuration.
pub(super) fn is_inventory(node: &Node) -> bool {
    let Some(entries) = node.as_mapping() else { return node.is_null() };
    !entries.iter().any(|(key, _)| key.name == "apiVersion" || key.name == "kind")
}

/// The providers of such a file.
pub(super) fn providers(path: &Path, node: &Node, env: &Environment, report: &mut Report) -> Vec<Provider> {
    if node.is_null() {
        return Vec::new();
    }
    let Some(fields) = Cursor::new(path, Dialect::Stock, node).fields(&[root::PROVIDERS.name], report) else {
        return Vec::new();
    };
    let items = fields.at(&root::PROVIDERS).map(|items| items.items(report)).unwrap_or_default();
    let dir = path.parent().unwrap_or(Path::new("/"));
    items.iter().filter_map(|item| section(item, dir, env, report)).collect()
}

fn section(at: &Cursor<'_>, dir: &Path, broker: &Environment, report: &mut Report) -> Option<Provider> {
    // `callerEnv` is the broker's own key: other readers of the file ignore it.
    let (args, env) = (table::ARGS_POLICY.name, table::ENV_POLICY.name);
    let known = [table::NAME.name, table::EXEC_CONFIG.name, args, env, table::CALLER_ENV.name];
    let fields = at.fields(&known, report)?;
    let name = name(at, &fields, report);
    let sourced = profile_sourced(&fields, report);
    let exec = fields.required(&table::EXEC_CONFIG, report)?;
    let stanza = stanza(&exec, StanzaRules { dir, accept_v1alpha1: false, never_interactive: true }, report)?;
    let (caller_env, refuses_other_identities) = caller_env(&fields, report);
    let variables = Variables { broker, pass_env: Globs::new(["*"]), caller_env };
    warn_of_unlisted(at, &variables, "", report);
    let provider = provider(&name?, stanza, &variables);
    // The policies of this file have no list of names.
    let profile_env = Globs::new(["*"]);
    let (profile_sourced, sandbox) = (Some(sourced), Sandbox::Strict);
    Some(Provider { refuses_other_identities, sandbox, profile_sourced, profile_env, ..provider })
}

#[cfg(test)]
mod tests;
