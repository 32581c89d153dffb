//! The table of variables and what they can change in a plugin.

use std::{borrow::Cow, sync::LazyLock};

use credbroker_proto::Globs;

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

/// The effect of the variable `name`.
pub(super) fn effect(name: &str) -> Effect {
    static ROWS: LazyLock<Vec<(Effect, Globs)>> =
        LazyLock::new(|| TABLE.iter().map(|(effect, names)| (*effect, Globs::new(*names))).collect());
    // Some programs also read names in lower case, for example those of proxies.
    let upper = if name.bytes().any(|byte| byte.is_ascii_lowercase()) {
        Cow::Owned(name.to_ascii_uppercase())
    } else {
        Cow::Borrowed(name)
    };
    let row = ROWS.iter().find(|(_, names)| names.matches(&upper));
    row.map_or(Effect::Unknown, |(effect, _)| *effect)
}

/// The first row that matches decides: known names come first, then endings of names.
const TABLE: [(Effect, &[&str]); 8] = [
    (Effect::Identity, IDENTITIES),
    (Effect::Value, VALUES),
    (Effect::Program, PROGRAMS),
    (Effect::Place, FILE_ENDINGS),
    (Effect::Program, PROGRAM_ENDINGS),
    (Effect::Place, PLACES),
    (Effect::Place, PLACE_ENDINGS),
    (Effect::Value, VALUE_ENDINGS),
];

/// Variables that select an identity by its name and have no other effect.
const IDENTITIES: &[&str] = &[
    "AWS_PROFILE",
    "AWS_DEFAULT_PROFILE",
    "AWS_ROLE_ARN",
    "CLOUDSDK_ACTIVE_CONFIG_NAME",
    "CLOUDSDK_AUTH_IMPERSONATE_SERVICE_ACCOUNT",
    "CLOUDSDK_CORE_ACCOUNT",
    "GOOGLE_IMPERSONATE_SERVICE_ACCOUNT",
    "AZURE_CLIENT_ID",
    "AZURE_TENANT_ID",
    "AZURE_USERNAME",
    "AAD_SERVICE_PRINCIPAL_CLIENT_ID",
    "AAD_USER_PRINCIPAL_USERNAME",
    "ARM_CLIENT_ID",
    "ARM_TENANT_ID",
    "VAULT_NAMESPACE",
    "TELEPORT_CLUSTER",
    "TELEPORT_KUBE_CLUSTER",
    "TELEPORT_SITE",
    "TELEPORT_USER",
    "OCI_CLI_PROFILE",
    "OCI_CLI_TENANCY",
    "OCI_CLI_USER",
    "OS_APPLICATION_CREDENTIAL_ID",
    "OS_APPLICATION_CREDENTIAL_NAME",
    "OS_CLOUD",
    "OS_PROJECT_ID",
    "OS_PROJECT_NAME",
    "OS_TENANT_ID",
    "OS_TENANT_NAME",
    "OS_USERNAME",
    "OS_USER_ID",
    "IBMCLOUD_ACCOUNT_ID",
    "IBMCLOUD_CR_PROFILE",
    "DIGITALOCEAN_CONTEXT",
    "ALIBABA_CLOUD_PROFILE",
    "ALIBABA_CLOUD_ROLE_ARN",
];

