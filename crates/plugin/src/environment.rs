//! Environments.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fmt,
    path::{Path, PathBuf},
};

use credbroker_proto::Globs;

use super::reaching::{is_denied, is_standing};

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

#[cfg(test)]
mod tests;
