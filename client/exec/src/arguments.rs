//! The command line.

mod help;
mod values;

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt as _,
    path::Path,
    time::Duration,
};

use credbroker_client::ClusterProfileRef;
use credbroker_stanza::Definition;
use credbroker_units::duration::DurationError;

use self::values::{
    api_version, cluster_profile, definition, fallback, provider_name, server, target, timeout,
};
use crate::{document::ApiVersion, edges::Environment, source::Source};

pub(crate) use self::help::HELP;

/// A checked command line.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Command {
    Ask(Box<Arguments>),
    /// A handle of the proxy.
    Handle(HandleArguments),
    Help,
    Version,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Arguments {
    pub(crate) source: Source,
    pub(crate) server: Option<String>,
    pub(crate) socket: Option<OsString>,
    pub(crate) broker_uid: Option<OsString>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) api_version: Option<ApiVersion>,
    pub(crate) original: Option<Original>,
    /// Whether the original may run where no broker answers.
    pub(crate) fallback: bool,
}

/// Where a handle is requested, and for which target.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HandleArguments {
    /// The path of the target at the proxy.
    pub(crate) target: String,
    pub(crate) socket: Option<OsString>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) api_version: Option<ApiVersion>,
}

/// The stanza that the shim was put in front of.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Original {
    /// The directory that a relative command is relative to.
    pub(crate) dir: Option<OsString>,
    /// Names of the variables that the stanza sets.
    pub(crate) env: Vec<OsString>,
    pub(crate) cluster_info: bool,
    /// Whether the stanza said `interactiveMode: Always`.
    pub(crate) needs_terminal: bool,
    /// The command and its arguments; not empty.
    pub(crate) command: Vec<OsString>,
}

impl Original {
    /// The digest that names what the stanza runs.
    fn digest(&self, api_version: ApiVersion, environment: &Environment) -> String {
        let mut command = self.command.iter().map(|text| text.as_bytes());
        let env = self.env.iter().map(|name| (name.as_bytes(), environment.of(name).map(OsStr::as_bytes)));
        let definition = Definition {
            api_version: api_version.short_name(),
            dir: self.dir.as_ref().map(Path::new),
            command: command.next().unwrap_or_default(),
            args: command.collect(),
            env: env.collect(),
            cluster_info: self.cluster_info,
        };
        definition.digest()
    }
}

impl Arguments {
    /// What is requested. A provider of a kubeconfig is named with the digest of what its stanza runs.
    pub(crate) fn requested(&self, environment: &Environment) -> Source {
        match (&self.source, &self.original) {
            (Source::Provider { name, .. }, Some(original)) => {
                let digest = original.digest(self.api_version.unwrap_or_default(), environment);
                Source::Provider { name: name.clone(), definition: Some(digest) }
            }
            (source, _) => source.clone(),
        }
    }
}

/// What the shim requests with these arguments, in this environment. `None`: they are not valid.
pub fn requested(args: impl Iterator<Item = OsString>, environment: &Environment) -> Option<Source> {
    match parse(args, environment.get("CREDBROKER_PROVIDER")) {
        Ok(Command::Ask(arguments)) => Some(arguments.requested(environment)),
        _ => None,
    }
}