const VALUES: &[&str] = &[
    "AWS_ACCESS_KEY_ID",
    "AWS_ACCOUNT_ID",
    "AWS_CLI_AUTO_PROMPT",
    "AWS_CREDENTIAL_EXPIRATION",
    "AWS_DEFAULTS_MODE",
    "AWS_DEFAULT_OUTPUT",
    "AWS_DEFAULT_REGION",
    "AWS_EXECUTION_ENV",
    "AWS_MAX_ATTEMPTS",
    "AWS_METADATA_SERVICE_NUM_ATTEMPTS",
    "AWS_METADATA_SERVICE_TIMEOUT",
    "AWS_REGION",
    "AWS_RETRY_MODE",
    "AWS_ROLE_SESSION_NAME",
    "AWS_SDK_LOAD_CONFIG",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SECURITY_TOKEN",
    "AWS_SESSION_EXPIRATION",
    "AWS_SESSION_TOKEN",
    "AWS_STS_REGIONAL_ENDPOINTS",
    "AWS_USE_DUALSTACK_ENDPOINT",
    "AWS_USE_FIPS_ENDPOINT",
    "AWS_VAULT",
    "CLOUDSDK_COMPUTE_REGION",
    "CLOUDSDK_COMPUTE_ZONE",
    "CLOUDSDK_CORE_DISABLE_PROMPTS",
    "CLOUDSDK_CORE_PROJECT",
    "CLOUDSDK_CORE_VERBOSITY",
    "GOOGLE_CLOUD_PROJECT",
    "GOOGLE_OAUTH_ACCESS_TOKEN",
    "GOOGLE_PROJECT",
    "AZURE_CLIENT_SECRET",
    "AZURE_ENVIRONMENT",
    "AZURE_PASSWORD",
    "AZURE_SUBSCRIPTION_ID",
    "AAD_LOGIN_METHOD",
    "AAD_SERVICE_PRINCIPAL_CLIENT_SECRET",
    "AAD_USER_PRINCIPAL_PASSWORD",
    "ARM_CLIENT_SECRET",
    "ARM_ENVIRONMENT",
    "ARM_SUBSCRIPTION_ID",
    "ARM_USE_*",
    "VAULT_CLIENT_TIMEOUT",
    "VAULT_FORMAT",
    "VAULT_MAX_RETRIES",
    "VAULT_TOKEN",
    "OCI_CLI_AUTH",
    "OCI_CLI_FINGERPRINT",
    "OCI_CLI_REGION",
    "OS_APPLICATION_CREDENTIAL_SECRET",
    "OS_AUTH_TYPE",
    "OS_IDENTITY_API_VERSION",
    "OS_INTERFACE",
    "OS_PASSWORD",
    "OS_REGION_NAME",
    "OS_TOKEN",
    "IBMCLOUD_API_KEY",
    "IBMCLOUD_REGION",
    "DIGITALOCEAN_ACCESS_TOKEN",
    "DIGITALOCEAN_TOKEN",
    "ALIBABA_CLOUD_ACCESS_KEY_ID",
    "ALIBABA_CLOUD_ACCESS_KEY_SECRET",
    "ALIBABA_CLOUD_REGION_ID",
    "ALIBABA_CLOUD_SECURITY_TOKEN",
];

/// Directories, services, and files, some of which name programs. A directory that holds both settings and extensions
/// is here, because people have one for each account.
const PLACES: &[&str] = &[
    "HOME",
    "XDG_*",
    "TMPDIR",
    "TMP",
    "TEMP",
    "KUBECONFIG",
    "KUBERC",
    "KUBECACHEDIR",
    "KUBERNETES_*",
    "KRB5*",
    "SSL_*",
    "SSLKEYLOGFILE",
    "CURL_*",
    "REQUESTS_CA_BUNDLE",
    "GODEBUG",
    "HOSTALIASES",
    "LOCALDOMAIN",
    "RES_OPTIONS",
    "AWS_CONTAINER_*",
    "AWS_EC2_METADATA_*",
    "AZURE_POD_IDENTITY_*",
    "AAD_SERVICE_PRINCIPAL_CLIENT_CERTIFICATE*",
    "CLOUDSDK_API_*",
    "CLOUDSDK_AUTH_*",
    "CLOUDSDK_CORE_UNIVERSE_DOMAIN",
    "CLOUDSDK_PROXY_*",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_CLOUD_UNIVERSE_DOMAIN",
    "GOOGLE_CREDENTIALS",
    "GCE_METADATA_*",
    "OIDC_*",
    "SPIFFE_ENDPOINT_SOCKET",
    "VAULT_CLIENT_*",
    "VAULT_SKIP_VERIFY",
    "VAULT_TLS_SERVER_NAME",
    "TELEPORT_AUTH*",
    "TELEPORT_PROXY*",
    "TSH_PROXY*",
    "OS_CERT",
    "OS_KEY",
];

