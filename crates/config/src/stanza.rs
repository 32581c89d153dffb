//! The `exec` stanza, which kubeconfigs, cluster-inventory-api's provider file and our own config share.

use std::path::Path;

use super::{
    fields::Fields,
    keys::{ConfigKey, Kind as _, Required},
    problem::Report,
    reader::Cursor,
    table::{exec, variable},
};
use credbroker_credential::{ApiVersion, text::sanitize};
use credbroker_plugin::{Command, Interactive, cleaned, is_denied};

/// A stanza, checked. `Debug` is for its tests: variables and arguments may be secrets.
#[cfg_attr(test, derive(Debug))]
pub(super) struct Stanza {
    pub(super) api_version: ApiVersion,
    pub(super) command: Command,
    pub(super) args: Vec<String>,
    /// Without denied names.
    pub(super) env: Vec<(String, String)>,
    pub(super) provide_cluster_info: bool,
    pub(super) interactive: Interactive,
    pub(super) install_hint: Option<String>,
}

/// How a stanza is read, which depends on the file that it is in.
#[derive(Clone, Copy, Debug)]
pub(super) struct StanzaRules<'a> {
    /// The directory of its file, for relative commands.
    pub(super) dir: &'a Path,
    /// Whether the provider has `acceptV1alpha1`.
    pub(super) accept_v1alpha1: bool,
    /// The host overrides `interactiveMode` with `Never`, so it may be absent.
    pub(super) never_interactive: bool,
}

/// Reads a stanza; `None` with problems in `report` if it is not valid.
pub(super) fn stanza(at: &Cursor<'_>, rules: StanzaRules<'_>, report: &mut Report) -> Option<Stanza> {
    let before = report.problems.len();
    let fields = at.section(&exec::SECTION, report)?;
    let api_version = api_version(&fields, rules, report);
    let command = command(&fields, rules, report);
    let args = fields.at(&exec::ARGS).map(|args| args.texts(report)).unwrap_or_default();
    let args_with_nul = fields.at(&exec::ARGS).filter(|_| args.iter().any(|arg| arg.contains('\0')));
    if let Some(args) = args_with_nul {
        args.problem(report, "an argument must not contain a NUL character");
    }
    let env = fields.at(&exec::ENV).map(|env| variables(&env, report)).unwrap_or_default();
    let provide_cluster_info = exec::PROVIDE_CLUSTER_INFO.read(&fields, report);
    let interactive = interactive(at, &fields, api_version, rules, report);
    let install_hint = exec::INSTALL_HINT.read(&fields, report).filter(|hint| !hint.is_empty());
    if report.problems.len() > before {
        return None;
    }
    Some(Stanza {
        api_version: api_version?,
        command: command?,
        args,
        env,
        provide_cluster_info,
        interactive,
        install_hint: install_hint.as_deref().map(sanitize),
    })
}

/// The value of a required key, of which Go's zero value counts as absent.
fn nonempty<'a, K>(
    fields: &Fields<'a>,
    key: &ConfigKey<K, Required>,
    report: &mut Report,
) -> Option<Cursor<'a>> {
    let value = fields.get(key.name).filter(|value| value.node().as_str() != Some(""));
    if value.is_none() {
        fields.missing(key, report);
    }
    value
}

fn api_version(fields: &Fields<'_>, rules: StanzaRules<'_>, report: &mut Report) -> Option<ApiVersion> {
    let value = nonempty(fields, &exec::API_VERSION, report)?;
    match (ApiVersion::from_name(value.text(report)?), rules.accept_v1alpha1) {
        (Some(ApiVersion::V1Alpha1), false) => {
            value.problem(report, "v1alpha1 is no longer part of Kubernetes; for a plugin that supports no other version, list it under `providers` with `acceptV1alpha1: true`");
            None
        }
        (Some(version), _) => Some(version),
        (None, _) => {
            value.problem(
                report,
                "must be one of `client.authentication.k8s.io/v1`, `client.authentication.k8s.io/v1beta1`",
            );
            None
        }
    }
}

/// A command with a separator is a path; one without is a name to look up.
fn command(fields: &Fields<'_>, rules: StanzaRules<'_>, report: &mut Report) -> Option<Command> {
    let value = nonempty(fields, &exec::COMMAND, report)?;
    let command = value.text(report)?;
    if command.contains('\0') {
        value.problem(report, "must not contain a NUL character");
        return None;
    }
    if command.contains('/') {
        return Some(Command::Path(cleaned(&rules.dir.join(command))));
    }
    Some(Command::Name(command.to_owned()))
}

fn variables(env: &Cursor<'_>, report: &mut Report) -> Vec<(String, String)> {
    let variable = |item: &Cursor<'_>, report: &mut Report| {
        let fields = item.section(&variable::SECTION, report)?;
        let name = match fields.at(&variable::NAME) {
            Some(name) => name.text(report)?,
            None => "",
        };
        let value = match fields.at(&variable::VALUE) {
            Some(value) => value.text(report)?,
            None => "",
        };
        if name.is_empty() {
            item.problem(report, "env variable name must be specified");
        } else if name.contains(['=', '\0']) || value.contains('\0') {
            item.problem(
                report,
                "the name must not contain `=`, and name and value must not contain a NUL character",
            );
        } else if is_denied(name) {
            item.warning(report, format!("plugins never get `{name}`; remove it"));
        } else {
            return Some((name.to_owned(), value.to_owned()));
        }
        None
    };
    env.items(report).iter().filter_map(|item| variable(item, report)).collect()
}

fn interactive(
    at: &Cursor<'_>,
    fields: &Fields<'_>,
    api_version: Option<ApiVersion>,
    rules: StanzaRules<'_>,
    report: &mut Report,
) -> Interactive {
    let Some(value) = fields.at(&exec::INTERACTIVE_MODE).filter(|value| value.node().as_str() != Some(""))
    else {
        if api_version == Some(ApiVersion::V1) && !rules.never_interactive {
            at.problem(report, "interactiveMode must be specified: `Never`, `IfAvailable` or `Always`");
        }
        return if rules.never_interactive { Interactive::Never } else { Interactive::default() };
    };
    let mode = exec::INTERACTIVE_MODE.kind.read(&value, report).unwrap_or_default();
    if rules.never_interactive { Interactive::Never } else { mode }
}

#[cfg(test)]
mod tests;
