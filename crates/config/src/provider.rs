//! From a section of the configuration to a `Provider`.

mod warnings;

use std::sync::Arc;

pub(super) use self::warnings::warn_of_unlisted;
use self::warnings::{NAME_IN_PASS_ENV, warn_of_impatience, warn_of_missing_identity};
use super::{
    fields::Fields,
    issuers::default_issuer,
    problem::Report,
    reader::Cursor,
    stanza::{Stanza, StanzaRules, stanza},
    table::{limits, provider as table},
};
use credbroker_credential::LifetimeLimits;
use credbroker_plugin::{
    ClusterInfo, EnvPolicy, Environment, Globs, Issuer, ProfileSourced, Provider, Sandbox, Sha256, Standing,
    Verify,
};

/// Where a provider's environment comes from.
#[derive(Clone, Debug)]
pub(super) struct Variables<'a> {
    /// The broker's own.
    pub(super) broker: &'a Environment,
    pub(super) pass_env: Globs,
    pub(super) caller_env: Globs,
}

/// A provider with the default limits, whose issuer has its name.
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
        interactive: stanza.interactive,
        install_hint: stanza.install_hint,
        issuer: Arc::new(default_issuer(name.into(), limits::PLUGIN_RUNS_PER_PROVIDER.absent.0)),
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
        verify: Verify::Auto,
        profile_sourced: None,
        profile_env: Globs::default(),
        standing: Standing::default(),
    }
}

/// What a provider takes of ClusterProfiles. Go's zero value, which cluster-inventory-api writes, is `Ignore`.
pub(super) fn profile_sourced(fields: &Fields<'_>, report: &mut Report) -> ProfileSourced {
    let args = table::ARGS_POLICY.read(fields, report);
    ProfileSourced { args, env: table::ENV_POLICY.read(fields, report) }
}

/// The variables that profiles may set. Warns if that and the policy do not fit.
fn profile_env(at: &Cursor<'_>, fields: &Fields<'_>, sourced: ProfileSourced, report: &mut Report) -> Globs {
    let names = table::PROFILE_ENV.read(fields, report);
    let takes = sourced.env != EnvPolicy::Ignore;
    match (fields.at(&table::PROFILE_ENV), &names) {
        (Some(value), _) if !takes => {
            value.warning(report, "has no effect without `profileSourcedEnvVarsPolicy`");
        }
        (None, _) if takes => at.warning(report, "no ClusterProfile may set a variable, although `profileSourcedEnvVarsPolicy` takes them; name the variables in `profileEnv`"),
        _ => {}
    }
    names.unwrap_or_default()
}

/// The variables that the provider takes from callers, and whether it refuses those who select another identity. An empty
/// list that is written out means the broker's identity for every caller.
pub(super) fn caller_env(fields: &Fields<'_>, report: &mut Report) -> (Globs, bool) {
    let written = table::CALLER_ENV.read(fields, report);
    let refuses_other_identities = written.as_ref().is_none_or(|patterns| !patterns.is_empty());
    (written.unwrap_or_default(), refuses_other_identities)
}

/// One item of `providers` in our own configuration.
pub(super) fn section(
    at: &Cursor<'_>,
    dir: &std::path::Path,
    broker: &Environment,
    report: &mut Report,
) -> Option<Provider> {
    let fields = at.section(&table::SECTION, report)?;
    let name = name(at, &fields, report);
    let profile_sourced = profile_sourced(&fields, report);
    let profile_env = profile_env(at, &fields, profile_sourced, report);
    let cluster_info = table::CLUSTER_INFO.read(&fields, report).unwrap_or_default();
    let verify = table::VERIFY.read(&fields, report);
    let accept_v1alpha1 = table::ACCEPT_V1ALPHA1.read(&fields, report);
    let pass_env = table::PASS_ENV.read(&fields, report).unwrap_or_default();
    let (caller_env, refuses_other_identities) = caller_env(&fields, report);
    let issuer = table::ISSUER.read(&fields, report);
    let sandbox = table::SANDBOX.read(&fields, report);
    let sha256 = fields.at(&table::SHA256).and_then(|value| {
        let digest = Sha256::from_hex(value.text(report)?);
        if digest.is_none() {
            value.problem(report, "must be 64 hexadecimal digits, as `sha256sum` prints them");
        }
        digest
    });
    let timeout = table::TIMEOUT.read(&fields, report);
    if let Some(value) = fields.at(&table::TIMEOUT) {
        warn_of_impatience(&value, timeout, report);
    }
    let interactive_timeout = table::INTERACTIVE_TIMEOUT.read(&fields, report);
    let max_age = table::MAX_AGE.read(&fields, report);
    let unknown_expiry_max_age = table::UNKNOWN_EXPIRY_MAX_AGE.read(&fields, report);
    let exec = fields.required(&table::EXEC_CONFIG, report)?;
    let stanza = stanza(&exec, StanzaRules { dir, accept_v1alpha1, never_interactive: false }, report)?;
    if caller_env.matches("PATH") {
        at.warning(
            report,
            "callerEnv covers `PATH`: the plugin does not get the broker's `PATH`, so a command without a path is not found",
        );
    }
    warn_of_missing_identity(at, &stanza, &pass_env, &caller_env, report);
    let variables = Variables { broker, pass_env, caller_env };
    warn_of_unlisted(at, &variables, NAME_IN_PASS_ENV, report);
    let provider = provider(&name?, stanza, &variables);
    let issuer = issuer.map(|name| Arc::new(Issuer { name: name.into(), ..(*provider.issuer).clone() }));
    Some(Provider {
        issuer: issuer.unwrap_or_else(|| Arc::clone(&provider.issuer)),
        profile_sourced: Some(profile_sourced),
        profile_env,
        refuses_other_identities,
        cluster_info,
        verify,
        sandbox,
        sha256,
        timeout,
        interactive_timeout,
        lifetime: LifetimeLimits { max_age, unknown_expiry_max_age },
        ..provider
    })
}

/// The name of a provider, which is noted in `report` to find duplicates.
pub(super) fn name(at: &Cursor<'_>, fields: &Fields<'_>, report: &mut Report) -> Option<String> {
    let name = table::NAME.read(fields, report)?;
    report.provider(at.place(), &name);
    Some(name)
}
