//! From a section to a `Provider`.

use std::{sync::Arc, time::Duration};

use super::{
    broker::Limits,
    problem::Report,
    reader::{Cursor, Fields},
    stanza::{Stanza, StanzaRules, stanza},
    unlisted::{list, unlisted},
};
use crate::{
    credential::LifetimeLimits,
    plugin::{
        ArgsPolicy, ClusterInfo, Command, EnvPolicy, Environment, Globs, Issuer, ProfileSourced, Provider,
        Verify,
    },
};

/// How long credbroker-exec waits for an answer by itself.
const SHIM: Duration = Duration::from_secs(45);
/// What a run needs of that besides its timeout: its turn, the time to end it, and the way back.
const MARGIN: Duration = Duration::from_secs(5);

/// How a provider's environment comes about.
#[derive(Clone, Debug)]
pub(super) struct Variables<'a> {
    /// The broker's own.
    pub(super) broker: &'a Environment,
    pub(super) pass_env: Globs,
    pub(super) caller_env: Globs,
}

/// A provider with the default limits, which is its own issuer.
pub(super) fn provider(name: &str, stanza: Stanza, variables: &Variables<'_>) -> Provider {
    Provider {
        name: name.into(),
        definition: None,
        command: stanza.command,
        args: stanza.args,
        env: stanza.env,
        inherited: variables.broker.inherited(&variables.pass_env, &variables.caller_env).into(),
        caller_env: variables.caller_env.clone(),
        refuses_other_identities: true,
        api_version: stanza.api_version,
        provide_cluster_info: stanza.provide_cluster_info,
        needs_terminal: stanza.needs_terminal,
        install_hint: stanza.install_hint,
        issuer: Arc::new(Issuer::new(name, Limits::default().plugin_runs_per_provider)),
        timeout: Duration::from_secs(30),
        interactive_timeout: Duration::from_secs(5 * 60),
        lifetime: LifetimeLimits { max_age: None, unknown_expiry_max_age: Duration::from_secs(10 * 60) },
        clusters: Vec::new(),
        cluster_info: ClusterInfo::FromCaller,
        verify: Verify::Auto,
        profile_sourced: None,
    }
}

/// What a provider takes of ClusterProfiles. Go's zero value, which cluster-inventory-api writes, is `Ignore`.
pub(super) fn profile_sourced(fields: &Fields<'_>, report: &mut Report) -> ProfileSourced {
    let args = [("", ArgsPolicy::Ignore), ("Ignore", ArgsPolicy::Ignore), ("Append", ArgsPolicy::Append)];
    let env = [
        ("", EnvPolicy::Ignore),
        ("Ignore", EnvPolicy::Ignore),
        ("AppendIfNotExists", EnvPolicy::AppendIfNotExists),
        ("Replace", EnvPolicy::Replace),
    ];
    let [args_key, env_key] = POLICIES;
    ProfileSourced {
        args: fields.get(args_key).and_then(|value| value.choice(&args, report)).unwrap_or_default(),
        env: fields.get(env_key).and_then(|value| value.choice(&env, report)).unwrap_or_default(),
    }
}

/// The keys of [`profile_sourced`].
pub(super) const POLICIES: [&str; 2] = ["profileSourcedCLIArgsPolicy", "profileSourcedEnvVarsPolicy"];

const KEYS: [&str; 14] = [
    "name",
    "execConfig",
    "issuer",
    "profileSourcedCLIArgsPolicy",
    "profileSourcedEnvVarsPolicy",
    "timeout",
    "interactiveTimeout",
    "passEnv",
    "callerEnv",
    "clusterInfo",
    "verify",
    "maxAge",
    "unknownExpiryMaxAge",
    "acceptV1alpha1",
];

