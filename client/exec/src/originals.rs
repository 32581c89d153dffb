//! The plugins that may run without a broker: a file of this user, which `credbroker kubeconfig inject` and `wrap` write.
//!
//! Each line has the digest of a definition and the absolute path that its command led to when the user saw it.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

/// Where the file of a user with these directories is: `$XDG_STATE_HOME`, else `~/.local/state`. `None`: neither is an absolute
/// path.
pub fn originals(state_home: Option<&Path>, home: Option<&Path>) -> Option<PathBuf> {
    let state = state_home.filter(|path| path.is_absolute()).map(Path::to_owned);
    let state = state.or_else(|| Some(home.filter(|path| path.is_absolute())?.join(".local/state")));
    Some(state?.join("credbroker/originals"))
}

/// The line for a definition; `None`: the path is not absolute, not UTF-8, or has a line break.
pub fn original_line(digest: &str, program: &Path) -> Option<String> {
    let path = program.to_str().filter(|path| program.is_absolute() && !path.contains('\n'))?;
    (!digest.is_empty()).then(|| format!("{digest} {path}\n"))
}

/// The path that is recorded for a definition, the last one if there are several.
pub fn original_of<'a>(file: &'a [u8], digest: &str) -> Option<&'a Path> {
    let path = |line: &'a [u8]| line.strip_prefix(digest.as_bytes())?.strip_prefix(b" ");
    let path = file.split(|byte| *byte == b'\n').rev().find_map(path)?;
    Some(Path::new(OsStr::from_bytes(path))).filter(|path| path.is_absolute())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_by_its_whole_digest() {
        let line = |digest, path: &str| original_line(digest, Path::new(path));
        let lines = [line("ab12", "/bin/first"), line("ab", "/opt/with space"), line("ab12", "/bin/second")];
        let file = lines.map(Option::unwrap).concat().into_bytes();
        let found = |digest| original_of(&file, digest).and_then(Path::to_str);
        assert_eq!(found("ab12"), Some("/bin/second"));
        assert_eq!(found("ab"), Some("/opt/with space"));
        assert_eq!((found("a"), found("ab1"), found("cd"), found("")), (None, None, None, None));
        assert_eq!(original_of(b"ab relative\ncd", "ab"), None);
        assert_eq!(line("ab", "relative"), None);
        assert_eq!(line("ab", "/a\nab /b"), None);
        assert_eq!(line("", "/a"), None);
    }

    #[test]
    fn the_file_is_in_the_state_directory() {
        let of = |state: Option<&str>, home: Option<&str>| {
            originals(state.map(Path::new), home.map(Path::new)).map(|path| path.to_str().unwrap().to_owned())
        };
        let home = Some("/home/me");
        assert_eq!(of(None, home).as_deref(), Some("/home/me/.local/state/credbroker/originals"));
        assert_eq!(of(Some("/state"), home).as_deref(), Some("/state/credbroker/originals"));
        assert_eq!(of(Some("state"), home), of(None, home));
        assert_eq!((of(None, None), of(None, Some("me"))), (None, None));
    }
}
