//! Variables that a profile can never set.

use std::sync::LazyLock;

use crate::{Globs, is_denied, is_known_danger};

/// They choose which code the plugin runs, where its settings and caches are, or which servers it uses and trusts. With
/// them a writer of a profile could take over the plugin's own identity.
const NAMES: [&str; 87] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TMPDIR",
    "TMP",
    "TEMP",
    "XDG_*",
    "KUBECONFIG",
    "KUBERNETES_*",
    "*_PROXY",
    "SSL_*",
    "OPENSSL_*",
    "CURL_*",
    "REQUESTS_CA_BUNDLE",
    "AWS_CA_BUNDLE",
    "AWS_*_URI",
    "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_ENDPOINT_URL*",
    "AWS_EC2_METADATA_*",
    "AZURE_AUTHORITY_HOST",
    "AZURE_CONFIG_DIR",
    "AZURE_POD_IDENTITY_*",
    "AAD_AUTHORITY_HOST",
    "IDENTITY_ENDPOINT",
    "MSI_ENDPOINT",
    "GCE_METADATA_*",
    "CLOUDSDK_CONFIG",
    "CLOUDSDK_PROXY_*",
    "CLOUDSDK_AUTH_*",
    "CLOUDSDK_API_*",
    "CLOUDSDK_CORE_CUSTOM_CA_*",
    "VAULT_*ADDR",
    "VAULT_CA*",
    "VAULT_SKIP_VERIFY",
    "VAULT_TLS_SERVER_NAME",
    "SPIFFE_ENDPOINT_SOCKET",
    "KRB5_CONFIG",
    "KUBERC",
    "KUBECTL_*",
    "KUBECACHEDIR",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    "GODEBUG",
    "GCONV_PATH",
    "GLIBC_TUNABLES",
    "LOCPATH",
    "NLSPATH",
    "MALLOC_*",
    "HOSTALIASES",
    "LOCALDOMAIN",
    "RES_OPTIONS",
    "BASH_*",
    "BASHOPTS",
    "SHELLOPTS",
    "ENV",
    "IFS",
    "PS4",
    "PYTHON*",
    "NODE_*",
    "NPM_*",
    "PERL*",
    "RUBY*",
    "GEM_*",
    "JAVA_*",
    "_JAVA_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "CLASSPATH",
    "DOTNET_*",
    "CORECLR_*",
    "CLOUDSDK_PYTHON*",
    "RUST_*",
    "SSLKEYLOGFILE",
    "VAULT_CONFIG_PATH",
    "AWS_DATA_PATH",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AZURE_FEDERATED_TOKEN_FILE",
    "AZURE_CLIENT_CERTIFICATE_PATH",
    "GOOGLE_EXTERNAL_ACCOUNT_*",
    "GOOGLE_GHA_CREDS_PATH",
    "DOCKER_*",
    "GNUPGHOME",
    "*ASKPASS",
    "*PAGER",
    "*EDITOR",
    "*BROWSER",
];

/// Where a plugin for Azure authenticates. A profile may select one of Microsoft's clouds.
const AUTHORITY: [&str; 2] = ["AZURE_AUTHORITY_HOST", "AAD_AUTHORITY_HOST"];
const AUTHORITIES: [&str; 5] = [
    "https://login.microsoftonline.com",
    "https://login.microsoftonline.us",
    "https://login.chinacloudapi.cn",
    "https://login.partner.microsoftonline.cn",
    "https://login.microsoftonline.de",
];

/// Whether a profile may not set this variable under any policy. Names in lower case count too: programs read some of
/// them, for example those of proxies.
pub(super) fn is_denied_to_profiles(name: &str, value: &str) -> bool {
    static GLOBS: LazyLock<Globs> = LazyLock::new(|| Globs::new(NAMES));
    if AUTHORITY.contains(&name) && AUTHORITIES.contains(&value.trim_end_matches('/')) {
        return false;
    }
    let upper = name.to_ascii_uppercase();
    is_denied(&upper) || is_known_danger(&upper) || GLOBS.matches(&upper)
}
