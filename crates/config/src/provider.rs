//! Providers: the `exec` stanza, which kubeconfigs, cluster-inventory-api's provider file and our own configuration share, the
//! items of `providers`, and what they share: issuers with their rate limits, and the policy for plugins.

use std::{
    collections::{HashMap, HashSet},
    path::Path,
    sync::{Arc, LazyLock},
    time::Duration,
};

use super::{
    file::expand,
    problem::{Report, suggestion},
    schema::{ConfigKey, Cursor, Dialect, Kind, Required},
    table::{PolicyType, allowlist, exec, issuer, provider as table, root, variable},
};
use credbroker_credential::{ApiVersion, LifetimeLimits, document::Node, text::sanitize};
use credbroker_plugin::{
    ClusterInfo, Command, EnvPolicy, Environment, Globs, Interactive, Issuer, PluginPolicy, ProfileSourced,
    Provider, ProviderState, Sandbox, Sha256, cleaned, identity_variables, is_denied, may_select_identity,
    selects_account,
};

/// How long credbroker-exec waits for a response by default.
const SHIM: Duration = Duration::from_secs(45);
/// How much of that is needed besides the timeout: to wait for a slot, to end the run, and to respond.
const MARGIN: Duration = Duration::from_secs(5);

/// Plugins that take their identity from their environment, and some of the variables that they use.
const IDENTITIES: [(&str, &str, &str); 3] = [
    (
        "aws",
        "AWS_*",
        "AWS_PROFILE AWS_ACCESS_KEY_ID AWS_ROLE_ARN AWS_CONFIG_FILE AWS_CONTAINER_CREDENTIALS_FULL_URI",
    ),
    (
        "kubelogin",
        "AZURE_*",
        "AZURE_CLIENT_ID AZURE_FEDERATED_TOKEN_FILE AAD_LOGIN_METHOD AAD_SERVICE_PRINCIPAL_CLIENT_ID",
    ),
    ("gke-gcloud-auth-plugin", "CLOUDSDK_*", "CLOUDSDK_CONFIG GOOGLE_APPLICATION_CREDENTIALS"),
];

/// Variables of terminals and desktops, which set them for every program.
const UNRELATED: [&str; 3] = ["ITERM_PROFILE", "KONSOLE_PROFILE_NAME", "XDG_ACTIVATION_TOKEN"];

#[derive(Clone, Debug)]
pub(super) struct Variables<'a> {
    pub(super) broker: &'a Environment,
    pub(super) pass_env: Globs,
    pub(super) caller_env: Globs,
    /// The provider comes from a kubeconfig, so each account is that of the caller.
    pub(super) are_of_kubeconfig: bool,
}

impl Variables<'_> {
    /// What a plugin inherits from the broker.
    fn inherited(&self) -> Environment {
        let mut inherited = self.broker.inherited(&self.pass_env, &self.caller_env);
        inherited.0.retain(|name, _| !self.are_of_kubeconfig || !name.to_str().is_some_and(selects_account));
        inherited
    }

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
        let inherited = self.inherited();
        let names = inherited.0.iter().filter(|(_, value)| !value.is_empty()).map(|(name, _)| name.to_str());
        names.flatten().filter(|name| is_unlisted(name)).map(str::to_owned).collect()
    }
}

/// A provider called `name` with the default limits and an issuer of that name; `None` with problems in the report if the
/// stanza is not valid. `accepts_v1alpha1`: it may be one of an old plugin.
pub(super) fn stanza(
    fields: &Cursor<'_>,
    accepts_v1alpha1: bool,
    name: &str,
    variables: &Variables<'_>,
) -> Option<Provider> {
    let before = fields.report.problems();
    let api_version = api_version(fields, accepts_v1alpha1);
    let command = command(fields);
    let args = exec::ARGS.read(fields).unwrap_or_default();
    let env = exec::ENV.read(fields).unwrap_or_default();
    let env = env.iter().filter_map(variable).collect();
    let provide_cluster_info = exec::PROVIDE_CLUSTER_INFO.read(fields);
    let interactive = interactive(fields, api_version);
    let install_hint = exec::INSTALL_HINT.read(fields).filter(|hint| !hint.is_empty());
    if fields.report.problems() > before {
        return None;
    }
    Some(Provider {
        args,
        env,
        inherited: variables.inherited().into(),
        caller_env: variables.caller_env.clone(),
        refuses_other_identities: true,
        api_version: api_version?,
        provide_cluster_info,
        interactive,
        install_hint: install_hint.as_deref().map(sanitize),
        ..bare(name, command?)
    })
}

