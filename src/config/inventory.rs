//! cluster-inventory-api's provider file, read as it is.
//!
//! Its readers link the plugin runner into a controller. The sidecar stands in for that controller, so a plugin gets
//! the broker's environment, and is never interactive, as there.

use std::path::Path;

use super::{
    problem::Report,
    provider::{POLICIES, Variables, name, profile_sourced, provider, warn_of_unlisted},
    reader::{Cursor, Dialect},
    stanza::{StanzaRules, stanza},
};
use crate::{
    document::Node,
    plugin::{Environment, Globs, Provider},
};

/// Whether this JSON document is such a file and not our own config.
pub(super) fn is_inventory(node: &Node) -> bool {
    let Some(entries) = node.as_mapping() else { return node.is_null() };
    !entries.iter().any(|(key, _)| key.name == "apiVersion" || key.name == "kind")
}

/// The providers of such a file.
pub(super) fn providers(path: &Path, node: &Node, env: &Environment, report: &mut Report) -> Vec<Provider> {
    if node.is_null() {
        return Vec::new();
    }
    let Some(fields) = Cursor::new(path, Dialect::Stock, node).fields(&["providers"], report) else {
        return Vec::new();
    };
    let items = fields.get("providers").map(|items| items.items(report)).unwrap_or_default();
    let dir = path.parent().unwrap_or(Path::new("/"));
    items.iter().filter_map(|item| section(item, dir, env, report)).collect()
}

fn section(at: &Cursor<'_>, dir: &Path, broker: &Environment, report: &mut Report) -> Option<Provider> {
    let [args_policy, env_policy] = POLICIES;
    let fields = at.fields(&["name", "execConfig", args_policy, env_policy], report)?;
    let name = name(at, fields.get("name").as_ref(), report);
    let sourced = profile_sourced(&fields, report);
    let Some(exec) = fields.get("execConfig") else {
        at.problem(report, "execConfig must be specified");
        return None;
    };
    let stanza = stanza(&exec, StanzaRules { dir, accept_v1alpha1: false, never_interactive: true }, report)?;
    let variables = Variables { broker, pass_env: Globs::new(["*"]), caller_env: Globs::default() };
    warn_of_unlisted(at, broker, &variables.pass_env, &variables.caller_env, report);
    let provider = provider(name?, stanza, &variables);
    Some(Provider { profile_sourced: Some(sourced), ..provider })
}
