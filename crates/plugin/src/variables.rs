//! The table of variables and what they can change in a plugin.

use std::{borrow::Cow, collections::HashMap, sync::LazyLock};

use credbroker_proto::{Globs, IDENTITY_VARIABLES, is_account_variable, is_identity_variable};

/// What a variable can change in a plugin.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Effect {
    /// Which code runs. Never allowed from a caller.
    Program,
    /// Which files are read, or which services are used and trusted; a file can name a program. Allowed only from a
    /// process that could give the plugin that file anyway.
    Place,
    /// Which identity is used, by its name alone.
    Identity,
    /// None of these: a region, a switch, or the caller's own secret.
    Value,
    /// Not in the table. As [`Place`](Self::Place), unless the configuration names it without a `*`.
    Unknown,
}

pub(super) fn effect(name: &str) -> Effect {
    static PATTERNS: LazyLock<EffectRows> = LazyLock::new(|| rows(|name| name.contains('*')));
    // This is on the way of every request: a name is found more quickly than it is compared with all patterns.
    static NAMES: LazyLock<HashMap<&str, Effect>> = LazyLock::new(|| {
        let all = rows(|_| true);
        let names = TABLE.iter().flat_map(|(_, row)| row.split_whitespace());
        names.filter_map(|name| Some((name, first(&all, name)?))).collect()
    });
    // Some programs also read names in lower case, for example those of proxies.
    let upper = if name.bytes().any(|byte| byte.is_ascii_lowercase()) {
        Cow::Owned(name.to_ascii_uppercase())
    } else {
        Cow::Borrowed(name)
    };
    let known = NAMES.get(&*upper).copied().or_else(|| first(&PATTERNS, &upper));
    known.unwrap_or(Effect::Unknown)
}

type EffectRows = [(Effect, Globs); 9];

/// The table, with the names and patterns of each row that `has` chooses.
fn rows(has: impl Fn(&str) -> bool) -> EffectRows {
    TABLE.map(|(effect, row)| (effect, Globs::new(row.split_whitespace().filter(|name| has(name)))))
}

fn first(rows: &EffectRows, name: &str) -> Option<Effect> {
    rows.iter().find(|(_, row)| row.matches(name)).map(|(effect, _)| *effect)
}

/// Whether a variable of this name, which is in no table, may select an identity.
pub fn may_select_identity(name: &str) -> bool {
    static LIKELY: LazyLock<Globs> =
        LazyLock::new(|| Globs::new(["*PROFILE*", "*ACCOUNT*", "*TOKEN*", "*CONTEXT*"]));
    LIKELY.matches(&name.to_ascii_uppercase())
}

/// Whether a variable of this name selects an account, as far as its name shows, and no program or file.
pub fn selects_account(name: &str) -> bool {
    let is_account = || is_account_variable(name.as_bytes());
    match effect(name) {
        // Not all: its patterns match names that clients do not send.
        Effect::Identity => is_identity_variable(name.as_bytes()) || is_account(),
        Effect::Program | Effect::Place => false,
        Effect::Value | Effect::Unknown => is_account(),
    }
}

pub(super) fn is_standing(name: &str) -> bool {
    static GLOBS: LazyLock<Globs> = LazyLock::new(|| globs(STANDING));
    GLOBS.matches(name)
}

/// Whether a variable of that name reaches no plugin.
pub fn is_denied(name: &str) -> bool {
    static GLOBS: LazyLock<Globs> = LazyLock::new(|| globs(DENIED));
    GLOBS.matches(name)
}

/// Whether a profile may not set this variable under any policy. Programs read some names in lower case too.
pub(super) fn is_denied_to_profiles(name: &str, value: &str) -> bool {
    static GLOBS: LazyLock<Globs> =
        LazyLock::new(|| globs(DENIED_TO_PROFILES).and(globs(PROGRAMS)).and(globs(PLACES)));
    if AUTHORITY.contains(&name) && AUTHORITIES.contains(&value.trim_end_matches('/')) {
        return false;
    }
    let upper = name.to_ascii_uppercase();
    is_denied(&upper) || GLOBS.matches(&upper)
}

