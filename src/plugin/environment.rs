//! Environments, and which variables reach a plugin.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fmt,
    path::{Path, PathBuf},
    sync::LazyLock,
};

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

/// A set of environment variables. `Debug` shows names only: values are often secrets.
#[derive(Clone, Default, Eq, PartialEq)]
pub struct Environment(pub BTreeMap<OsString, OsString>);

impl Environment {
    /// The value of `name`, which may be empty.
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.0.get(OsStr::new(name)).map(OsString::as_os_str)
    }

    /// The value of `name` unless it is unset or empty, which mean the same for a path or a switch.
    pub fn set(&self, name: &str) -> Option<&OsStr> {
        self.get(name).filter(|value| !value.is_empty())
    }

    /// A base directory of the XDG specification: `variable` if it is an absolute path, else `default` in the home.
    pub fn base_directory(&self, variable: &str, default: &str) -> Option<PathBuf> {
        let set = self.set(variable).map(PathBuf::from).filter(|path| path.is_absolute());
        set.or_else(|| Some(Path::new(self.set("HOME")?).join(default)))
    }

    /// The variables of the broker's environment (`self`) that a plugin inherits: the standard list and `pass_env`.
    ///
    /// A name in `caller_env` is never inherited. Otherwise a broker started with `AWS_PROFILE=prod` would give prod to
    /// every caller without that variable.
    #[must_use]
    pub fn inherited(&self, pass_env: &Globs, caller_env: &Globs) -> Self {
        let wanted = |name: &str| is_standing(name) || pass_env.matches(name);
        let reaches = |name: &str| wanted(name) && !is_denied(name) && !caller_env.matches(name);
        let kept = self.0.iter().filter(|(name, _)| reaches(&name.to_string_lossy()));
        kept.map(|(name, value)| (name.clone(), value.clone())).collect()
    }
}

impl<N: Into<OsString>, V: Into<OsString>> FromIterator<(N, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(variables: I) -> Self {
        Self(variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

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

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    fn names(env: &Environment) -> Vec<String> {
        env.0.keys().map(|name| name.to_string_lossy().into_owned()).collect()
    }

    fn of(names: &[&str]) -> Environment {
        names.iter().map(|name| (*name, "value")).collect()
    }

    #[test]
    fn a_base_directory_is_an_absolute_path_or_in_the_home() {
        let of = |variables: &[(&str, &str)]| {
            let environment: Environment = variables.iter().copied().collect();
            environment.base_directory("XDG_CONFIG_HOME", ".config")
        };
        assert_eq!(of(&[("HOME", "/h"), ("XDG_CONFIG_HOME", "/c")]), Some("/c".into()));
        for set in ["", "relative"] {
            assert_eq!(of(&[("HOME", "/h"), ("XDG_CONFIG_HOME", set)]), Some("/h/.config".into()));
        }
        assert_eq!(of(&[("HOME", "")]), None);
    }

    #[test]
    fn a_plugin_gets_the_standing_list_and_what_pass_env_names() {
        let broker =
            of(&["PATH", "LC_ALL", "https_proxy", "KUBERNETES_SERVICE_HOST", "SSH_AUTH_SOCK", "MY_A"]);
        let inherited = broker.inherited(&Globs::new(["MY_*"]), &Globs::default());
        assert_eq!(names(&inherited), ["KUBERNETES_SERVICE_HOST", "LC_ALL", "MY_A", "PATH", "https_proxy"]);
    }

    #[test]
    fn the_identity_of_the_broker_reaches_no_plugin() {
        let broker = of(&["AWS_PROFILE", "KRB5CCNAME", "CLOUDSDK_CONFIG", "HOME", "EDITOR"]);
        let inherited = broker.inherited(&Globs::new(["*"]), &identity_variables());
        assert_eq!(names(&inherited), ["EDITOR", "HOME"]);
    }

    #[test]
    fn denied_names_reach_no_plugin_even_if_listed() {
        let all = [
            "LD_PRELOAD",
            "LD_LIBRARY_PATH",
            "DYLD_INSERT_LIBRARIES",
            "LISTEN_FDS",
            "LISTEN_PID",
            "NOTIFY_SOCKET",
            "WATCHDOG_USEC",
            "CREDENTIALS_DIRECTORY",
            "CREDBROKER_SOCKET",
            "KUBERNETES_EXEC_INFO",
        ];
        let pass = Globs::new(["*", "LD_PRELOAD"]);
        assert_eq!(names(&of(&all).inherited(&pass, &Globs::default())), [""; 0]);
    }

    #[test]
    fn a_name_that_is_not_utf_8_passes_with_the_rest_and_is_denied_like_the_rest() {
        let odd = OsString::from_vec(b"ODD_\xff".to_vec());
        let denied = OsString::from_vec(b"LD_\xff".to_vec());
        let broker: Environment = [(odd.clone(), "1"), (denied, "2")].into_iter().collect();
        let inherited = broker.inherited(&Globs::new(["*"]), &Globs::default());
        assert_eq!(inherited.0.keys().collect::<Vec<_>>(), [&odd]);
    }

    #[test]
    fn debug_shows_no_values() {
        let shown = format!("{:?}", Environment::from_iter([("TOKEN", "canary")]));
        assert!(shown.contains("TOKEN") && !shown.contains("canary"), "{shown}");
    }
}