/// A provider with nothing but defaults, which receives nothing from callers.
pub(super) fn bare(name: &str, command: Command) -> Provider {
    Provider {
        name: name.into(),
        definition: None,
        stored: None,
        command,
        args: Vec::new(),
        env: Vec::new(),
        inherited: Arc::default(),
        caller_env: Globs::default(),
        refuses_other_identities: false,
        identity_files: Vec::new(),
        api_version: ApiVersion::V1,
        provide_cluster_info: false,
        interactive: Interactive::Never,
        install_hint: None,
        issuer: Arc::new(default_issuer(name.into())),
        sandbox: Sandbox::Compatible,
        sha256: None,
        policy: Arc::default(),
        timeout: table::TIMEOUT.absent.0,
        interactive_timeout: table::INTERACTIVE_TIMEOUT.absent.0,
        lifetime: LifetimeLimits {
            max_age: None,
            unknown_expiry_max_age: table::UNKNOWN_EXPIRY_MAX_AGE.absent.0,
        },
        clusters: Vec::new(),
        cluster_info: ClusterInfo::FromCaller,
        verify: true,
        profile_sourced: None,
        profile_env: Globs::default(),
        state: ProviderState::default(),
    }
}

pub(super) fn default_issuer(name: Arc<str>) -> Issuer {
    let (runs_per_second, concurrency) = (issuer::RUNS_PER_SECOND.absent.0, issuer::CONCURRENCY.absent.0);
    Issuer { name, runs_per_second, concurrency }
}

/// The value of a required key, of which Go's zero value counts as absent.
fn nonempty<'a, K: Kind>(key: &ConfigKey<K, Required>, fields: &Cursor<'a>) -> Option<Cursor<'a>> {
    let value = fields.get(key.name).filter(|value| value.node.as_str() != Some(""));
    value.or_else(|| key.missing(fields))
}

fn api_version(fields: &Cursor<'_>, accepts_v1alpha1: bool) -> Option<ApiVersion> {
    let value = nonempty(&exec::API_VERSION, fields)?;
    match (ApiVersion::from_name(value.text()?), accepts_v1alpha1) {
        (Some(ApiVersion::V1Alpha1), false) => value.reject("v1alpha1 is no longer part of Kubernetes; for a plugin that supports no other version, list it under `providers` with `acceptV1alpha1: true`"),
        (Some(version), _) => Some(version),
        // The text may be anything, so it is not quoted.
        (None, _) => value.reject("must be one of `client.authentication.k8s.io/v1`, `client.authentication.k8s.io/v1beta1`"),
    }
}