fn globs(list: &str) -> Globs {
    Globs::new(list.split_whitespace())
}

/// The variables with which common plugins select an identity: `callerEnv` of a provider from a kubeconfig.
pub fn identity_variables() -> Globs {
    Globs::new(IDENTITY_VARIABLES)
}

/// The first row that matches decides: known names come first, then endings of names.
const TABLE: [(Effect, &str); 9] = [
    (Effect::Identity, IDENTITIES),
    (Effect::Value, VALUES),
    (Effect::Program, PROGRAMS),
    (Effect::Place, FILE_ENDINGS),
    (Effect::Program, PROGRAM_ENDINGS),
    (Effect::Place, PLACES),
    (Effect::Place, PLACE_ENDINGS),
    (Effect::Identity, "*_PROFILE *_TENANT *_TENANT_ID"),
    (Effect::Value, "*_NAMESPACE *_REGION"),
];

/// Variables that select an identity by its name and have no other effect.
const IDENTITIES: &str = "
    AWS_PROFILE AWS_DEFAULT_PROFILE AWS_ROLE_ARN CLOUDSDK_ACTIVE_CONFIG_NAME
    CLOUDSDK_AUTH_IMPERSONATE_SERVICE_ACCOUNT CLOUDSDK_CORE_ACCOUNT GOOGLE_IMPERSONATE_SERVICE_ACCOUNT
    AZURE_CLIENT_ID AZURE_TENANT_ID AZURE_USERNAME AAD_SERVICE_PRINCIPAL_CLIENT_ID AAD_USER_PRINCIPAL_USERNAME
    ARM_CLIENT_ID ARM_TENANT_ID VAULT_NAMESPACE TELEPORT_CLUSTER TELEPORT_KUBE_CLUSTER TELEPORT_SITE
    TELEPORT_USER OCI_CLI_PROFILE OCI_CLI_TENANCY OCI_CLI_USER OS_APPLICATION_CREDENTIAL_ID
    OS_APPLICATION_CREDENTIAL_NAME OS_CLOUD OS_PROJECT_ID OS_PROJECT_NAME OS_TENANT_ID OS_TENANT_NAME
    OS_USERNAME OS_USER_ID OS_DOMAIN_ID OS_DOMAIN_NAME OS_PROJECT_DOMAIN_ID OS_PROJECT_DOMAIN_NAME
    OS_USER_DOMAIN_ID OS_USER_DOMAIN_NAME IBMCLOUD_ACCOUNT_ID IBMCLOUD_CR_PROFILE DIGITALOCEAN_CONTEXT
    ALIBABA_CLOUD_PROFILE ALIBABA_CLOUD_ROLE_ARN DEFAULT_ROLE PINNIPED_USERNAME
";

/// Regions, switches, and the secrets of the caller.
const VALUES: &str = "
    AWS_ACCESS_KEY_ID AWS_ACCOUNT_ID AWS_CLI_AUTO_PROMPT AWS_CREDENTIAL_EXPIRATION AWS_DEFAULTS_MODE
    AWS_DEFAULT_OUTPUT AWS_DEFAULT_REGION AWS_EXECUTION_ENV AWS_MAX_ATTEMPTS AWS_METADATA_SERVICE_NUM_ATTEMPTS
    AWS_METADATA_SERVICE_TIMEOUT AWS_REGION AWS_RETRY_MODE AWS_ROLE_SESSION_NAME AWS_SDK_LOAD_CONFIG
    AWS_SECRET_ACCESS_KEY AWS_SECURITY_TOKEN AWS_SESSION_EXPIRATION AWS_SESSION_TOKEN
    AWS_STS_REGIONAL_ENDPOINTS AWS_USE_DUALSTACK_ENDPOINT AWS_USE_FIPS_ENDPOINT AWS_VAULT
    CLOUDSDK_COMPUTE_REGION CLOUDSDK_COMPUTE_ZONE CLOUDSDK_CORE_DISABLE_PROMPTS CLOUDSDK_CORE_PROJECT
    CLOUDSDK_CORE_VERBOSITY GOOGLE_CLOUD_PROJECT GOOGLE_OAUTH_ACCESS_TOKEN GOOGLE_PROJECT AZURE_CLIENT_SECRET
    AZURE_ENVIRONMENT AZURE_PASSWORD AZURE_SUBSCRIPTION_ID AAD_LOGIN_METHOD
    AAD_SERVICE_PRINCIPAL_CLIENT_SECRET AAD_USER_PRINCIPAL_PASSWORD ARM_CLIENT_SECRET ARM_ENVIRONMENT
    ARM_SUBSCRIPTION_ID ARM_USE_* VAULT_CLIENT_TIMEOUT VAULT_FORMAT VAULT_MAX_RETRIES VAULT_TOKEN OCI_CLI_AUTH
    OCI_CLI_FINGERPRINT OCI_CLI_REGION OS_APPLICATION_CREDENTIAL_SECRET OS_AUTH_TYPE OS_IDENTITY_API_VERSION
    OS_INTERFACE OS_PASSWORD OS_REGION_NAME OS_TOKEN IBMCLOUD_API_KEY IBMCLOUD_REGION
    DIGITALOCEAN_ACCESS_TOKEN DIGITALOCEAN_TOKEN ALIBABA_CLOUD_ACCESS_KEY_ID ALIBABA_CLOUD_ACCESS_KEY_SECRET
    ALIBABA_CLOUD_REGION_ID ALIBABA_CLOUD_SECURITY_TOKEN PINNIPED_PASSWORD
