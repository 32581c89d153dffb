//! `credentialPluginPolicy` and `credentialPluginAllowlist`, with the checks of client-go (KEP-3104): a mistake in them must
//! not permit more than was meant.

use std::path::Path;

use super::{
    fields::Fields,
    problem::Report,
    reader::Cursor,
    table::{allowlist, root},
};
use credbroker_plugin::{PluginPolicy, cleaned};

/// The values of `credentialPluginPolicy`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum PolicyType {
    AllowAll,
    DenyAll,
    Allowlist,
}

/// Reads the policy. After a problem it permits nothing.
pub(super) fn policy(fields: &Fields<'_>, report: &mut Report) -> PluginPolicy {
    let before = report.problems.len();
    let kind = root::PLUGIN_POLICY.read(fields, report);
    let list = fields.at(&root::PLUGIN_ALLOWLIST);
    let policy = match (kind, &list) {
        (PolicyType::Allowlist, Some(list)) => PluginPolicy::Allowlist(entries(list, report)),
        (PolicyType::Allowlist, None) => {
            let message = "is `Allowlist`, but there is no `credentialPluginAllowlist`";
            if let Some(kind) = fields.at(&root::PLUGIN_POLICY) {
                kind.problem(report, message);
            }
            PluginPolicy::DenyAll
        }
        (_, Some(list)) => {
            list.problem(report, "has an effect only with `credentialPluginPolicy: Allowlist`");
            PluginPolicy::DenyAll
        }
        (PolicyType::AllowAll, None) => PluginPolicy::AllowAll,
        (PolicyType::DenyAll, None) => PluginPolicy::DenyAll,
    };
    if report.problems.len() > before { PluginPolicy::DenyAll } else { policy }
}

fn entries(list: &Cursor<'_>, report: &mut Report) -> Vec<String> {
    let items = list.items(report);
    if items.is_empty() {
        list.problem(report, "is empty; to permit no plugin, use `credentialPluginPolicy: DenyAll`");
    }
    let entry = |item: &Cursor<'_>, report: &mut Report| {
        let fields = item.section(&allowlist::SECTION, report)?;
        let command = fields.required(&allowlist::COMMAND, report)?;
        let text = command.text(report)?;
        if text.is_empty() || text.contains('\0') || (text.contains('/') && !text.starts_with('/')) {
            command.problem(report, "must be a name or an absolute path");
        } else if cleaned(Path::new(text)).as_os_str() != text {
            let clean = cleaned(Path::new(text));
            command.problem(report, format!("is not a clean path; write `{}`", clean.display()));
        }
        Some(text.to_owned())
    };
    items.iter().filter_map(|item| entry(item, report)).collect()
}

#[cfg(test)]
mod tests;
