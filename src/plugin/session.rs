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
        let session = Self(variables);
        (origin == Origin::Beside && !session.0.is_empty()).then(|| Arc::new(session))
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

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn environment(session: Option<&Session>, set: &[&str]) -> String {
        let all = ["HOME", "DISPLAY", "WAYLAND_DISPLAY", "BROWSER", "SSH_AUTH_SOCK", "TERM"];
        let mut environment: BTreeMap<_, _> =
            all.iter().map(|name| (OsString::from(name), OsString::from("own"))).collect();
        Session::put(session, &mut environment, |name| set.contains(&name));
        let shown = environment.iter().map(|(name, value)| format!("{}={}", name.display(), value.display()));
        shown.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn only_a_caller_beside_the_broker_has_a_session_and_only_of_the_known_variables() {
        let all = [
            ("DISPLAY", ":1"),
            ("BROWSER", "firefox"),
            ("LD_PRELOAD", "x"),
            ("PATH", "/x"),
            ("TERM", "a\0b"),
        ];
        assert_eq!(Session::of(sent(&all), Origin::Elsewhere), None);
        let session = Session::of(sent(&all), Origin::Beside).unwrap();
        assert_eq!(session.0.keys().collect::<Vec<_>>(), ["BROWSER", "DISPLAY"]);
        let long = "x".repeat(LONGEST + 1);
        assert_eq!(Session::of(sent(&[("DISPLAY", &long), ("HOME", "/")]), Origin::Beside), None);
    }

    #[test]
    fn without_a_session_no_screen_is_left_even_if_the_stanza_names_it() {
        assert_eq!(environment(None, &[]), "HOME=own SSH_AUTH_SOCK=own TERM=own");
        assert_eq!(environment(None, &["BROWSER"]), "HOME=own SSH_AUTH_SOCK=own TERM=own");
    }

    #[test]
    fn a_session_replaces_the_brokers_and_the_stanza_replaces_both() {
        let pairs = [("DISPLAY", ":1"), ("BROWSER", "firefox"), ("SSH_AUTH_SOCK", "/agent")];
        let session = Session::of(sent(&pairs), Origin::Beside).unwrap();
        assert_eq!(
            environment(Some(&session), &["BROWSER", "HOME"]),
            "BROWSER=own DISPLAY=:1 HOME=own SSH_AUTH_SOCK=/agent TERM=own"
        );
    }

    #[test]
    fn debug_shows_no_value() {
        let session = Session::of(sent(&[("DISPLAY", "canary")]), Origin::Beside);
        let shown = format!("{session:?}");
        assert!(shown.contains("DISPLAY") && !shown.contains("canary"), "{shown}");
    }
}