/// One item of `providers` in our own config.
pub(super) fn section(
    at: &Cursor<'_>,
    dir: &std::path::Path,
    broker: &Environment,
    report: &mut Report,
) -> Option<Provider> {
    let fields = at.fields(&KEYS, report)?;
    let name = name(at, fields.get("name").as_ref(), report);
    let profile_sourced = profile_sourced(&fields, report);
    let cluster_info = [("fromCaller", ClusterInfo::FromCaller), ("match", ClusterInfo::Match)];
    let cluster_info = fields.get("clusterInfo").and_then(|value| value.choice(&cluster_info, report));
    let verify = [("auto", Verify::Auto), ("never", Verify::Never)];
    let verify = fields.get("verify").and_then(|value| value.choice(&verify, report));
    let accept_v1alpha1 =
        fields.get("acceptV1alpha1").and_then(|value| value.boolean(report)).unwrap_or_default();
    let pass_env = fields.get("passEnv").map(|value| globs(&value, report)).unwrap_or_default();
    let written = fields.get("callerEnv");
    let takes_none = written.as_ref().is_some_and(|value| value.node().as_sequence().is_some_and(<[_]>::is_empty));
    let caller_env = written.map(|value| globs(&value, report)).unwrap_or_default();
    let issuer = issuer(&fields, report);
    let timeout = fields.duration("timeout", report);
    if let (Some(value), Some(timeout)) = (fields.get("timeout"), timeout) {
        warn_of_impatience(&value, timeout, report);
    }
    let interactive_timeout = fields.duration("interactiveTimeout", report);
    if let Some(value) = fields.get("interactiveTimeout") {
        value.warning(report, "has no effect: in this release nobody can attend a run");
    }
    let max_age = fields.duration("maxAge", report);
    let unknown_expiry_max_age = fields.duration("unknownExpiryMaxAge", report);
    let Some(exec) = fields.get("execConfig") else {
        at.problem(report, "execConfig must be specified: the `exec` stanza of a kubeconfig");
        return None;
    };
    let stanza = stanza(&exec, StanzaRules { dir, accept_v1alpha1, never_interactive: false }, report)?;
    if caller_env.matches("PATH") {
        at.warning(
            report,
            "callerEnv covers `PATH`: the plugin gets none from the broker, and a bare command is not found",
        );
    }
    warn_of_unlisted(at, broker, &pass_env, &caller_env, report);
    warn_of_missing_identity(at, &stanza, &pass_env, &caller_env, report);
    let mut provider = provider(name?, stanza, &Variables { broker, pass_env, caller_env });
    if let Some(name) = issuer {
        provider.issuer = Arc::new(Issuer { name: name.into(), ..(*provider.issuer).clone() });
    }
    // Written out: the broker's identity for every caller.
    provider.refuses_other_identities = !takes_none;
    provider.profile_sourced = Some(profile_sourced);
    provider.cluster_info = cluster_info.unwrap_or_default();
    provider.verify = verify.unwrap_or_default();
    provider.timeout = timeout.unwrap_or(provider.timeout);
    provider.interactive_timeout = interactive_timeout.unwrap_or(provider.interactive_timeout);
    provider.lifetime.max_age = max_age;
    let unknown = unknown_expiry_max_age.unwrap_or(provider.lifetime.unknown_expiry_max_age);
    provider.lifetime.unknown_expiry_max_age = unknown;
    Some(provider)
}

/// A name that can stand in a message and on a command line.
pub(super) fn name<'a>(at: &Cursor<'_>, name: Option<&Cursor<'a>>, report: &mut Report) -> Option<&'a str> {
    let Some(value) = name else {
        at.problem(report, "name must be specified");
        return None;
    };
    let name = value.text(report)?;
    if !is_name(value, name, report) {
        return None;
    }
    report.provider(at.place(), name);
    Some(name)
}

/// The name of whose budget the provider's runs share.
fn issuer<'a>(fields: &Fields<'a>, report: &mut Report) -> Option<&'a str> {
    let value = fields.get("issuer")?;
    let name = value.text(report)?;
    is_name(&value, name, report).then_some(name)
}

