//! The `exec` stanza, which kubeconfigs, cluster-inventory-api's provider file and our own config share.

use std::path::Path;

use super::{
    reader::Cursor,
    schema::{ConfigKey, Kind, Required},
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

impl<'a> StanzaRules<'a> {
    /// Those of a kubeconfig.
    pub(super) fn of_file(file: &'a Path) -> Self {
        let dir = file.parent().unwrap_or(Path::new("/"));
        Self { dir, accept_v1alpha1: false, never_interactive: false }
    }
}

/// Reads a stanza; `None` with problems in the report if it is not valid.
pub(super) fn stanza(fields: &Cursor<'_>, rules: StanzaRules<'_>) -> Option<Stanza> {
    let report = fields.report;
    let before = report.problems();
    let api_version = api_version(fields, rules);
    let command = command(fields, rules);
    let args = exec::ARGS.read(fields).unwrap_or_default();
    let env = exec::ENV.read(fields).unwrap_or_default();
    let env = env.iter().filter_map(variable).collect();
    let provide_cluster_info = exec::PROVIDE_CLUSTER_INFO.read(fields);
    let interactive = interactive(fields, api_version, rules);
    let install_hint = exec::INSTALL_HINT.read(fields).filter(|hint| !hint.is_empty());
    if report.problems() > before {
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
fn nonempty<'a, K: Kind>(key: &ConfigKey<K, Required>, fields: &Cursor<'a>) -> Option<Cursor<'a>> {
    let value = fields.get(key.name).filter(|value| value.node.as_str() != Some(""));
    value.or_else(|| key.missing(fields))
}

fn api_version(fields: &Cursor<'_>, rules: StanzaRules<'_>) -> Option<ApiVersion> {
    let value = nonempty(&exec::API_VERSION, fields)?;
    match (ApiVersion::from_name(value.text()?), rules.accept_v1alpha1) {
        (Some(ApiVersion::V1Alpha1), false) => value.reject("v1alpha1 is no longer part of Kubernetes; for a plugin that supports no other version, list it under `providers` with `acceptV1alpha1: true`"),
        (Some(version), _) => Some(version),
        // The text may be anything, so it is not quoted.
        (None, _) => value.reject("must be one of `client.authentication.k8s.io/v1`, `client.authentication.k8s.io/v1beta1`"),
    }
}

/// A command with a separator is a path; one without is a name to look up.
fn command(fields: &Cursor<'_>, rules: StanzaRules<'_>) -> Option<Command> {
    let value = nonempty(&exec::COMMAND, fields)?;
    let command = value.text()?;
    if command.contains('\0') {
        return value.reject("must not contain a NUL character");
    }
    if command.contains('/') {
        return Some(Command::Path(cleaned(&rules.dir.join(command))));
    }
    Some(Command::Name(command.to_owned()))
}

fn variable(fields: &Cursor<'_>) -> Option<(String, String)> {
    let name = fields.get(variable::NAME.name).map_or(Some(""), |name| name.text())?;
    let value = fields.get(variable::VALUE.name);
    let value = value.map_or(Some(String::new()), |value| variable::VALUE.kind.read(&value))?;
    if name.is_empty() {
        return fields.reject("env variable name must be specified");
    }
    if name.contains(['=', '\0']) {
        return fields.reject("the name must not contain `=` or a NUL character");
    }
    if is_denied(name) {
        fields.warning(format!("plugins never get `{name}`; remove it"));
        return None;
    }
    Some((name.to_owned(), value))
}

fn interactive(fields: &Cursor<'_>, version: Option<ApiVersion>, rules: StanzaRules<'_>) -> Interactive {
    let written = fields.get(exec::INTERACTIVE_MODE.name).filter(|value| value.node.as_str() != Some(""));
    if written.is_none() && version == Some(ApiVersion::V1) && !rules.never_interactive {
        fields.problem("interactiveMode must be specified: `Never`, `IfAvailable` or `Always`");
    }
    let mode = written.and_then(|value| exec::INTERACTIVE_MODE.kind.read(&value)).unwrap_or_default();
    if rules.never_interactive { Interactive::Never } else { mode }
}

#[cfg(test)]
mod tests;