/// A command with a separator is a path; one without is a name to look up.
fn command(fields: &Cursor<'_>) -> Option<Command> {
    let value = nonempty(&exec::COMMAND, fields)?;
    let command = value.text()?;
    if command.contains('\0') {
        return value.reject("must not contain a NUL character");
    }
    if command.contains('/') {
        return Some(Command::Path(cleaned(&fields.dir().join(command))));
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

fn interactive(fields: &Cursor<'_>, version: Option<ApiVersion>) -> Interactive {
    // Other readers of a provider file override the mode with `Never`, so it may be absent.
    let is_never = fields.dialect == Dialect::Stock;
    let written = fields.get(exec::INTERACTIVE_MODE.name).filter(|value| value.node.as_str() != Some(""));
    if written.is_none() && version == Some(ApiVersion::V1) && !is_never {
        fields.problem("interactiveMode must be specified: `Never`, `IfAvailable` or `Always`");
    }
    let mode = written.and_then(|value| exec::INTERACTIVE_MODE.kind.read(&value)).unwrap_or_default();
    if is_never { Interactive::Never } else { mode }
}

/// What a provider takes of ClusterProfiles. Go's zero value, which cluster-inventory-api writes, is `Ignore`.
fn profile_sourced(fields: &Cursor<'_>) -> ProfileSourced {
    ProfileSourced { args: table::ARGS_POLICY.read(fields), env: table::ENV_POLICY.read(fields) }
}

/// The variables that profiles may set. Warns if that and the policy do not fit.
fn profile_env(fields: &Cursor<'_>, sourced: ProfileSourced) -> Globs {
    let takes = sourced.env != EnvPolicy::Ignore;
    match fields.get(table::PROFILE_ENV.name) {
        Some(value) if !takes => value.warning("has no effect without `profileSourcedEnvVarsPolicy`"),
        None if takes => fields.warning("no ClusterProfile may set a variable, although `profileSourcedEnvVarsPolicy` allows variables; name the variables in `profileEnv`"),
        _ => {}
    }
    table::PROFILE_ENV.read(fields).map(Globs::new).unwrap_or_default()
}

/// The variables that the provider takes from callers, and whether it refuses those who select another identity. An empty
/// list that is written out means the broker's identity for every caller.
fn caller_env(fields: &Cursor<'_>) -> (Globs, bool) {
    let written = table::CALLER_ENV.read(fields);
    let refuses_other_identities = written.as_ref().is_none_or(|patterns| !patterns.is_empty());
    (written.map(Globs::new).unwrap_or_default(), refuses_other_identities)
}

fn name(fields: &Cursor<'_>) -> Option<String> {
    let name = table::NAME.read(fields)?;
    fields.report.provider(fields.place(), &name, false);
    Some(name)
}

/// What applies without `clusterInfo`. With access rules, the caller may be another user, so it cannot choose the cluster.
pub(super) fn cluster_info(provider: &Provider, has_rules: bool) -> ClusterInfo {
    if has_rules && provider.provide_cluster_info { ClusterInfo::Match } else { ClusterInfo::FromCaller }
}

/// One item of `providers` in our own configuration. `has_rules`: it has access rules.
pub(super) fn section(fields: &Cursor<'_>, broker: &Environment, has_rules: bool) -> Option<Provider> {
    let name = name(fields);
    let profile_sourced = profile_sourced(fields);
    let profile_env = profile_env(fields, profile_sourced);
    let written = table::CLUSTER_INFO.read(fields);
    let verify = table::VERIFY.read(fields);
    let accept_v1alpha1 = table::ACCEPT_V1ALPHA1.read(fields);
    let pass_env = table::PASS_ENV.read(fields).map(Globs::new).unwrap_or_default();
    let (caller_env, refuses_other_identities) = caller_env(fields);
    let identity_files = table::IDENTITY_FILES.read(fields).unwrap_or_default();
    let identity_files = identity_files.iter().map(|path| fields.dir().join(expand(path, broker))).collect();
    let issuer = table::ISSUER.read(fields);
    let sandbox = table::SANDBOX.read(fields);
    let sha256 = table::SHA256.read(fields).and_then(|text| Sha256::from_hex(&text));
    let (timeout, interactive_timeout) =
        (table::TIMEOUT.read(fields), table::INTERACTIVE_TIMEOUT.read(fields));
    if let Some(value) = fields.get(table::TIMEOUT.name)
        && timeout >= SHIM.saturating_sub(MARGIN)
    {
        value.warning(format!("credbroker-exec waits {} s by default, so it may stop before the run ends; set a longer `--timeout` (such as `--timeout=2m`, in the `args` of the kubeconfig), or less than {} s here", SHIM.as_secs(), SHIM.saturating_sub(MARGIN).as_secs()));
    }
    let max_age = table::MAX_AGE.read(fields);
    let unknown_expiry_max_age = table::UNKNOWN_EXPIRY_MAX_AGE.read(fields);
    let exec = table::EXEC_CONFIG.read(fields)?;
    let variables = Variables { broker, pass_env, caller_env, are_of_kubeconfig: false };
    let provider = stanza(&exec, accept_v1alpha1, name.as_deref().unwrap_or_default(), &variables)?;
    if variables.caller_env.matches("PATH") {
        fields.warning("callerEnv covers `PATH`: the plugin does not get the broker's `PATH`, so a command without a path is not found");
    }
    warn_of_missing_identity(fields, &provider, &variables);
    warn_of_unlisted(fields, &variables, "name them in `passEnv` without a `*` to use the broker's, or ");
    name?;
    let issuer = issuer.map(|name| Arc::new(Issuer { name: name.into(), ..(*provider.issuer).clone() }));
    Some(Provider {
        issuer: issuer.unwrap_or_else(|| Arc::clone(&provider.issuer)),
        profile_sourced: Some(profile_sourced),
        profile_env,
        refuses_other_identities,
        identity_files,
        cluster_info: written.unwrap_or_else(|| cluster_info(&provider, has_rules)),
        verify,
        sandbox,
        sha256,
        timeout,
        interactive_timeout,
        lifetime: LifetimeLimits { max_age, unknown_expiry_max_age },
        ..provider
    })
}

/// Warns of variables that [`Variables::unlisted`] finds. `or` is a remedy that comes before the other one.
fn warn_of_unlisted(at: &Cursor<'_>, variables: &Variables<'_>, or: &str) {
    let names = variables.unlisted();
    if !names.is_empty() {
        let list = names.join(", ");
        at.warning(format!("every caller gets the broker's values of variables that its own environment sets: [{list}]. If they select an identity, {or}add `callerEnv: [{list}]` and set CREDBROKER_CALLER_ENV={} for callers to use theirs", names.join(",")));
    }
}

fn warn_of_missing_identity(at: &Cursor<'_>, provider: &Provider, variables: &Variables<'_>) {
    let program = provider.command.program();
    let Some((program, glob, names)) = IDENTITIES.iter().find(|(name, ..)| Some(*name) == program) else {
        return;
    };
    let reaches = |name: &str| {
        let is_set = provider.env.iter().any(|(set, _)| set == name);
        is_set || variables.pass_env.matches(name) || variables.caller_env.matches(name)
    };
    if !names.split(' ').any(reaches) {
        at.warning(format!("`{program}` gets no variable like `{glob}`, so it may not find its identity; add `passEnv: [\"{glob}\"]`, or `callerEnv` if each caller has its own"));
    }
}

/// Whether this JSON document is cluster-inventory-api's provider file and not our own configuration.
pub(super) fn is_inventory(node: &Node) -> bool {
    let Some(entries) = node.as_mapping() else { return node.is_null() };
    !entries.iter().any(|(key, _)| key.name == "apiVersion" || key.name == "kind")
}

/// The providers of such a file, read as it is. Other readers of it run the plugins inside a controller. The broker takes
/// the controller's place, so a plugin gets the broker's environment and is never interactive.
pub(super) fn inventory(path: &Path, node: &Node, broker: &Environment, report: &Report) -> Vec<Provider> {
    if node.is_null() {
        return Vec::new();
    }
    let root = Cursor::new(path, Dialect::Stock, node, report).fields(&[root::PROVIDERS.name]);
    let items = root.map(|root| root.items_of(root::PROVIDERS.name)).unwrap_or_default();
    items.iter().filter_map(|item| inventory_item(item, broker)).collect()
}

fn inventory_item(at: &Cursor<'_>, broker: &Environment) -> Option<Provider> {
    // `callerEnv` is the broker's own key: other readers of the file ignore it.
    let (args, env) = (table::ARGS_POLICY.name, table::ENV_POLICY.name);
    let known = [table::NAME.name, table::EXEC_CONFIG.name, args, env, table::CALLER_ENV.name];
    let fields = at.fields(&known)?;
    let name = name(&fields);
    let sourced = profile_sourced(&fields);
    let exec = table::EXEC_CONFIG.read(&fields)?;
    let (caller_env, refuses_other_identities) = caller_env(&fields);
    let variables = Variables { broker, pass_env: Globs::new(["*"]), caller_env, are_of_kubeconfig: false };
    let provider = stanza(&exec, false, name.as_deref().unwrap_or_default(), &variables)?;
    warn_of_unlisted(at, &variables, "");
    name?;
    // The policies of this file have no list of names.
    let profile_env = Globs::new(["*"]);
    let (profile_sourced, sandbox) = (Some(sourced), Sandbox::Strict);
    Some(Provider { refuses_other_identities, sandbox, profile_sourced, profile_env, ..provider })
}

/// Reads the section, if there is one, and gives each provider its issuer, of which only the name is known before. An
/// issuer without a section gets the defaults. A section with the name of a kubeconfig's user is the
/// issuer of all users of that name, each of which is its own issuer otherwise.
pub(super) fn issuers<'a>(root: &Cursor<'_>, providers: impl Iterator<Item = &'a mut Provider>) {
    let sections = root::ISSUERS.read(root).unwrap_or_default();
    let mut places: HashMap<Arc<str>, &Cursor<'_>> = HashMap::new();
    let mut issuers: HashMap<Arc<str>, Arc<Issuer>> = HashMap::new();
    for fields in &sections {
        let runs_per_second = issuer::RUNS_PER_SECOND.read(fields);
        let concurrency = issuer::CONCURRENCY.read(fields);
        let Some(name) = issuer::NAME.read(fields).map(Arc::from) else { continue };
        let (issuer, place) =
            (Issuer { name: Arc::clone(&name), runs_per_second, concurrency }, fields.place());
        let first = places.entry(Arc::clone(&name)).or_insert(fields).place();
        if first != place {
            fields.problem(format!("issuer `{name}` is defined already at {first}; remove one of them"));
        }
        issuers.insert(name, Arc::new(issuer));
    }
    let mut used = HashSet::new();
    for provider in providers {
        let is_named = provider.definition.is_some() && places.contains_key(&provider.name);
        let name = Arc::clone(if is_named { &provider.name } else { &provider.issuer.name });
        let default = || Arc::new(default_issuer(Arc::clone(&name)));
        provider.issuer = Arc::clone(issuers.entry(Arc::clone(&name)).or_insert_with(default));
        used.insert(name);
    }
    if root.report.problems() > 0 {
        return; // a provider that could not be read may have the issuer
    }
    for (name, fields) in places.iter().filter(|(name, _)| !used.contains(*name)) {
        let meant = suggestion(';', name, used.iter().map(|name| &**name));
        fields.warning(format!("no provider has the issuer `{name}`, so this has no effect{meant}"));
    }
}

/// Reads `credentialPluginPolicy` and `credentialPluginAllowlist`, with the checks of client-go (KEP-3104): a mistake in them
/// must not permit more than was meant, so after a problem the policy permits nothing.
pub(super) fn policy(fields: &Cursor<'_>) -> PluginPolicy {
    let report = fields.report;
    let before = report.problems();
    let kind = root::PLUGIN_POLICY.read(fields);
    let list = fields.get(root::PLUGIN_ALLOWLIST.name);
    let policy = match (kind, &list) {
        (PolicyType::Allowlist, Some(_)) => PluginPolicy::Allowlist(allowed(fields)),
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

fn allowed(root: &Cursor<'_>) -> Vec<String> {
    let entry = |fields: &Cursor<'_>| {
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
