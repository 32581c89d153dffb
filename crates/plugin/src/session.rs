//! The session of a person: how a plugin reaches the person's screen, browser and agents.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fmt,
    sync::Arc,
};

use credbroker_proto::SESSION_VARIABLES;

use super::caller::Origin;

/// Variables that lead to a screen. Without a person, no plugin gets them: it would open a window that nothing answers.
const SCREENS: [&str; 3] = ["DISPLAY", "WAYLAND_DISPLAY", "BROWSER"];
/// The longest value in bytes.
const LONGEST: usize = 4096;
/// The address of a bus. Some kinds of address name a program that the library of the plugin starts.
const BUS: &str = "DBUS_SESSION_BUS_ADDRESS";
/// The kinds of bus address that only connect.
const BUS_KINDS: [&str; 4] = ["unix:", "tcp:", "nonce-tcp:", "launchd:"];

/// The variables of one person's session. `Debug` shows names only.
///
/// They are not part of any key and reach only the run that the person's request starts. `BROWSER` names a program: no
/// other variable of a caller may.
#[derive(Eq, PartialEq)]
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

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests;
