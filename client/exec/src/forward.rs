//! Which of the caller's variables are sent to the broker.

use std::{collections::BTreeMap, ffi::OsStr};

use credbroker_proto::{Globs, SESSION_VARIABLES, is_identity_variable};

use crate::edges::Environment;

const MORE: &str = "CREDBROKER_CALLER_ENV";

/// A variable that must be sent cannot be. It is an error, because without the variable the plugin could use another
/// identity than the caller selected.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "the value of {name} is not valid UTF-8, so it cannot be sent to the broker; unset the variable, or change its value"
)]
pub struct ForwardError {
    /// Its name. Its value is not shown.
    pub name: String,
}

/// The variables that match the identity list or a glob of `CREDBROKER_CALLER_ENV`.
pub(crate) fn forwarded(environment: &Environment) -> Result<BTreeMap<String, String>, ForwardError> {
    let refused = |name: &str| ForwardError { name: name.to_owned() };
    let more = match environment.get(MORE) {
        Some(globs) => {
            let globs = globs.to_str().ok_or_else(|| refused(MORE))?;
            Some(Globs::new(globs.split(',').map(str::trim)))
        }
        None => None,
    };
    let more = |name: &OsStr| Some(more.as_ref()?.matches(name.to_str()?));
    let mut sent = BTreeMap::new();
    for (name, value) in environment.iter() {
        if is_identity_variable(name.as_encoded_bytes()) || more(name) == Some(true) {
            let Some(name) = name.to_str() else { continue };
            sent.insert(name.to_owned(), value.to_str().ok_or_else(|| refused(name))?.to_owned());
        }
    }
    Ok(sent)
}

/// The variables of the session of the person at the terminal. Without one that cannot be sent, a login may need another
/// way, but the identity is the same.
pub(crate) fn session(environment: &Environment) -> impl Iterator<Item = (String, String)> {
    SESSION_VARIABLES.into_iter().filter_map(|name| {
        let value = environment.get(name)?.to_str().filter(|value| !value.is_empty())?;
        Some((name.to_owned(), value.to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use std::{ffi::OsString, os::unix::ffi::OsStringExt};

    use super::*;

    fn environment(pairs: &[(&str, &[u8])]) -> Environment {
        pairs.iter().map(|(name, value)| (OsString::from(name), OsString::from_vec(value.to_vec()))).collect()
    }

    #[test]
    fn the_identity_list_and_the_callers_globs_are_sent_and_nothing_else() {
        let all = environment(&[
            ("AWS_PROFILE", b"dev"),
            ("KUBECONFIG", b"/k"),
            ("HOME", b"/home/me"),
            ("MY_TENANT", b"t"),
            ("YOURS", b""),
            ("CREDBROKER_CALLER_ENV", b" MY_* ,,YOURS"),
            ("SECRET", b"\xff"),
        ]);
        let sent = forwarded(&all).unwrap();
        let names: Vec<_> = sent.keys().map(String::as_str).collect();
        assert_eq!(names, ["AWS_PROFILE", "MY_TENANT", "YOURS"]);
        assert_eq!(sent["AWS_PROFILE"], "dev");
    }

    #[test]
    fn a_session_has_the_known_variables_that_can_be_sent() {
        let all = environment(&[
            ("DISPLAY", b":1"),
            ("BROWSER", b""),
            ("XAUTHORITY", b"\xff"),
            ("TERM", b"xterm"),
            ("HOME", b"/home/me"),
        ]);
        let sent: Vec<_> = session(&all).collect();
        assert_eq!(
            sent,
            [("DISPLAY", ":1"), ("TERM", "xterm")].map(|(name, value)| (name.into(), value.into()))
        );
    }

    #[test]
    fn an_identity_that_cannot_be_sent_is_an_error_that_names_it() {
        let error = forwarded(&environment(&[("AWS_PROFILE", b"c4n4ry\xff")])).unwrap_err();
        assert!(error.to_string().contains("AWS_PROFILE") && !error.to_string().contains("c4n4ry"));
        assert!(forwarded(&environment(&[(MORE, b"\xff")])).is_err());
    }
}