/// An error in the command line. Its remedy is `--help`.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum UsageError {
    /// Neither a flag nor the variable names a provider or a ClusterProfile.
    #[error(
        "--provider NAME or --cluster-profile NAMESPACE/NAME is missing, and CREDBROKER_PROVIDER is not set"
    )]
    NoSource,
    /// A definition without a provider.
    #[error("--definition goes with --provider")]
    DefinitionAlone,
    /// No command follows the separator, or what is in front of it is not `--provider` alone.
    #[error("a command after `--` needs --provider, and excludes --definition")]
    Command,
    /// Flags that describe a command, without one.
    #[error("--dir, --env, --cluster-info, --was and --fallback go with a command after `--`")]
    CommandMissing,
    /// A flag is given twice.
    #[error("{0} is given twice")]
    Repeated(&'static str),
    /// A server without a ClusterProfile.
    #[error("--server goes with --cluster-profile")]
    ServerAlone,
    /// A provider and a ClusterProfile.
    #[error("--provider and --cluster-profile exclude each other")]
    TwoSources,
    /// A handle with what is for credentials.
    #[error("--proxy goes with --socket, --timeout and --api-version only")]
    Handle,
    /// Not a flag of this command.
    #[error("{0:?} is not an argument of this command")]
    Unknown(String),
    /// The value of a flag is not valid.
    #[error("{flag} {value:?}: expected {expected}")]
    Value {
        /// The flag.
        flag: &'static str,
        /// Its value.
        value: String,
        /// What the value must be.
        expected: &'static str,
    },
    /// A duration is not valid.
    #[error("{flag} {value:?}: expected a duration such as 500ms, 10s or 1h30m: {error}")]
    Duration {
        /// The flag.
        flag: &'static str,
        /// Its value.
        value: String,
        /// What is wrong with it.
        error: DurationError,
    },
    /// A flag without its value, at the end of the command line.
    #[error("{0} needs a value")]
    ValueMissing(&'static str),
}

const PROVIDER: &str = "--provider";
const DEFINITION: &str = "--definition";
const CLUSTER_PROFILE: &str = "--cluster-profile";
const SERVER: &str = "--server";
const SOCKET: &str = "--socket";
const BROKER_UID: &str = "--broker-uid";
const TIMEOUT: &str = "--timeout";
const API_VERSION: &str = "--api-version";
const DIR: &str = "--dir";
const ENV: &str = "--env";
const CLUSTER_INFO: &str = "--cluster-info";
const WAS: &str = "--was";
const FALLBACK: &str = "--fallback";
const PROXY: &str = "--proxy";
const FLAGS: [&str; 14] = [
    PROVIDER,
    DEFINITION,
    CLUSTER_PROFILE,
    SERVER,
    SOCKET,
    BROKER_UID,
    TIMEOUT,
    API_VERSION,
    DIR,
    ENV,
    CLUSTER_INFO,
    WAS,
    FALLBACK,
    PROXY,
];

/// `args` without the program's name; `provider` is the value of `CREDBROKER_PROVIDER`.
pub(crate) fn parse(
    mut args: impl Iterator<Item = OsString>,
    provider: Option<&OsStr>,
) -> Result<Command, UsageError> {
    let mut given = Given::default();
    while let Some(argument) = args.next() {
        let text = argument.to_string_lossy();
        let (name, attached) = match text.split_once('=') {
            Some((name, _)) => (name, Some(after_equals(&argument))),
            None => (text.as_ref(), None),
        };
        match (name, &attached) {
            ("--help" | "-h", None) => return Ok(Command::Help),
            ("--version" | "-V", None) => return Ok(Command::Version),
            ("--", None) => {
                given.original.command = args.by_ref().collect();
                if given.original.command.is_empty() {
                    return Err(UsageError::ValueMissing("--"));
                }
                given.is_of_credential = true;
                break;
            }
            (CLUSTER_INFO, None) => {
                given.original.cluster_info = true;
                given.is_of_credential = true;
                continue;
            }
            _ => {}
        }
        let Some(flag) = FLAGS.into_iter().find(|flag| *flag == name) else {
            return Err(UsageError::Unknown(text.into_owned()));
        };
        let value = attached.or_else(|| args.next()).ok_or(UsageError::ValueMissing(flag))?;
        given.is_of_credential |= ![PROXY, SOCKET, TIMEOUT, API_VERSION].contains(&flag);
        given.take(flag, value)?;
    }
    if let Some(target) = given.proxy.take() {
        return given.handle(target).map(Command::Handle);
    }
    given.checked(provider).map(|arguments| Command::Ask(Box::new(arguments)))
}

#[derive(Default)]
struct Given {
    proxy: Option<String>,
    provider: Option<String>,
    definition: Option<String>,
    cluster_profile: Option<ClusterProfileRef>,
    server: Option<String>,
    socket: Option<OsString>,
    broker_uid: Option<OsString>,
    timeout: Option<Duration>,
    api_version: Option<ApiVersion>,
    fallback: Option<bool>,
    original: Original,
    /// Whether something was given that does not go with a handle.
    is_of_credential: bool,
}

impl Given {
    fn take(&mut self, flag: &'static str, value: OsString) -> Result<(), UsageError> {
        match flag {
            PROVIDER => once(flag, &mut self.provider, provider_name(flag, &value)?),
            DEFINITION => once(flag, &mut self.definition, definition(&value)?),
            CLUSTER_PROFILE => once(flag, &mut self.cluster_profile, cluster_profile(&value)?),
            SERVER => once(flag, &mut self.server, server(&value)?),
            BROKER_UID => once(flag, &mut self.broker_uid, value),
            TIMEOUT => once(flag, &mut self.timeout, timeout(&value)?),
            API_VERSION => once(flag, &mut self.api_version, api_version(&value)?),
            DIR => once(flag, &mut self.original.dir, value),
            ENV => {
                self.original.env.push(value);
                Ok(())
            }
            // The others are for the command line, which undoes the stanza.
            WAS => {
                self.original.needs_terminal |= value == "interactiveMode=Always";
                Ok(())
            }
            FALLBACK => once(flag, &mut self.fallback, fallback(&value)?),
            PROXY => once(flag, &mut self.proxy, target(&value)?),
            _ => once(flag, &mut self.socket, value),
        }
    }

    fn handle(self, target: String) -> Result<HandleArguments, UsageError> {
        let Self { socket, timeout, api_version, is_of_credential, .. } = self;
        if is_of_credential {
            return Err(UsageError::Handle);
        }
        Ok(HandleArguments { target, socket, timeout, api_version })
    }

    fn checked(self, variable: Option<&OsStr>) -> Result<Arguments, UsageError> {
        if self.definition.is_some() && self.provider.is_none() {
            return Err(UsageError::DefinitionAlone);
        }
        let source = match (self.provider, self.cluster_profile) {
            (Some(_), Some(_)) => return Err(UsageError::TwoSources),
            (Some(name), None) => Source::Provider { name, definition: self.definition },
            (None, Some(profile)) => Source::ClusterProfile(profile),
            (None, None) => {
                let variable = variable.filter(|value| !value.is_empty()).ok_or(UsageError::NoSource)?;
                let name = provider_name("CREDBROKER_PROVIDER", variable)?;
                Source::Provider { name, definition: None }
            }
        };
        let Self { server, socket, broker_uid, timeout, api_version, fallback, original, .. } = self;
        if server.is_some() && !matches!(source, Source::ClusterProfile(_)) {
            return Err(UsageError::ServerAlone);
        }
        let has_command = !original.command.is_empty();
        if !has_command && original != Original::default() {
            return Err(UsageError::CommandMissing);
        }
        let original = has_command.then_some(original);
        if has_command && !matches!(source, Source::Provider { definition: None, .. }) {
            return Err(UsageError::Command);
        }
        let fallback = fallback.unwrap_or(true);
        Ok(Arguments { source, server, socket, broker_uid, timeout, api_version, original, fallback })
    }
}

fn once<T>(flag: &'static str, place: &mut Option<T>, value: T) -> Result<(), UsageError> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(UsageError::Repeated(flag)),
    }
}

fn after_equals(argument: &OsStr) -> OsString {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let value = argument.as_bytes().iter().skip_while(|byte| **byte != b'=').skip(1).copied();
    OsString::from_vec(value.collect())
}

#[cfg(test)]
mod tests;
