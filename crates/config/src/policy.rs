//! `credentialPluginPolicy` and `credentialPluginAllowlist`, with the checks of client-go (KEP-3104): a mistake in them must
//! not permit more than was meant.

use std::path::Path;

use super::{
    reader::Fields,
    table::{PolicyType, allowlist, root},
};
use credbroker_plugin::{PluginPolicy, cleaned};

/// Reads the policy. After a problem it permits nothing.
pub(super) fn policy(fields: &Fields<'_>) -> PluginPolicy {
    let report = fields.map.report;
    let before = report.problems();
    let kind = root::PLUGIN_POLICY.read(fields);
    let list = fields.get(root::PLUGIN_ALLOWLIST.name);
    let policy = match (kind, &list) {
        (PolicyType::Allowlist, Some(_)) => PluginPolicy::Allowlist(entries(fields)),
        (PolicyType::Allowlist, None) => {
            if let Some(kind) = fields.get(root::PLUGIN_POLICY.name) {
                kind.problem("is `Allowlist`, but there is no `credentialPluginAllowlist`");
            }
            PluginPolicy::DenyAll
        }
        (_, Some(list)) => {
            list.problem("has an effect only with `credentialPluginPolicy: Allowlist`");
            PluginPolicy::DenyAll
        }
        (PolicyType::AllowAll, None) => PluginPolicy::AllowAll,
        (PolicyType::DenyAll, None) => PluginPolicy::DenyAll,
    };
    if report.problems() > before { PluginPolicy::DenyAll } else { policy }
}

fn entries(root: &Fields<'_>) -> Vec<String> {
    let entry = |fields: &Fields<'_>| {
        let (at, text) = allowlist::COMMAND.read(fields)?;
        let clean = cleaned(Path::new(text));
        if text.is_empty() || text.contains('\0') || (text.contains('/') && !text.starts_with('/')) {
            at.problem("must be a name or an absolute path");
        } else if clean.as_os_str() != text {
            at.problem(format!("is not a clean path; write `{}`", clean.display()));
        }
        Some(text.to_owned())
    };
    let items = root::PLUGIN_ALLOWLIST.read(root).unwrap_or_default();
    if let Some(list) = root.get(root::PLUGIN_ALLOWLIST.name)
        && list.node.as_sequence().is_none_or(<[_]>::is_empty)
    {
        list.problem("is empty; to permit no plugin, use `credentialPluginPolicy: DenyAll`");
    }
    items.iter().filter_map(entry).collect()
}

#[cfg(test)]
mod tests;