const PROGRAMS: &[&str] = &[
    "PATH",
    "SHELL",
    "ENV",
    "IFS",
    "PS4",
    "BASH_*",
    "BASHOPTS",
    "SHELLOPTS",
    "PROMPT_COMMAND",
    "LD_*",
    "DYLD_*",
    "GCONV_PATH",
    "GLIBC_TUNABLES",
    "LOCPATH",
    "NLSPATH",
    "MALLOC_*",
    "OPENSSL_*",
    "PYTHON*",
    "NODE_*",
    "NPM_*",
    "PERL*",
    "RUBY*",
    "GEM_*",
    "BUNDLE_*",
    "JAVA_*",
    "_JAVA_OPTIONS",
    "JDK_*",
    "CLASSPATH",
    "DOTNET_*",
    "COMPLUS_*",
    "CORECLR_*",
    "GIT_*",
    "KUBECTL_*",
    "LESSCLOSE",
    "LESSOPEN",
    "EDITOR",
    "PAGER",
    "VISUAL",
    "AZURE_EXTENSION_*",
    "CLOUDSDK_COMPONENT_MANAGER_*",
    "CLOUDSDK_PYTHON*",
    "GOOGLE_EXTERNAL_ACCOUNT_ALLOW_EXECUTABLES",
    // tsh downloads and runs another release of itself.
    "TELEPORT_CDN_*",
    "TELEPORT_TOOLS_*",
];

/// Paths of files, not of directories with programs.
const FILE_ENDINGS: &[&str] = &[
    "*_CERTIFICATE_PATH",
    "*_CERT_PATH",
    "*_CONFIG_PATH",
    "*_CREDENTIALS_PATH",
    "*_CREDS_PATH",
    "*_FILE_PATH",
    "*_KEY_PATH",
    "*_TOKEN_PATH",
];

const PROGRAM_ENDINGS: &[&str] = &[
    "*ASKPASS",
    "*BROWSER",
    "*EXECUTABLE*",
    "*PYTHON*",
    "*_ARGS",
    "*_BIN",
    "*_BINARY",
    "*_CMD",
    "*_COMMAND",
    "*_COMMANDS",
    "*_EDITOR",
    "*_EXEC",
    "*_EXTENSION*",
    "*_HELPER",
    "*_HOOK*",
    "*_INTERPRETER",
    "*_LIBRARY",
    "*_MODULE",
    "*_MODULES",
    "*_PAGER",
    "*_PATH",
    "*_PLUGIN*",
    "*_PRELOAD",
    "*_PROCESS",
    "*_PROGRAM",
    "*_SCRIPT",
    "*_SHELL",
];

const PLACE_ENDINGS: &[&str] = &[
    "*ADDR",
    "*ADDRESS",
    "*CACERT*",
    "*CAPATH",
    "*_AUTHORITY*",
    "*_BUNDLE",
    "*_CA",
    "*_CACHE*",
    "*_CA_*",
    "*_CERT*",
    "*_CONFIG",
    "*_DIR",
    "*_DIRECTORY",
    "*_DOMAIN",
    "*_ENDPOINT*",
    "*_FILE",
    "*_FILES",
    "*_FOLDER",
    "*_HOME",
    "*_HOST",
    "*_HOSTS",
    "*_ISSUER*",
    "*_PROXY*",
    "*_SERVER",
    "*_SOCK",
    "*_SOCKET",
    "*_URI",
    "*_URL",
    "*_URLS",
];

/// Endings that do not name a program, a file or a service.
const VALUE_ENDINGS: &[&str] = &["*_NAMESPACE", "*_PROFILE", "*_REGION", "*_TENANT", "*_TENANT_ID"];

#[cfg(test)]
mod tests {
    use credbroker_proto::IDENTITY_VARIABLES;

    use super::*;

    #[track_caller]
    fn assert_effects(expected: Effect, names: &[&str]) {
        for name in names {
            assert_eq!(effect(name), expected, "{name}");
        }
    }

