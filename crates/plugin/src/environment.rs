//! The environment of a plugin: what it inherits from the broker, and the session of a user.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    sync::Arc,
};

use credbroker_proto::{Globs, SESSION_VARIABLES};

use super::variables::{is_denied, is_standing};

/// A set of environment variables. `Debug` shows names only: values are often secrets.
#[derive(Clone, derive_more::Debug, Default, Eq, PartialEq)]
#[debug("{:?}", _0.keys())]
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
    /// A name in `caller_env` is never inherited: the broker's `AWS_PROFILE` is not for a caller without one.
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

/// Variables that lead to a screen. Without a user, no plugin gets them: it would open a window that nothing answers.
const SCREENS: [&str; 3] = ["DISPLAY", "WAYLAND_DISPLAY", "BROWSER"];
const LONGEST: usize = 4096;
/// The address of a bus. Some kinds of address name a program that the library of the plugin starts.
const BUS: &str = "DBUS_SESSION_BUS_ADDRESS";
/// The kinds of bus address that only connect.
const BUS_KINDS: [&str; 4] = ["unix:", "tcp:", "nonce-tcp:", "launchd:"];

/// Where a caller runs.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Origin {
    /// As the broker's own user, in its mount and PID namespaces: it could run the plugin with its own files anyway.
    Beside,
    /// Anywhere else, for example in another container.
    #[default]
    Elsewhere,
}

/// The variables of one user's session. `Debug` shows names only.
///
/// They are in no key, and reach only the run that the user's request starts. Only `BROWSER` may name a program.
#[derive(derive_more::Debug, Eq, PartialEq)]
#[debug("{:?}", _0.keys())]
pub struct Session(BTreeMap<String, String>);

impl Session {
    /// The session that a caller at `origin` sent; `None`: it sent none, or it does not run beside the broker, so that the
    /// names of files mean something else to it, and a program could be another one.
    pub fn of(sent: BTreeMap<String, String>, origin: Origin) -> Option<Arc<Self>> {
        let mut variables = sent;
        let is_possible = |value: &str| value.len() <= LONGEST && !value.contains('\0');
        variables.retain(|name, value| SESSION_VARIABLES.contains(&name.as_str()) && is_possible(value));
        variables.retain(|name, value| name != BUS || only_connects(value));
        let session = Self(variables);
        (origin == Origin::Beside && !session.0.is_empty()).then(|| Arc::new(session))
    }

    /// The values of its variables.
    pub fn values(&self) -> impl Iterator<Item = &str> {
        self.0.values().map(String::as_str)
    }

    /// Puts `session` into `environment`, which has the variables `set` of the stanza: these stay. Without a session, the
    /// plugin gets no variable that leads to a screen, wherever it comes from.
    pub(super) fn put(
        session: Option<&Self>,
        environment: &mut BTreeMap<OsString, OsString>,
        set: impl Fn(&str) -> bool,
    ) {
        // The broker's own screen is that of another session.
        for name in SCREENS.iter().filter(|name| session.is_none() || !set(name)) {
            environment.remove(OsStr::new(name));
        }
        let variables = session.iter().flat_map(|session| &session.0);
        for (name, value) in variables.filter(|(name, _)| !set(name)) {
            environment.insert(name.into(), value.into());
        }
    }
}

/// Whether a plugin that follows this bus address, a list of alternatives, starts no program (`unixexec:`, `autolaunch:`).
fn only_connects(address: &str) -> bool {
    address.split(';').all(|part| part.is_empty() || BUS_KINDS.iter().any(|kind| part.starts_with(kind)))
}

#[cfg(test)]
mod tests;
