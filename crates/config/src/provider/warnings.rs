//! Warnings about providers that are valid, but may not do what was meant.

use std::time::Duration;

use crate::{
    problem::Report,
    provider::Variables,
    reader::Cursor,
    stanza::Stanza,
    unlisted::{list, unlisted},
};
use credbroker_plugin::{Command, Globs};

/// How long credbroker-exec waits for a response by default.
const SHIM: Duration = Duration::from_secs(45);
/// How much of that is needed besides the timeout: to wait for a slot, to end the run, and to respond.
const MARGIN: Duration = Duration::from_secs(5);

/// Warns about a timeout that is longer than the shim waits, so that the shim cannot report how the run ended.
pub(super) fn warn_of_impatience(at: &Cursor<'_>, timeout: Duration, report: &mut Report) {
    if timeout >= SHIM.saturating_sub(MARGIN) {
        at.warning(report, format!("credbroker-exec waits {} s by default, so it may stop before the run ends; set a longer `--timeout` (SECONDS, in the `args` of the kubeconfig), or less than {} s here", SHIM.as_secs(), SHIM.saturating_sub(MARGIN).as_secs()));
    }
}

/// How a provider of our own configuration gets the broker's values on purpose.
pub(super) const NAME_IN_PASS_ENV: &str = "name them in `passEnv` without a `*` to use the broker's, or ";

/// Warns of variables of the broker's own environment that may select an identity and are on no list. `or` is a remedy
/// that comes before the other one.
pub(crate) fn warn_of_unlisted(at: &Cursor<'_>, variables: &Variables<'_>, or: &str, report: &mut Report) {
    let names = unlisted(variables.broker, &variables.pass_env, &variables.caller_env);
    if !names.is_empty() {
        let list = list(&names);
        at.warning(report, format!("every caller gets the broker's values of variables that its own environment sets: {list}. If they select an identity, {or}add `callerEnv: {list}` and set CREDBROKER_CALLER_ENV={} for callers to use theirs", names.join(",")));
    }
}

/// Plugins that take their identity from their environment, and some of the variables that they use.
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

pub(super) fn warn_of_missing_identity(
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
        at.warning(report, format!("`{program}` gets no variable like `{glob}`, so it may not find its identity; add `passEnv: [\"{glob}\"]`, or `callerEnv` if each caller has its own"));
    }
}
