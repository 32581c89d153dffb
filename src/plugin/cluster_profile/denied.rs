//! Variables that no profile sets.

use std::sync::LazyLock;

use crate::plugin::{Globs, is_denied};

/// They choose which code the plugin runs, where its settings and caches are, or whom it talks to and trusts. Whoever
/// may write a profile could take over the plugin's own identity with them.
const NAMES: [&str; 50] = [
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
    "BROWSER",
    "RUST_*",
    "SSLKEYLOGFILE",
];

/// Whether a variable of that name is kept from profiles, whatever the policy. Proxies are read in lower case too.
pub(super) fn is_denied_to_profiles(name: &str) -> bool {
    static GLOBS: LazyLock<Globs> = LazyLock::new(|| Globs::new(NAMES));
    let upper = name.to_ascii_uppercase();
    is_denied(&upper) || GLOBS.matches(&upper)
}
