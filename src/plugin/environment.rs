//! Environments, and which variables reach a plugin.

use std::{collections::BTreeMap, ffi::OsString, fmt};

/// A set of environment variables. `Debug` shows names only: values are often secrets.
#[derive(Clone, Default, Eq, PartialEq)]
pub struct Environment(pub BTreeMap<OsString, OsString>);

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// Patterns over variable names, in which `*` stands for any text.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Globs(Vec<String>);