    #[test]
    fn what_chooses_code_is_a_program() {
        assert_effects(
            Effect::Program,
            &[
                "CLOUDSDK_PYTHON",
                "CLOUDSDK_PYTHON_SITEPACKAGES",
                "GOOGLE_EXTERNAL_ACCOUNT_ALLOW_EXECUTABLES",
                "AZURE_EXTENSION_DIR",
                "AZURE_EXTENSION_INDEX_URL",
                "AWS_PAGER",
                "AWS_DATA_PATH",
                "KUBELOGIN_BROWSER",
                "TSH_EDITOR",
                "TELEPORT_TOOLS_VERSION",
                "VAULT_TOKEN_HELPER",
                "OIDC_TOKEN_COMMAND", // by its prefix alone, it would be a place
                "PATH",
                "LD_PRELOAD",
                "PYTHONPATH",
                "NODE_OPTIONS",
                "BROWSER",
                "GIT_SSH_COMMAND",
                "MY_LOGIN_CMD",
                "aws_pager",
            ],
        );
    }

    #[test]
    fn files_and_services_are_places() {
        assert_effects(
            Effect::Place,
            &[
                "AWS_CONFIG_FILE",
                "AWS_SHARED_CREDENTIALS_FILE",
                "AWS_CA_BUNDLE",
                "AWS_ENDPOINT_URL",
                "AWS_ENDPOINT_URL_STS",
                "AWS_WEB_IDENTITY_TOKEN_FILE",
                "AWS_CONTAINER_CREDENTIALS_FULL_URI",
                "AWS_CONTAINER_AUTHORIZATION_TOKEN",
                "AWS_EC2_METADATA_SERVICE_ENDPOINT",
                "AZURE_CONFIG_DIR",
                "AZURE_AUTHORITY_HOST",
                "AZURE_FEDERATED_TOKEN_FILE",
                "AZURE_CLIENT_CERTIFICATE_PATH",
                "AAD_SERVICE_PRINCIPAL_CLIENT_CERTIFICATE",
                "ARM_METADATA_HOST",
                "CLOUDSDK_CONFIG",
                "CLOUDSDK_PROXY_ADDRESS",
                "CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE",
                "CLOUDSDK_API_ENDPOINT_OVERRIDES_CONTAINER",
                "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE",
                "GOOGLE_APPLICATION_CREDENTIALS",
                "GOOGLE_GHA_CREDS_PATH",
                "VAULT_ADDR",
                "VAULT_AGENT_ADDR",
                "VAULT_CACERT",
                "VAULT_CAPATH",
                "VAULT_CONFIG_PATH",
                "VAULT_SKIP_VERIFY",
                "OIDC_ISSUER_URL",
                "TELEPORT_HOME",
                "TELEPORT_PROXY",
                "TELEPORT_CONFIG_FILE",
                "OCI_CLI_CONFIG_FILE",
                "OS_AUTH_URL",
                "OS_CACERT",
                "OS_CLIENT_CONFIG_FILE",
                "IBMCLOUD_HOME",
                "ALIBABA_CLOUD_CREDENTIALS_URI",
                "KRB5CCNAME",
                "KUBECONFIG",
                "HOME",
                "https_proxy",
            ],
        );
    }

    #[test]
    fn names_and_values_are_neither() {
        assert_effects(Effect::Identity, IDENTITIES);
        assert_effects(
            Effect::Value,
            &["AWS_REGION", "AWS_ACCESS_KEY_ID", "AZURE_CLIENT_SECRET", "SCW_REGION"],
        );
        for name in VALUES {
            assert_eq!(effect(&name.replace('*', "X")), Effect::Value, "{name}");
        }
        assert_effects(Effect::Unknown, &["AWS_SOMETHING_NEW", "TENANT", "WHO", ""]);
    }

    /// Users of a kubeconfig take these from the caller, so that the broker's own identity never replaces the caller's.
    #[test]
    fn what_selects_an_identity_is_sent_by_the_shim() {
        let sent = Globs::new(IDENTITY_VARIABLES);
        for name in IDENTITIES {
            assert!(sent.matches(name), "{name}");
        }
    }
}