";

/// Directories, services, and files, some of which name programs. A directory that holds both settings and extensions is
/// here, because people have one for each account. Common names are written out: they are found sooner than their pattern.
const PLACES: &str = "
    HOME XDG_* TMPDIR TMP TEMP KUBECONFIG KUBERC KUBECACHEDIR KUBERNETES_* KRB5* KRB5CCNAME SSL_*
    SSLKEYLOGFILE CURL_* REQUESTS_CA_BUNDLE GODEBUG HOSTALIASES LOCALDOMAIN RES_OPTIONS AWS_CA_BUNDLE
    AWS_CONFIG_FILE AWS_CONTAINER_* AWS_EC2_METADATA_* AWS_ENDPOINT_URL AWS_SHARED_CREDENTIALS_FILE
    AWS_WEB_IDENTITY_TOKEN_FILE AZURE_AUTHORITY_HOST AZURE_CONFIG_DIR AZURE_FEDERATED_TOKEN_FILE
    AZURE_POD_IDENTITY_* AAD_SERVICE_PRINCIPAL_CLIENT_CERTIFICATE* CLOUDSDK_CONFIG CLOUDSDK_API_*
    CLOUDSDK_AUTH_* CLOUDSDK_CORE_UNIVERSE_DOMAIN CLOUDSDK_PROXY_* GOOGLE_APPLICATION_CREDENTIALS
    GOOGLE_CLOUD_UNIVERSE_DOMAIN GOOGLE_CREDENTIALS GCE_METADATA_* OIDC_* SPIFFE_ENDPOINT_SOCKET
    VAULT_CLIENT_* VAULT_SKIP_VERIFY VAULT_TLS_SERVER_NAME TELEPORT_AUTH* TELEPORT_PROXY* TSH_PROXY*
    OCI_CLI_CONFIG_FILE OS_AUTH_URL OS_CACERT OS_CERT OS_KEY TELEPORT_HOME TELEPORT_PROXY VAULT_ADDR
    VAULT_CACERT
";

/// Variables that select code. tsh downloads and runs another release of itself for `TELEPORT_TOOLS_*`.
const PROGRAMS: &str = "
    PATH SHELL ENV IFS PS4 BASH_* BASHOPTS SHELLOPTS PROMPT_COMMAND LD_* DYLD_* GCONV_PATH GLIBC_TUNABLES
    LOCPATH NLSPATH MALLOC_* OPENSSL_* PYTHON* NODE_* NPM_* PERL* RUBY* GEM_* BUNDLE_* JAVA_* _JAVA_OPTIONS
    JDK_* CLASSPATH DOTNET_* COMPLUS_* CORECLR_* GIT_* KUBECTL_* LESSCLOSE LESSOPEN EDITOR PAGER VISUAL
    AZURE_EXTENSION_* CLOUDSDK_COMPONENT_MANAGER_* CLOUDSDK_PYTHON* GOOGLE_EXTERNAL_ACCOUNT_ALLOW_EXECUTABLES
    TELEPORT_CDN_* TELEPORT_TOOLS_* R_PROFILE*
