//! The `exec` stanza, which kubeconfigs, cluster-inventory-api's provider file and our own config share.

use std::path::Path;

use super::{
    file::below,
    problem::Report,
    reader::{Cursor, Fields},
};
use crate::{
    credential::ApiVersion,
    plugin::{Command, is_denied},
    text::sanitize,
};

const KEYS: [&str; 7] =
    ["apiVersion", "command", "args", "env", "provideClusterInfo", "interactiveMode", "installHint"];

/// A stanza, checked. `Debug` is for its tests: variables and arguments may be secrets.
#[cfg_attr(test, derive(Debug))]
pub(super) struct Stanza {
    pub(super) api_version: ApiVersion,
    pub(super) command: Command,
    pub(super) args: Vec<String>,
    /// Without denied names.
    pub(super) env: Vec<(String, String)>,
    pub(super) provide_cluster_info: bool,
    /// `interactiveMode: Always`.
    pub(super) needs_terminal: bool,
    pub(super) install_hint: Option<String>,
}

/// Where a stanza stands, as far as its meaning depends on it.
#[derive(Clone, Copy, Debug)]
pub(super) struct StanzaRules<'a> {
    /// The directory of its file: relative commands are below it.
    pub(super) dir: &'a Path,
    /// Whether the provider says that a v1alpha1 plugin is meant.
    pub(super) accept_v1alpha1: bool,
    /// The host overrides `interactiveMode` with `Never`, so it may be absent.
    pub(super) never_interactive: bool,
}

/// Reads a stanza; `None` if anything is wrong with it.
pub(super) fn stanza(at: &Cursor<'_>, rules: StanzaRules<'_>, report: &mut Report) -> Option<Stanza> {
    let before = report.problems.len();
    let fields = at.fields(&KEYS, report)?;
    let api_version = api_version(at, &fields, rules, report);
    let command = command(at, &fields, rules, report);
    let args = fields.get("args").map(|args| args.texts(report)).unwrap_or_default();
    let args_with_nul = fields.get("args").filter(|_| args.iter().any(|arg| arg.contains('\0')));
    if let Some(args) = args_with_nul {
        args.problem(report, "an argument cannot hold a NUL");
    }
    let env = fields.get("env").map(|env| variables(&env, report)).unwrap_or_default();
    let provide_cluster_info =
        fields.get("provideClusterInfo").and_then(|value| value.boolean(report)).unwrap_or_default();
    let needs_terminal = needs_terminal(at, &fields, api_version, rules, report);
    let install_hint = fields.text("installHint", report).filter(|hint| !hint.is_empty()).map(sanitize);
    if report.problems.len() > before {
        return None;
    }
    Some(Stanza {
        api_version: api_version?,
        command: command?,
        args,
        env,
        provide_cluster_info,
        needs_terminal,
        install_hint,
    })
}

fn api_version(
    at: &Cursor<'_>,
    fields: &Fields<'_>,
    rules: StanzaRules<'_>,
    report: &mut Report,
) -> Option<ApiVersion> {
    let Some(value) = fields.get("apiVersion").filter(|value| value.node().as_str() != Some("")) else {
        at.problem(report, "apiVersion must be specified, like `client.authentication.k8s.io/v1`");
        return None;
    };
    match (ApiVersion::from_name(value.text(report)?), rules.accept_v1alpha1) {
        (Some(ApiVersion::V1Alpha1), false) => {
            value.problem(report, "v1alpha1 is no longer part of Kubernetes; for a plugin that knows nothing else, list it under `providers` with `acceptV1alpha1: true`");
            None
        }
        (Some(version), _) => Some(version),
        (None, _) => {
            value.problem(report, "invalid apiVersion: it must be `client.authentication.k8s.io/v1` or `client.authentication.k8s.io/v1beta1`");
            None
        }
    }
}

/// With a separator it is a path, never a name to look up; without one it is never a path.
fn command(
    at: &Cursor<'_>,
    fields: &Fields<'_>,
    rules: StanzaRules<'_>,
    report: &mut Report,
) -> Option<Command> {
    let Some(value) = fields.get("command").filter(|value| value.node().as_str() != Some("")) else {
        at.problem(report, "command must be specified");
        return None;
    };
    let command = value.text(report)?;
    if command.contains('\0') {
        value.problem(report, "cannot hold a NUL");
        return None;
    }
    if command.contains('/') {
        return Some(Command::Path(below(rules.dir, command)));
    }
    Some(Command::Name(command.to_owned()))
}

fn variables(env: &Cursor<'_>, report: &mut Report) -> Vec<(String, String)> {
    let variable = |item: &Cursor<'_>, report: &mut Report| {
        let fields = item.fields(&["name", "value"], report)?;
        let name = match fields.get("name") {
            Some(name) => name.text(report)?,
            None => "",
        };
        let value = match fields.get("value") {
            Some(value) => value.text(report)?,
            None => "",
        };
        if name.is_empty() {
            item.problem(report, "env variable name must be specified");
        } else if name.contains(['=', '\0']) || value.contains('\0') {
            item.problem(report, "a variable's name cannot hold `=`, and neither name nor value a NUL");
        } else if is_denied(name) {
            item.warning(report, format!("`{name}` never reaches a plugin; remove it"));
        } else {
            return Some((name.to_owned(), value.to_owned()));
        }
        None
    };
    env.items(report).iter().filter_map(|item| variable(item, report)).collect()
}

fn needs_terminal(
    at: &Cursor<'_>,
    fields: &Fields<'_>,
    api_version: Option<ApiVersion>,
    rules: StanzaRules<'_>,
    report: &mut Report,
) -> bool {
    let Some(value) = fields.get("interactiveMode").filter(|value| value.node().as_str() != Some("")) else {
        if api_version == Some(ApiVersion::V1) && !rules.never_interactive {
            at.problem(report, "interactiveMode must be specified: `Never` or `IfAvailable`");
        }
        return false;
    };
    let modes = [("Never", false), ("IfAvailable", false), ("Always", true)];
    let always = value.choice(&modes, report).unwrap_or_default() && !rules.never_interactive;
    if always {
        value.warning(report, "a broker has no terminal: every request of this provider is answered with an error until it is `Never` or `IfAvailable`");
    }
    always
}

#[cfg(test)]
mod tests;
