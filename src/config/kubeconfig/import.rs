//! Each user that runs a plugin becomes a provider of that name.

use std::path::Path;

use super::{Kubeconfig, Mode, Named, cluster::Clusters};
use crate::{
    config::{
        problem::{Place, Report},
        provider::{Variables, provider},
        reader::{Cursor, Dialect},
        stanza::{StanzaRules, stanza},
    },
    document::Node,
    plugin::{Environment, Globs, Provider, identity_variables},
};

impl Kubeconfig {
    /// A provider for each user with an `exec` stanza that is not our own shim.
    ///
    /// It stands where client-go would have run the plugin, so the plugin gets the broker's environment but for what
    /// chooses an identity, which comes from whoever asks.
    pub(in crate::config) fn providers(
        &self,
        env: &Environment,
        mode: Mode,
        report: &mut Report,
    ) -> Vec<Provider> {
        // In files that a config lists one by one, the same name twice is a mistake, and is reported by our caller.
        let users = match mode {
            Mode::Named => self.files.iter().flat_map(super::KubeFile::users).collect(),
            Mode::Ambient => self.users(),
        };
        let variables =
            Variables { broker: env, pass_env: Globs::new(["*"]), caller_env: identity_variables() };
        let mut clusters = Clusters::of(self);
        let mut providers = Vec::new();
        for user in users {
            let mut found = Report::default();
            providers.extend(import(&user, &variables, &mut clusters, &mut found));
            match mode {
                Mode::Named => report.append(found),
                Mode::Ambient => report.append_as_warnings(found),
            }
        }
        providers
    }
}

fn import(
    user: &Named<'_>,
    variables: &Variables<'_>,
    clusters: &mut Clusters<'_>,
    report: &mut Report,
) -> Option<Provider> {
    let exec = exec(user)?;
    if is_shim(exec) {
        return None;
    }
    report.provider(place(user), user.name);
    let path = format!("user `{}`", user.name.escape_debug());
    let at = Cursor::new(user.file, Dialect::Kubeconfig, user.body).below(path.clone(), user.body);
    if user.name.is_empty() || user.name.chars().any(char::is_control) {
        at.problem(report, "a name is not empty and has no control characters");
    }
    if user.body.get("auth-provider").is_some_and(|value| !value.is_null()) {
        at.problem(report, "authProvider cannot be provided in combination with an exec plugin");
    }
    let rules = StanzaRules {
        dir: user.file.parent().unwrap_or(Path::new("/")),
        accept_v1alpha1: false,
        never_interactive: false,
    };
    let stanza = stanza(&at.below(format!("{path}.exec"), exec), rules, report);
    if !report.problems.is_empty() {
        return None;
    }
    let mut provider = provider(user.name, stanza?, variables);
    provider.clusters = clusters.of_user(user.name, report);
    Some(provider)
}

/// The `exec` stanza of a user.
pub(super) fn exec<'a>(user: &Named<'a>) -> Option<&'a Node> {
    user.body.get("exec").filter(|exec| !exec.is_null())
}

/// Whether an `exec` stanza runs credbroker's shim already.
pub fn is_shim(exec: &Node) -> bool {
    let command = exec.get("command").and_then(Node::as_str).unwrap_or_default();
    let first = exec.get("args").and_then(Node::as_sequence).and_then(<[Node]>::first).and_then(Node::as_str);
    match Path::new(command).file_name().and_then(|name| name.to_str()) {
        Some("credbroker-exec") => true,
        Some("credbroker") => first == Some("shim"),
        _ => false,
    }
}

/// Where `item` stands.
pub(super) fn place<'a>(item: &Named<'a>) -> Place<'a> {
    Place { file: item.file, at: item.at }
}
