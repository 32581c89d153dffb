//! The command line.

use std::{
    ffi::{OsStr, OsString},
    time::Duration,
};

use credbroker_client::ClusterProfileRef;

use crate::{ApiVersion, Source, duration};

/// What `--help` prints.
pub(crate) const HELP: &str = "\
An exec credential plugin for kubectl, helm and every other Kubernetes client: requests a credential from credbroker
and prints it as an ExecCredential. `credbroker kubeconfig wrap` writes kubeconfigs that use it:

  users:
  - name: gke
    user:
      exec:
        apiVersion: client.authentication.k8s.io/v1
        command: credbroker-exec
        args: [--provider, gke]
        interactiveMode: Never
        provideClusterInfo: true

Usage: credbroker-exec --provider NAME | --cluster-profile NAMESPACE/NAME [options]

  --provider NAME                   a provider of the broker's configuration or kubeconfig [env: CREDBROKER_PROVIDER]
  --definition DIGEST               identifies the kubeconfig that defines the provider, as `credbroker kubeconfig wrap`
                                    writes it; with a broker that did not read that file, the request fails
  --cluster-profile NAMESPACE/NAME  a ClusterProfile that the broker reads
  --server URL                      the cluster's server according to the kubeconfig, for clients that do not set
                                    KUBERNETES_EXEC_INFO; if the cluster has moved, the request fails
  --socket PATH                     the broker's socket, a path or unix:///absolute/path [env: CREDBROKER_SOCKET]
                                    [default: $XDG_RUNTIME_DIR/credbroker/credbroker.sock if it exists,
                                    else /run/credbroker/credbroker.sock]
  --server-uid UID                  the only user whose process is trusted on that socket [env: CREDBROKER_SERVER_UID]
                                    [default: this user, root, or the owner of the socket's directory]
  --timeout TIME                    longest time to wait, such as 500ms, 10s, or a number of seconds [default: 45s;
                                    at a terminal, as long as the plugin may run]
  --api-version v1|v1beta1          version to print for clients that do not set KUBERNETES_EXEC_INFO [default: v1]
  --help, --version

The shim sends the variables with which common plugins select an identity (AWS_*, AZURE_*, GOOGLE_*, ...) to the broker,
and those that CREDBROKER_CALLER_ENV matches (comma-separated patterns, * matches any text). The broker uses those that
the provider's callerEnv names. Their values must be UTF-8.

Exit codes: 0 success; 1 the broker has no credential; 2 wrong usage; 69 no broker; 75 timeout; 77 access denied, or the
socket cannot be trusted; 78 a variable is not valid. On failure, one line on stderr gives cause and remedy.
";

/// A checked command line.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Command {
    Ask(Arguments),
    Help,
    Version,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Arguments {
    pub(crate) source: Source,
    pub(crate) server: Option<String>,
    pub(crate) socket: Option<OsString>,
    pub(crate) server_uid: Option<OsString>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) api_version: Option<ApiVersion>,
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
    /// A flag is given twice.
    #[error("{0} is given twice")]
    Repeated(&'static str),
    /// A server without a ClusterProfile.
    #[error("--server goes with --cluster-profile")]
    ServerAlone,
    /// A provider and a ClusterProfile.
    #[error("--provider and --cluster-profile exclude each other")]
    TwoSources,
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
    /// A flag without its value, at the end of the command line.
    #[error("{0} needs a value")]
    ValueMissing(&'static str),
}

const PROVIDER: &str = "--provider";
const DEFINITION: &str = "--definition";
const CLUSTER_PROFILE: &str = "--cluster-profile";
const SERVER: &str = "--server";
const SOCKET: &str = "--socket";
const SERVER_UID: &str = "--server-uid";
const TIMEOUT: &str = "--timeout";
const API_VERSION: &str = "--api-version";
const FLAGS: [&str; 8] =
    [PROVIDER, DEFINITION, CLUSTER_PROFILE, SERVER, SOCKET, SERVER_UID, TIMEOUT, API_VERSION];

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
            _ => {}
        }
        let Some(flag) = FLAGS.into_iter().find(|flag| *flag == name) else {
            return Err(UsageError::Unknown(text.into_owned()));
        };
        let value = attached.or_else(|| args.next()).ok_or(UsageError::ValueMissing(flag))?;
        given.take(flag, value)?;
    }
    given.checked(provider).map(Command::Ask)
}

#[derive(Default)]
struct Given {
    provider: Option<String>,
    definition: Option<String>,
    cluster_profile: Option<ClusterProfileRef>,
    server: Option<String>,
    socket: Option<OsString>,
    server_uid: Option<OsString>,
    timeout: Option<Duration>,
    api_version: Option<ApiVersion>,
}

impl Given {
    fn take(&mut self, flag: &'static str, value: OsString) -> Result<(), UsageError> {
        match flag {
            PROVIDER => once(flag, &mut self.provider, provider_name(flag, &value)?),
            DEFINITION => once(flag, &mut self.definition, definition(&value)?),
            CLUSTER_PROFILE => once(flag, &mut self.cluster_profile, cluster_profile(&value)?),
            SERVER => once(flag, &mut self.server, server(&value)?),
            SERVER_UID => once(flag, &mut self.server_uid, value),
            TIMEOUT => once(flag, &mut self.timeout, timeout(&value)?),
            API_VERSION => once(flag, &mut self.api_version, api_version(&value)?),
            _ => once(flag, &mut self.socket, value),
        }
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
        let Self { server, socket, server_uid, timeout, api_version, .. } = self;
        if server.is_some() && !matches!(source, Source::ClusterProfile(_)) {
            return Err(UsageError::ServerAlone);
        }
        Ok(Arguments { source, server, socket, server_uid, timeout, api_version })
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

fn provider_name(flag: &'static str, value: &OsStr) -> Result<String, UsageError> {
    let name = value.to_str().filter(|name| !name.is_empty() && !name.chars().any(char::is_control));
    name.map(str::to_owned).ok_or_else(|| refused(flag, value, "the name of a provider"))
}

fn definition(value: &OsStr) -> Result<String, UsageError> {
    let digest =
        value.to_str().filter(|text| !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric()));
    digest
        .map(str::to_owned)
        .ok_or_else(|| refused(DEFINITION, value, "a digest that `credbroker kubeconfig` wrote"))
}

fn cluster_profile(value: &OsStr) -> Result<ClusterProfileRef, UsageError> {
    let profile = value.to_str().and_then(|text| text.parse().ok());
    profile.ok_or_else(|| refused(CLUSTER_PROFILE, value, "NAMESPACE/NAME"))
}

fn server(value: &OsStr) -> Result<String, UsageError> {
    let url = value.to_str().filter(|url| url.starts_with("https://") || url.starts_with("http://"));
    url.map(str::to_owned).ok_or_else(|| refused(SERVER, value, "the URL of the cluster's API server"))
}

fn timeout(value: &OsStr) -> Result<Duration, UsageError> {
    let timeout = value.to_str().and_then(duration);
    timeout.ok_or_else(|| {
        refused(TIMEOUT, value, "a time such as 500ms, 10s or 2m, more than 0 and at most 24h")
    })
}

fn api_version(value: &OsStr) -> Result<ApiVersion, UsageError> {
    value
        .to_str()
        .and_then(ApiVersion::from_short_name)
        .ok_or_else(|| refused(API_VERSION, value, "v1 or v1beta1"))
}

fn refused(flag: &'static str, value: &OsStr, expected: &'static str) -> UsageError {
    UsageError::Value { flag, value: value.to_string_lossy().into_owned(), expected }
}

#[cfg(test)]
mod tests;
