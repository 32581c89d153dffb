//! Which of a caller's variables travel: what the shim sends and the broker keeps must be read alike.

/// The variables by which common plugins choose an identity: they belong to the caller, never to the broker. The
/// shim sends what these patterns cover, and a kubeconfig's users take it from the caller.
pub const IDENTITY_VARIABLES: [&str; 20] = [
    "AWS_*",
    "AZURE_*",
    "AAD_*",
    "ARM_*",
    "GOOGLE_*",
    "CLOUDSDK_*",
    "OIDC_*",
    "VAULT_*",
    "TSH_*",
    "TELEPORT_*",
    "KUBELOGIN_*",
    "OCI_*",
    "OS_*",
    "IBMCLOUD_*",
    "DIGITALOCEAN_*",
    "ALIBABA_CLOUD_*",
    "TANZU_*",
    "PINNIPED_*",
    // aws-iam-authenticator and ack-ram-authenticator.
    "DEFAULT_ROLE",
    "KRB5CCNAME",
];

/// Whether a variable with this name is one of [`IDENTITY_VARIABLES`]. As [`Globs`] of them, without building these: the shim
/// asks once for each of its caller's variables.
pub fn is_identity_variable(name: &[u8]) -> bool {
    IDENTITY_VARIABLES.iter().any(|pattern| {
        let pattern = pattern.as_bytes();
        // Few have the same first letter, and a comparison of slices is a call.
        pattern.first() == name.first()
            && match pattern.strip_suffix(b"*") {
                Some(prefix) => name.starts_with(prefix),
                None => name == pattern,
            }
    })
}

/// Words of names that select an account, in any program.
const ACCOUNT_WORDS: [&[u8]; 7] =
    [b"PROFILE", b"ACCOUNT", b"CONTEXT", b"TENANT", b"PROJECT", b"SUBSCRIPTION", b"REGION"];
/// Words of names whose values may be secret. Kubernetes gives each container variables with the word `PORT` for each Service.
const OTHER_WORDS: &str = "KEY KEYS APIKEY TOKEN TOKENS SECRET SECRETS PASS PASSWORD PASSWD PWD PASSPHRASE CREDENTIAL \
                           CREDENTIALS JSON JWT PORT";
/// How names begin that CI systems, tools, desktops and terminals set for every program.
const OF_ALL_PROGRAMS: &str = "CI_ GITHUB_ DOCKER_ NIX_ XDG_ACTIVATION_ GNOME_TERMINAL_ ITERM_ KONSOLE_ PTYXIS_ TERMINATOR_ \
                               TILIX_ VSCODE_ WT_";

/// Whether a program that is not known probably selects its account with a variable of this name, such as `SCW_PROFILE`: a
/// word between underscores says so. The shim sends these variables, and the users of a kubeconfig take them from the caller.
pub fn is_account_variable(name: &[u8]) -> bool {
    let words = || name.split(|byte| *byte == b'_');
    let is_other = |word: &[u8]| OTHER_WORDS.split(' ').any(|other| other.as_bytes() == word);
    words().any(|word| ACCOUNT_WORDS.contains(&word))
        && !words().any(is_other)
        && !name.ends_with(b"_SERVICE_HOST")
        && !is_of_all_programs(name)
        && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
}

/// Whether a CI system, a tool, a desktop or a terminal sets a variable of this name for every program.
pub fn is_of_all_programs(name: &[u8]) -> bool {
    OF_ALL_PROGRAMS.split(' ').any(|prefix| name.starts_with(prefix.as_bytes()))
}

/// The variables of a user's session: how a plugin reaches the screen, the browser and the agents of the user who waits
/// for it. The shim sends them at a terminal, and they reach only the run that its request starts.
pub const SESSION_VARIABLES: [&str; 7] = [
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "DBUS_SESSION_BUS_ADDRESS",
    "SSH_AUTH_SOCK",
    "BROWSER",
    "TERM",
];

/// Patterns over variable names, in which `*` matches any text, also an empty one. No other character is special.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Globs(Vec<Glob>);

/// One pattern, split once: names are matched on every request.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Glob {
    /// Up to the first `*`.
    first: String,
    /// After the first `*`; `None` if there is no `*`.
    rest: Option<Rest>,
}

/// The parts after the first `*`.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Rest {
    /// Between two `*`, in their order.
    middle: Vec<String>,
    /// After the last `*`.
    last: String,
}

impl Globs {
    /// Patterns in any order; a name matches if one of them does.
    pub fn new(patterns: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        Self(patterns.into_iter().map(|pattern| Glob::new(pattern.as_ref())).collect())
    }

    /// Whether there is no pattern.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// These patterns and `others`.
    #[must_use]
    pub fn and(mut self, others: Self) -> Self {
        self.0.extend(others.0);
        self
    }

    /// Whether one of the patterns is `name` itself.
    pub fn lists(&self, name: &str) -> bool {
        self.0.iter().any(|glob| glob.rest.is_none() && glob.first == name)
    }

    /// Whether one of the patterns covers the whole of `name`.
    pub fn matches(&self, name: &str) -> bool {
        self.0.iter().any(|glob| glob.covers(name))
    }
}

impl Glob {
    fn new(pattern: &str) -> Self {
        let mut parts = pattern.split('*').map(str::to_owned);
        let first = parts.next().unwrap_or_default();
        let mut middle: Vec<_> = parts.collect();
        let rest = middle.pop().map(|last| Rest { middle, last });
        Self { first, rest }
    }

    /// Whether it matches the whole of `name`. The leftmost place for each middle part is as good as any other, so
    /// nothing is tried twice: the time is linear for every pattern.
    fn covers(&self, name: &str) -> bool {
        let Some(Rest { middle, last }) = &self.rest else { return self.first == name };
        let Some(mut rest) = name.strip_prefix(self.first.as_str()) else { return false };
        // The last part is compared first, because most names do not end with it.
        let Some(without_last) = rest.strip_suffix(last.as_str()) else { return false };
        rest = without_last;
        for part in middle {
            let Some((_, after)) = rest.split_once(part.as_str()) else { return false };
            rest = after;
        }
        true
    }
}

#[cfg(test)]
mod tests;
