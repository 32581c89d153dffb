//! Becomes the original plugin where no broker answers, so that no client is locked out.
//!
//! A kubeconfig decides the arguments of the shim and a part of its environment. So that a foreign one cannot use the shim to
//! run what kubectl's plugin allowlist forbids, only a path runs that is among the [originals](crate::originals) of this user,
//! and only in the environment of the client.

use std::{
    ffi::{OsStr, OsString},
    fs::OpenOptions,
    io::{self, IsTerminal as _, Read as _},
    os::unix::{ffi::OsStrExt as _, fs::OpenOptionsExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::Command,
};

use credbroker_client::safety::unsafe_file;
use rustix::fs::OFlags;

use crate::{
    arguments::{Arguments, Original},
    document::ApiVersion,
    edges::Environment,
    exec_info::ExecInfo,
    originals::{original_of, originals},
    source::Source,
};

/// Largest file of originals, in bytes.
const MOST: u64 = 4 << 20;
/// Variables that differ from those of the client: client-go sets the first, shells the others.
const OF_THE_START: [&str; 5] = ["KUBERNETES_EXEC_INFO", "PWD", "OLDPWD", "SHLVL", "_"];

/// Why the original plugin does not run although it may.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FallbackError {
    /// The plugin reads from a terminal, as its stanza says. client-go refuses that too.
    #[error("no broker answers, and the plugin needs a terminal on standard input")]
    NoTerminal,
    /// The plugin cannot be started.
    #[error("no broker answers, and {} cannot be started", program.display())]
    Start {
        /// The recorded path.
        program: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// The original of a stanza.
#[derive(Debug)]
pub(crate) struct Fallback<'a> {
    original: &'a Original,
    digest: &'a str,
}

impl<'a> Fallback<'a> {
    /// `None`: the arguments have no original, or turn it off. Makes no system call.
    pub(crate) fn of(arguments: &'a Arguments, source: &'a Source) -> Option<Self> {
        let original = arguments.original.as_ref().filter(|_| arguments.fallback)?;
        let Source::Provider { definition: Some(digest), .. } = source else { return None };
        Some(Self { original, digest })
    }

    /// The recorded path of the plugin; `None`: nothing is recorded, or `environment` is not that of `parent`, the client.
    pub(crate) fn program(
        &self,
        environment: &Environment,
        parent: fn() -> Option<Vec<u8>>,
    ) -> Option<PathBuf> {
        if !is_clients_choice(&self.original.env, environment, parent) {
            return None;
        }
        let variable = |name| environment.get(name).map(Path::new);
        let file = originals(variable("XDG_STATE_HOME"), variable("HOME"))?;
        original_of(&read(&file)?, self.digest).map(Path::to_owned)
    }

    /// Becomes the plugin at `program`. `info` is what `KUBERNETES_EXEC_INFO` says of the version, and of standard input.
    /// Returns only if it cannot.
    pub(crate) fn run(&self, program: PathBuf, info: Option<(ApiVersion, bool)>) -> FallbackError {
        if self.original.needs_terminal && !io::stdin().is_terminal() {
            return FallbackError::NoTerminal;
        }
        #[expect(clippy::disallowed_methods, reason = "the process becomes the plugin")]
        let mut command = Command::new(&program);
        let mut words = self.original.command.iter();
        command.arg0(words.next().map_or(OsStr::new(""), |word| word)).args(words);
        if let Some((version, interactive)) = info.filter(|_| !self.original.cluster_info) {
            command.env("KUBERNETES_EXEC_INFO", ExecInfo::without_cluster(version, interactive));
        }
        let source = command.exec();
        FallbackError::Start { program, source }
    }

    /// The command as the stanza has it.
    pub(crate) fn command(&self) -> &OsStr {
        self.original.command.first().map_or(OsStr::new(""), |word| word)
    }
}

/// Whether `environment` is that of the client, `parent`, but for the variables `named` of a stanza, which choose nothing here.
pub(crate) fn is_clients_choice(
    named: &[OsString],
    environment: &Environment,
    parent: fn() -> Option<Vec<u8>>,
) -> bool {
    !named.iter().any(|name| decides_what_runs(name))
        && parent().is_some_and(|parent| is_of_the_client(environment, &parent, named))
}

/// Whether a stanza that sets this variable could choose what runs, or which broker is asked.
fn decides_what_runs(name: &OsStr) -> bool {
    let name = name.as_bytes();
    let begins = |prefix: &&[u8]| name.starts_with(prefix);
    [&b"PATH"[..], b"HOME", b"SUDO_UID"].contains(&name)
        || [&b"LD_"[..], b"XDG_", b"CREDBROKER_"].iter().any(begins)
}

/// Whether the client had each variable of this process, but those that the stanza names and that the start sets.
fn is_of_the_client(own: &Environment, parent: &[u8], named: &[OsString]) -> bool {
    own.iter().all(|(name, value)| {
        let own = [name.as_bytes(), b"=", value.as_bytes()].concat();
        OF_THE_START.iter().any(|of_the_start| name == *of_the_start)
            || named.iter().any(|named| named == name)
            || parent.split(|byte| *byte == 0).any(|of_parent| of_parent == own)
    })
}

/// The file, if no other user can change it.
fn read(path: &Path) -> Option<Vec<u8>> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    let found = file.metadata().ok().filter(|found| found.is_file() && found.len() <= MOST)?;
    if !unsafe_file(path, &found).ok()?.is_empty() {
        return None;
    }
    let mut text = Vec::new();
    file.take(MOST).read_to_end(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(pairs: &[(&str, &str)]) -> Environment {
        pairs.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))).collect()
    }

    #[test]
    fn only_what_the_stanza_names_may_differ_from_the_client() {
        let parent = b"PATH=/bin\0HOME=/home/me\0AWS_PROFILE=dev\0PWD=/a\0EMPTY=\0";
        let named = [OsString::from("AWS_PROFILE"), OsString::from("NEW")];
        let is_same = |pairs: &[_]| is_of_the_client(&environment(pairs), parent, &named);
        let client = [("PATH", "/bin"), ("HOME", "/home/me"), ("EMPTY", "")];
        assert!(is_same(&client) && is_same(&[]));
        let more = |pair| is_same(&[&client[..], &[pair]].concat());
        for pair in
            [("AWS_PROFILE", "prod"), ("NEW", "1"), ("KUBERNETES_EXEC_INFO", "{}"), ("PWD", "/b"), ("_", "x")]
        {
            assert!(more(pair), "{pair:?}");
        }
        for pair in
            [("PATH", "/evil"), ("HOME", "/evil"), ("LD_PRELOAD", "x"), ("EMPTY", "x"), ("HOM", "E=/home/me")]
        {
            assert!(!more(pair), "{pair:?}");
        }
    }

    #[test]
    fn a_stanza_that_could_choose_what_runs_has_no_fallback() {
        for name in [
            "PATH",
            "HOME",
            "LD_PRELOAD",
            "LD_LIBRARY_PATH",
            "XDG_STATE_HOME",
            "CREDBROKER_SOCKET",
            "SUDO_UID",
        ] {
            assert!(decides_what_runs(OsStr::new(name)), "{name}");
        }
        for name in ["AWS_PROFILE", "PATHS", "HOMEPAGE", "CLOUDSDK_CONFIG"] {
            assert!(!decides_what_runs(OsStr::new(name)), "{name}");
        }
    }
}