/// Whether `name` can stand in a message; if not, that is reported.
pub(super) fn is_name(at: &Cursor<'_>, name: &str, report: &mut Report) -> bool {
    let is_name = !name.is_empty() && !name.chars().any(char::is_control);
    if !is_name {
        at.problem(report, "a name is not empty and has no control characters");
    }
    is_name
}

/// Where a timeout is so long that a caller by way of the shim does not see how the run ends.
fn warn_of_impatience(at: &Cursor<'_>, timeout: Duration, report: &mut Report) {
    if timeout >= SHIM.saturating_sub(MARGIN) {
        at.warning(report, format!("credbroker-exec gives up after {} s by itself, so a run may outlast those who wait for it; give it a longer `--timeout` (SECONDS, in the `args` of the kubeconfig), or choose less than {} s here", SHIM.as_secs(), SHIM.saturating_sub(MARGIN).as_secs()));
    }
}

pub(super) fn globs(at: &Cursor<'_>, report: &mut Report) -> Globs {
    let items = at.items(report);
    let mut patterns = Vec::new();
    for item in &items {
        let Some(pattern) = item.text(report) else { continue };
        if pattern.is_empty() || pattern.contains(['=', '\0', '?', '[', '{', ' ', '$']) {
            item.problem(report, "must be a variable's name, in which `*` may stand for any text");
        } else {
            patterns.push(pattern);
        }
    }
    Globs::new(patterns)
}

/// Warns of variables of the broker's own environment that may select an identity and are on no list.
pub(super) fn warn_of_unlisted(
    at: &Cursor<'_>,
    broker: &Environment,
    pass_env: &Globs,
    caller_env: &Globs,
    report: &mut Report,
) {
    let names = unlisted(broker, pass_env, caller_env);
    if !names.is_empty() {
        let list = list(&names);
        at.warning(report, format!("passEnv covers variables that the broker's own environment sets, and every caller gets the broker's values: {list}. If they select an identity, add `callerEnv: {list}` to use the caller's, or name them in `passEnv` without a `*` to use the broker's"));
    }
}

/// Plugins that find out who they are from their environment, and some of the variables by which they do.
const IDENTITIES: [(&str, &str, &[&str]); 3] = [
    (
        "aws",
        "AWS_*",
        &[
            "AWS_PROFILE",
            "AWS_ACCESS_KEY_ID",
            "AWS_ROLE_ARN",
            "AWS_CONFIG_FILE",
            "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        ],
    ),
    (
        "kubelogin",
        "AZURE_*",
        &[
            "AZURE_CLIENT_ID",
            "AZURE_FEDERATED_TOKEN_FILE",
            "AAD_LOGIN_METHOD",
            "AAD_SERVICE_PRINCIPAL_CLIENT_ID",
        ],
    ),
    ("gke-gcloud-auth-plugin", "CLOUDSDK_*", &["CLOUDSDK_CONFIG", "GOOGLE_APPLICATION_CREDENTIALS"]),
];

fn warn_of_missing_identity(
    at: &Cursor<'_>,
    stanza: &Stanza,
    pass_env: &Globs,
    caller_env: &Globs,
    report: &mut Report,
) {
    let program = match &stanza.command {
        Command::Name(name) => Some(name.as_str()),
        Command::Path(path) => path.file_name().and_then(|name| name.to_str()),
    };
    let Some((program, glob, variables)) = IDENTITIES.iter().find(|(name, ..)| Some(*name) == program) else {
        return;
    };
    let reaches = |name: &str| {
        pass_env.matches(name) || caller_env.matches(name) || stanza.env.iter().any(|(set, _)| set == name)
    };
    if !variables.iter().any(|name| reaches(name)) {
        at.warning(report, format!("`{program}` gets no variable like `{glob}`, so it may not find its identity; add `passEnv: [\"{glob}\"]`, or `callerEnv` if each caller brings its own"));
    }
}
