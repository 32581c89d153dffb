use std::sync::Arc;

use super::*;
use crate::tests::{HEAD, Home, stanza};

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
