//! Where the broker's socket is.

use std::{
    ffi::OsStr,
    fmt,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// What may say where the socket is, in descending precedence. Read by the caller: this crate reads no environment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Locations<'a> {
    /// A command line flag.
    pub flag: Option<&'a OsStr>,
    /// `CREDBROKER_SOCKET`; empty counts as unset.
    pub variable: Option<&'a OsStr>,
    /// `XDG_RUNTIME_DIR`; a relative one counts as unset, as its specification demands.
    pub runtime_directory: Option<&'a OsStr>,
    /// Root's broker is the system's: its `XDG_RUNTIME_DIR` is not looked at.
    pub is_root: bool,
}

/// One or more paths of which the first that exists is the broker's socket.
///
/// They are looked at anew with every attempt to connect, so a broker that starts meanwhile is found.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Socket {
    candidates: Vec<PathBuf>,
}

/// A socket address that names no path.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{origin} has {value:?}, which is no socket address; write a path or unix:///absolute/path")]
pub struct SocketError {
    /// Where it was given.
    pub origin: &'static str,
    /// What was given.
    pub value: String,
}

impl Socket {
    /// Where the system's broker listens.
    pub const SYSTEM: &str = "/run/credbroker/credbroker.sock";

    /// The socket at `path`, nowhere else.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { candidates: vec![path.into()] }
    }

    /// The flag, else the variable, else the user's broker if it is there, else the system's.
    ///
    /// # Errors
    ///
    /// The flag or the variable is neither a path nor `unix://` with an absolute path.
    pub fn locate(locations: &Locations<'_>) -> Result<Self, SocketError> {
        if let Some(flag) = locations.flag {
            return parse("--socket", flag);
        }
        if let Some(variable) = locations.variable.filter(|value| !value.is_empty()) {
            return parse("CREDBROKER_SOCKET", variable);
        }
        let user = locations
            .runtime_directory
            .map(Path::new)
            .filter(|directory| !locations.is_root && directory.is_absolute())
            .map(|directory| directory.join("credbroker/credbroker.sock"));
        Ok(Self { candidates: user.into_iter().chain([Self::SYSTEM.into()]).collect() })
    }

    /// Every path that is looked at, in order.
    pub fn candidates(&self) -> impl Iterator<Item = &Path> {
        self.candidates.iter().map(PathBuf::as_path)
    }
}

/// For messages: `/a` or `/a or /b`.
impl fmt::Display for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, path) in self.candidates.iter().enumerate() {
            let separator = if index == 0 { "" } else { " or " };
            write!(f, "{separator}{}", path.display())?;
        }
        Ok(())
    }
}

fn parse(origin: &'static str, text: &OsStr) -> Result<Socket, SocketError> {
    let bytes = text.as_bytes();
    let path = match bytes.strip_prefix(b"unix:") {
        Some(rest) => rest.strip_prefix(b"//").unwrap_or(rest),
        None => bytes,
    };
    let absolute = path.first() == Some(&b'/');
    let names_a_file = Path::new(OsStr::from_bytes(path)).file_name().is_some();
    // A NUL cannot be in a path, and other schemes are a mistake worth naming.
    let is_url = path.windows(3).any(|window| window == b"://");
    if !names_a_file || path.contains(&0) || (is_url && !absolute) || (path.len() < bytes.len() && !absolute)
    {
        return Err(SocketError { origin, value: text.to_string_lossy().into_owned() });
    }
    Ok(Socket::at(OsStr::from_bytes(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: &str = "/run/user/1000/credbroker/credbroker.sock";

    fn located(
        flag: Option<&str>,
        variable: Option<&str>,
        runtime_directory: Option<&str>,
        is_root: bool,
    ) -> String {
        let locations = Locations {
            flag: flag.map(OsStr::new),
            variable: variable.map(OsStr::new),
            runtime_directory: runtime_directory.map(OsStr::new),
            is_root,
        };
        Socket::locate(&locations).map_or_else(|error| error.to_string(), |socket| socket.to_string())
    }

    #[test]
    fn the_flag_wins_over_the_variable_and_the_variable_over_the_places() {
        let runtime = Some("/run/user/1000");
        let both = format!("{USER} or {}", Socket::SYSTEM);
        for (flag, variable, runtime, is_root, expected) in [
            (Some("/flag"), Some("/variable"), runtime, false, "/flag"),
            (Some("unix:///flag"), None, None, false, "/flag"),
            (Some("here.sock"), None, None, false, "here.sock"),
            (None, Some("/variable"), runtime, false, "/variable"),
            (None, Some("unix:/variable"), runtime, false, "/variable"),
            (None, Some(""), runtime, false, both.as_str()),
            (None, None, runtime, false, both.as_str()),
            (None, None, runtime, true, Socket::SYSTEM),
            (None, None, None, false, Socket::SYSTEM),
            (None, None, Some("run"), false, Socket::SYSTEM),
        ] {
            assert_eq!(located(flag, variable, runtime, is_root), expected, "{flag:?} {variable:?}");
        }
    }

    #[test]
    fn what_names_no_path_is_refused_with_where_it_was_given() {
        for text in ["", "unix://", "unix://relative/path", "unix:relative", "tcp://127.0.0.1:80", "/", ".."]
        {
            let message = located(Some(text), None, None, false);
            assert!(message.starts_with("--socket has"), "{text:?}: {message}");
        }
        assert!(located(None, Some("http://x"), None, false).starts_with("CREDBROKER_SOCKET has"));
    }
}
