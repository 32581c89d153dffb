//! The `exec` stanza, which kubeconfigs, cluster-inventory-api's provider file and our own config share, and the provider
//! that it makes.

use std::{
    path::Path,
    sync::{Arc, LazyLock},
};

use super::{
    reader::Cursor,
    schema::{ConfigKey, Kind, Required},
    table::{exec, issuer, provider, variable},
};
use credbroker_credential::{ApiVersion, LifetimeLimits, text::sanitize};
use credbroker_plugin::{
    ClusterInfo, Command, Environment, Globs, Interactive, Issuer, Provider, ProviderState, Sandbox, cleaned,
    identity_variables, is_denied, may_select_identity,
};

/// Variables of terminals and desktops, which set them for every program.
const UNRELATED: [&str; 3] = ["ITERM_PROFILE", "KONSOLE_PROFILE_NAME", "XDG_ACTIVATION_TOKEN"];

/// Where a provider's environment comes from.
#[derive(Clone, Debug)]
pub(super) struct Variables<'a> {
    /// The broker's own.
    pub(super) broker: &'a Environment,
    pub(super) pass_env: Globs,
    pub(super) caller_env: Globs,
}

impl Variables<'_> {
    /// The variables of the broker's own environment that a plugin receives for every caller, and that look as if they
    /// selected an identity, although no list names them. Left out is what `pass_env` names without a `*`: that was chosen.
    pub(super) fn unlisted(&self) -> Vec<String> {
        static LISTED: LazyLock<Globs> = LazyLock::new(identity_variables);
        let is_unlisted = |name: &str| {
            may_select_identity(name)
                && !LISTED.matches(name)
                && !self.pass_env.lists(name)
                && !UNRELATED.contains(&name)
        };
        let inherited = self.broker.inherited(&self.pass_env, &self.caller_env);
        let names = inherited.0.iter().filter(|(_, value)| !value.is_empty()).map(|(name, _)| name.to_str());
        names.flatten().filter(|name| is_unlisted(name)).map(str::to_owned).collect()
    }
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

/// A provider called `name` with the default limits and an issuer of that name; `None` with problems in the report if the
/// stanza is not valid.
pub(super) fn stanza(
    fields: &Cursor<'_>,
    rules: StanzaRules<'_>,
    name: &str,
    variables: &Variables<'_>,
) -> Option<Provider> {
    let before = fields.report.problems();
    let api_version = api_version(fields, rules);
    let command = command(fields, rules);
    let args = exec::ARGS.read(fields).unwrap_or_default();
    let env = exec::ENV.read(fields).unwrap_or_default();
    let env = env.iter().filter_map(variable).collect();
    let provide_cluster_info = exec::PROVIDE_CLUSTER_INFO.read(fields);
    let interactive = interactive(fields, api_version, rules);
    let install_hint = exec::INSTALL_HINT.read(fields).filter(|hint| !hint.is_empty());
    if fields.report.problems() > before {
        return None;
    }
    Some(Provider {
        name: name.into(),
        definition: None,
        command: command?,
        args,
        env,
        inherited: variables.broker.inherited(&variables.pass_env, &variables.caller_env).into(),
        caller_env: variables.caller_env.clone(),
        refuses_other_identities: true,
        api_version: api_version?,
        provide_cluster_info,
        interactive,
        install_hint: install_hint.as_deref().map(sanitize),
        issuer: Arc::new(default_issuer(name.into())),
        sandbox: Sandbox::Compatible,
        sha256: None,
        policy: Arc::default(),
        timeout: provider::TIMEOUT.absent.0,
        interactive_timeout: provider::INTERACTIVE_TIMEOUT.absent.0,
        lifetime: LifetimeLimits {
            max_age: None,
            unknown_expiry_max_age: provider::UNKNOWN_EXPIRY_MAX_AGE.absent.0,
        },
        clusters: Vec::new(),
        cluster_info: ClusterInfo::FromCaller,
        verify: true,
        profile_sourced: None,
        profile_env: Globs::default(),
        state: ProviderState::default(),
    })
}

/// The issuer of that name without a section.
pub(super) fn default_issuer(name: Arc<str>) -> Issuer {
    let (runs_per_second, concurrency) = (issuer::RUNS_PER_SECOND.absent.0, issuer::CONCURRENCY.absent.0);
    Issuer { name, runs_per_second, concurrency }
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