";

/// Paths of files, not of directories with programs.
const FILE_ENDINGS: &str = "
    *_CERTIFICATE_PATH *_CERT_PATH *_CONFIG_PATH *_CREDENTIALS_PATH *_CREDS_PATH *_FILE_PATH *_KEY_PATH
    *_TOKEN_PATH
";

/// Endings that name programs, their arguments or extensions.
const PROGRAM_ENDINGS: &str = "
    *ASKPASS *BROWSER *EXECUTABLE* *PYTHON* *_ARGS *_BIN *_BINARY *_CMD *_COMMAND *_COMMANDS *_EDITOR *_EXEC
    *_EXTENSION* *_HELPER *_HOOK* *_INTERPRETER *_LIBRARY *_MODULE *_MODULES *_PAGER *_PATH *_PLUGIN*
    *_PRELOAD *_PROCESS *_PROGRAM *_SCRIPT *_SHELL
";

/// Endings that name files or services.
const PLACE_ENDINGS: &str = "
    *ADDR *ADDRESS *CACERT* *CAPATH *_AUTHORITY* *_BUNDLE *_CA *_CACHE* *_CA_* *_CERT* *_CONFIG *_DIR
    *_DIRECTORY *_DOMAIN *_ENDPOINT* *_FILE *_FILES *_FOLDER *_HOME *_HOST *_HOSTS *_ISSUER* *_PROXY* *_SERVER
    *_SOCK *_SOCKET *_URI *_URL *_URLS
";

/// Variables that reach every plugin from the broker: a program needs them to run and to reach its issuer.
const STANDING: &str = "
    PATH HOME USER LOGNAME LANG LC_* TZ TMPDIR SSL_CERT_FILE SSL_CERT_DIR HTTP_PROXY HTTPS_PROXY NO_PROXY
    http_proxy https_proxy no_proxy KUBERNETES_SERVICE_*
";

/// Variables that reach no plugin from any source: they load code into it, belong to the broker's service manager, or
/// hold the broker's own settings. The broker writes `KUBERNETES_EXEC_INFO` for each run.
const DENIED: &str = "
    LD_* DYLD_* LISTEN_* NOTIFY_SOCKET WATCHDOG_* CREDENTIALS_DIRECTORY CREDBROKER_* KUBERNETES_EXEC_INFO
";

/// What a profile can never set, besides [`DENIED`], [`PROGRAMS`] and [`PLACES`]: which code the plugin runs, where its
/// settings and caches are, or which servers it uses and trusts. With them a writer of a profile could take over the
/// plugin's own identity.
const DENIED_TO_PROFILES: &str = "
    USER LOGNAME *_PROXY AWS_*_URI AWS_ENDPOINT_URL* AWS_DATA_PATH AAD_AUTHORITY_HOST IDENTITY_ENDPOINT
    MSI_ENDPOINT AZURE_CLIENT_CERTIFICATE_PATH CLOUDSDK_CORE_CUSTOM_CA_* GOOGLE_EXTERNAL_ACCOUNT_*
    GOOGLE_GHA_CREDS_PATH VAULT_*ADDR VAULT_CA* VAULT_CONFIG_PATH GRPC_DEFAULT_SSL_ROOTS_FILE_PATH RUST_*
    DOCKER_* GNUPGHOME *ASKPASS *PAGER *EDITOR *BROWSER
";

/// Where a plugin for Azure authenticates. A profile may select one of Microsoft's clouds.
const AUTHORITY: [&str; 2] = ["AZURE_AUTHORITY_HOST", "AAD_AUTHORITY_HOST"];
const AUTHORITIES: [&str; 5] = [
    "https://login.microsoftonline.com",
    "https://login.microsoftonline.us",
    "https://login.chinacloudapi.cn",
    "https://login.partner.microsoftonline.cn",
    "https://login.microsoftonline.de",
];

#[cfg(test)]
mod tests;
