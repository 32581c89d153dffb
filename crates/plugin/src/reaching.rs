//! Which variables reach a plugin.

use std::sync::LazyLock;

use credbroker_proto::{Globs, IDENTITY_VARIABLES};

/// Variables that reach every plugin from the broker: a program needs them to run and to reach its issuer.
const STANDING: [&str; 17] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LC_*",
    "TZ",
    "TMPDIR",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "KUBERNETES_SERVICE_*",
];

/// Variables that reach no plugin from any source: they load code into it, belong to the broker's service manager, or
/// hold the broker's own settings. The broker writes `KUBERNETES_EXEC_INFO` for each run.
const DENIED: [&str; 8] = [
    "LD_*",
    "DYLD_*",
    "LISTEN_*",
    "NOTIFY_SOCKET",
    "WATCHDOG_*",
    "CREDENTIALS_DIRECTORY",
    "CREDBROKER_*",
    "KUBERNETES_EXEC_INFO",
];

/// Whether a variable of that name reaches every plugin from the broker.
pub(super) fn is_standing(name: &str) -> bool {
    static GLOBS: LazyLock<Globs> = LazyLock::new(|| Globs::new(STANDING));
    GLOBS.matches(name)
}

/// Whether a variable of that name reaches no plugin.
pub fn is_denied(name: &str) -> bool {
    static GLOBS: LazyLock<Globs> = LazyLock::new(|| Globs::new(DENIED));
    GLOBS.matches(name)
}

/// The variables with which common plugins select an identity: `callerEnv` of a provider from a kubeconfig.
pub fn identity_variables() -> Globs {
    Globs::new(IDENTITY_VARIABLES)
}
