//! `credentialPluginPolicy` and `credentialPluginAllowlist`, with the checks of client-go (KEP-3104): a mistake in them must
//! not permit more than was meant.

use std::path::Path;

use super::{
    fields::Fields,
    problem::Report,
    reader::Cursor,
    table::{allowlist, root},
};
use crate::plugin::{PluginPolicy, cleaned};

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
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config::tests::{HEAD, Home, stanza};

    fn home(policy: &str) -> Home {
        Home::new(&format!("{HEAD}{policy}providers:\n- name: p\n  {}\n", stanza("x")))
    }

    #[test]
    fn the_policy_is_that_of_every_provider() {
        let listed = ["aws", "/usr/bin/gke"].map(str::to_owned).to_vec();
        for (text, expected) in [
            ("", PluginPolicy::AllowAll),
            ("credentialPluginPolicy: \"\"\n", PluginPolicy::AllowAll),
            ("credentialPluginPolicy: DenyAll\n", PluginPolicy::DenyAll),
            (
                "credentialPluginPolicy: Allowlist\ncredentialPluginAllowlist: [{command: aws}, {command: /usr/bin/gke}]\n",
                PluginPolicy::Allowlist(listed),
            ),
        ] {
            let providers = home(text).load().unwrap().config.providers;
            assert_eq!(providers.find("p").unwrap().policy, Arc::new(expected), "{text}");
        }
    }

    #[test]
    fn a_mistake_permits_nothing() {
        let allowlist = "credentialPluginPolicy: Allowlist\ncredentialPluginAllowlist: ";
        let mistakes = [
            "credentialPluginPolicy: Allowlist\n",
            "credentialPluginPolicy: allowAll\n",
            "credentialPluginAllowlist: [{command: aws}]\n",
            "credentialPluginPolicy: DenyAll\ncredentialPluginAllowlist: []\n",
            &format!("{allowlist}[]\n"),
            &format!("{allowlist}[{{}}]\n"),
            &format!("{allowlist}[{{command: \"\"}}]\n"),
            &format!(
                "{allowlist}[{{command: /usr//bin/aws}}, {{command: ./aws}}, {{command: /usr/bin/../aws}}]\n"
            ),
        ];
        let problems = mistakes.map(|text| format!("{text}{}", home(text).problems()));
        insta::assert_snapshot!(problems.join("\n\n"));
    }
}
