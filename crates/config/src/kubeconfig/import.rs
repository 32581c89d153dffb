//! Each user that runs a plugin becomes a provider of that name.

use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{KubeFile, Kubeconfig, Mode, Named, cluster::ContextClusters};
use crate::{
    problem::{Location, Report},
    provider::{Variables, provider},
    reader::{Cursor, Dialect, whole},
    stanza::{StanzaRules, stanza},
    unlisted::{list, unlisted},
};
use credbroker_credential::document::Node;
use credbroker_plugin::{Definition, Environment, Globs, Issuer, Provider, identity_variables};

/// The environment of plugins from kubeconfigs: the broker's, except for what selects an identity, which comes from the
/// caller. That is the list of common variables, and what the configuration names besides (`more`).
pub(crate) fn variables(broker: &Environment, more: Globs) -> Variables<'_> {
    Variables { broker, pass_env: Globs::new(["*"]), caller_env: identity_variables().and(more) }
}

impl Kubeconfig {
    /// A provider for each user with an `exec` stanza that is not credbroker's shim. Two files may define users of one
    /// name: each definition is a provider.
    ///
    /// The plugin gets the broker's environment except for what chooses an identity, which comes from the caller, and
    /// `KUBECONFIG`, which is the list that the definition is from.
    pub(crate) fn providers(
        &self,
        variables: &Variables<'_>,
        mode: Mode,
        report: &mut Report,
    ) -> Vec<Provider> {
        let mut clusters = ContextClusters::of(self, mode);
        let (mut providers, mut first, mut defined) = (Vec::new(), HashMap::new(), HashSet::new());
        // A definition that is in its own file again is newer than the one that was moved.
        let (moved, own): (Vec<_>, Vec<_>) = self.files.iter().partition(|file| file.is_injected);
        let users = own
            .into_iter()
            .chain(moved)
            .flat_map(|file| file.items("users", "user").map(|user| (file.is_injected, user)));
        for (is_moved, user) in users {
            let place = (user.identity, user.name);
            if is_moved && defined.contains(&place) {
                continue;
            }
            let mut found = Report::default();
            let first = *first.entry(user.name).or_insert(user.identity);
            if let Some(mut provider) = import(&user, variables, &mut clusters, &mut found) {
                // In the whole list another definition would hide that of a later file.
                let own = [if is_moved { user.identity } else { user.file }.to_owned()];
                let is_first = first == user.identity && !self.list.is_empty();
                with_kubeconfig(&mut provider, if is_first { &self.list } else { &own });
                providers.push(provider);
                defined.insert(place);
            }
            match mode {
                Mode::Named => report.append(found),
                Mode::Ambient
                    if report.is_in_force(&Definition::new(user.identity.to_owned(), user.name)) =>
                {
                    report.append(found);
                }
                Mode::Ambient => report.append_as_warnings(found),
            }
        }
        providers
    }

    /// Warns of variables of the broker's own environment that may select an identity and are on no list: all callers
    /// get the broker's value.
    pub(crate) fn warn_of_unlisted(&self, variables: &Variables<'_>, report: &mut Report) {
        let Variables { broker, pass_env, caller_env } = variables;
        let names = unlisted(broker, pass_env, caller_env);
        let has_plugins = |file: &KubeFile| {
            file.items("users", "user").any(|user| exec(&user).is_some_and(|exec| !is_shim(exec)))
        };
        if let Some(file) = self.files.iter().find(|file| !names.is_empty() && has_plugins(file)) {
            let list = list(&names);
            report.warning(whole(&file.path), format!("the plugins of every caller receive these variables of the broker's own environment: {list}. If they select an identity, add `callerEnv: {list}` to the broker's configuration, beside `kubeconfigs`, and set CREDBROKER_CALLER_ENV={} for callers; otherwise unset them for the broker", names.join(",")));
        }
    }
}

fn import<'a>(
    user: &Named<'a>,
    variables: &Variables<'_>,
    clusters: &mut ContextClusters<'a>,
    report: &mut Report,
) -> Option<Provider> {
    let exec = exec(user)?;
    if is_shim(exec) {
        return None;
    }
    report.definition(place(user), user.name);
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
    let definition = Definition::new(user.identity.to_owned(), user.name);
    // Users of the same name in two files can have different issuers, so each is its own.
    let issuer = format!("{} ({})", user.name, definition.shown_file());
    provider.issuer = Arc::new(Issuer { name: issuer.into(), ..(*provider.issuer).clone() });
    provider.definition = Some(definition);
    provider.clusters = clusters.of_user(user, report);
    Some(provider)
}

/// Gives the plugin the kubeconfigs of `list`. A path with a colon cannot be in such a list; without it the plugin
/// reads its default.
pub(super) fn with_kubeconfig(provider: &mut Provider, list: &[PathBuf]) {
    const NAME: &str = "KUBECONFIG";
    let mut inherited = Environment::clone(&provider.inherited);
    match std::env::join_paths(list) {
        Ok(list) => inherited.0.insert(NAME.into(), list),
        Err(_) => inherited.0.remove(std::ffi::OsStr::new(NAME)),
    };
    provider.inherited = Arc::new(inherited);
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
        Some("credbroker" | "kubectl-credbroker") => first == Some("shim"),
        _ => false,
    }
}

/// The place of `item` in its file.
pub(super) fn place<'a>(item: &Named<'a>) -> Location<'a> {
    Location { file: item.file, at: item.at }
}
