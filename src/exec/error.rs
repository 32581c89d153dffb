//! Why a run gave no credential.

use std::{io, path::Path, sync::Arc, time::Duration};

use crate::credential::{DecodeError, ExecInfoError};

/// Why one plugin run gave no credential. Never holds stdout: it may be a token.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// Its arguments and environment together, or one of them, exceed what the kernel passes on.
    #[error(
        "plugin `{command}` cannot be started: its arguments and environment have {size} bytes, which is more than the kernel allows (128 KiB for each, about 2 MiB for all); pass less of them in `passEnv`, `callerEnv` or `env`"
    )]
    ArgumentsTooLong {
        /// The plugin's executable.
        command: Arc<str>,
        /// Bytes of all arguments and variables.
        size: usize,
    },
    /// It printed something that is not accepted.
    #[error("plugin `{command}` printed no acceptable ExecCredential")]
    Decode {
        /// The plugin's executable.
        command: Arc<str>,
        /// What is wrong with it.
        source: DecodeError,
    },
    /// It has no working directory: the broker could not make one.
    #[error(
        "plugin `{command}` has no working directory: none can be made in {}; is it there, writable, and its disk not full?",
        base.display()
    )]
    Directory {
        /// The plugin's executable.
        command: Arc<str>,
        /// Where working directories are made.
        base: Arc<Path>,
        /// What the kernel said.
        source: Arc<io::Error>,
    },
    /// It cannot be told about its cluster.
    #[error("plugin `{command}` cannot be told about its cluster")]
    ExecInfo {
        /// The plugin's executable.
        command: Arc<str>,
        /// Why.
        source: ExecInfoError,
    },
    /// It exited with another code than 0.
    #[error("plugin `{command}` failed with exit code {code}{}", tail(.stderr))]
    Exit {
        /// The plugin's executable.
        command: Arc<str>,
        /// Its exit code.
        code: i32,
        /// The end of its stderr, sanitised.
        stderr: Arc<str>,
    },
    /// It used a terminal that is not its own, and the kernel stopped it.
    #[error(
        "plugin `{command}` needs a person: it tried to use the terminal in which the broker runs, and was ended; log in with it in another terminal, then ask again{}",
        tail(.stderr)
    )]
    NeedsTerminal {
        /// The plugin's executable.
        command: Arc<str>,
        /// The end of its stderr, sanitised.
        stderr: Arc<str>,
    },
    /// Its executable is not there.
    #[error("plugin `{command}` is not installed{place}{}", hint(.install_hint.as_deref()))]
    NotFound {
        /// As configured.
        command: Arc<str>,
        /// Where it was looked up, or empty.
        place: &'static str,
        /// `installHint` of the stanza, sanitised.
        install_hint: Option<String>,
    },
    /// It printed more than the limit and was ended.
    #[error("plugin `{command}` printed more than {limit} bytes on stdout and was ended")]
    OutputTooLarge {
        /// The plugin's executable.
        command: Arc<str>,
        /// Bytes allowed.
        limit: usize,
    },
    /// It ended without a result, by a fault of the broker.
    #[error(
        "the run of plugin `{command}` ended without a result; this is a fault of the broker, please report it"
    )]
    Panicked {
        /// The plugin's executable.
        command: Arc<str>,
    },
    /// It asked the broker for the credential that it was to provide.
    #[error(
        "plugin `{command}` leads back to credbroker-exec: it reads a kubeconfig whose user is the shim; give the provider a kubeconfig of its own (`env: [{{name: KUBECONFIG, value: …}}]`)"
    )]
    Recursion {
        /// The plugin's executable.
        command: Arc<str>,
    },
    /// It was ended by a signal that the broker did not send.
    #[error("plugin `{command}` was ended by signal {signal}{}", tail(.stderr))]
    Signal {
        /// The plugin's executable.
        command: Arc<str>,
        /// The signal's number.
        signal: i32,
        /// The end of its stderr, sanitised.
        stderr: Arc<str>,
    },
    /// It could not be started.
    #[error("plugin `{command}` cannot be started; is it executable, and its interpreter installed?")]
    Spawn {
        /// The plugin's executable.
        command: Arc<str>,
        /// What the kernel said.
        source: Arc<io::Error>,
    },
    /// It was not started: its issuer asked for fewer runs.
    #[error(
        "plugin `{command}` was not started: issuer `{issuer}` asked for fewer runs {}; `credbroker refresh {provider}` runs it now",
        pause(*.retry_after)
    )]
    Throttled {
        /// The plugin's executable.
        command: Arc<str>,
        /// The provider whose run it is.
        provider: Arc<str>,
        /// The issuer that is paused.
        issuer: Arc<str>,
        /// How long the pause still lasts.
        retry_after: Duration,
    },
    /// It ran too long; it and everything in its process group was ended.
    #[error("plugin `{command}` ran longer than {limit:?} (the provider's `timeout`) and was ended{}", tail(.stderr))]
    Timeout {
        /// The plugin's executable.
        command: Arc<str>,
        /// The provider's limit.
        limit: Duration,
        /// The end of its stderr, sanitised.
        stderr: Arc<str>,
    },
    /// The file system that holds its executable does not answer.
    #[error(
        "plugin `{command}` was not started: the file system that holds it has not answered in time; does a network mount hang?"
    )]
    Unanswered {
        /// The plugin's executable.
        command: Arc<str>,
    },
    /// Its executable cannot be looked up.
    #[error("plugin `{command}` cannot be looked up")]
    Unreadable {
        /// The plugin's executable.
        command: Arc<str>,
        /// What the kernel said.
        source: Arc<io::Error>,
    },
}

fn tail(stderr: &str) -> String {
    if stderr.is_empty() { String::new() } else { format!("; its stderr ends: {stderr}") }
}

/// How long a pause still lasts.
pub(super) fn pause(left: Duration) -> String {
    match left {
        Duration::ZERO => "and the pause is over".to_owned(),
        left => format!("and is paused for another {}", seconds(left)),
    }
}

/// Whole seconds, never fewer than there are.
pub(super) fn seconds(duration: Duration) -> String {
    format!("{} s", duration.as_millis().div_ceil(1000))
}

fn hint(install_hint: Option<&str>) -> String {
    install_hint.map(|hint| format!(". {hint}")).unwrap_or_default()
}
