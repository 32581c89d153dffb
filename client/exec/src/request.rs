//! The request, from the caller's environment.

use std::ffi::OsStr;

use credbroker_client::{
    Cluster, CredentialRef, Socket, SocketError, SocketSources, blocking::CredentialRequest,
};

use crate::{
    edges::Environment,
    forward::{ForwardError, session, with_variables},
    source::Source,
};

/// A request for the credential of `source`, with the variables of `environment` that select an identity: those of
/// common plugins, those that `CREDBROKER_CALLER_ENV` matches, and those whose names look like that of an account. `caller`
/// names the process that the credential is for; `None`: unknown. `at_terminal`: a user waits for the answer, and the
/// request has the variables of the session.
///
/// # Errors
///
/// Such a variable is not UTF-8.
pub fn request(
    source: Source,
    cluster: Option<Cluster>,
    environment: &Environment,
    caller: Option<String>,
    at_terminal: bool,
) -> Result<CredentialRequest, ForwardError> {
    let exec_info = environment.get("KUBERNETES_EXEC_INFO");
    let without_exec_info = exec_info.is_none_or(OsStr::is_empty);
    let mut reference = CredentialRef::from(source);
    if let Some(cluster) = cluster {
        reference = reference.cluster(cluster);
    }
    let reference = with_variables(reference, environment)?;
    let mut request = CredentialRequest::new(reference).at_terminal(at_terminal);
    if at_terminal {
        request = request.session(session(environment));
    }
    Ok(request.exec_plugin_caller(caller, without_exec_info))
}

/// Whether a socket or a broker is named, by a flag (`is_flagged`) or a variable.
pub(crate) fn is_named(is_flagged: bool, environment: &Environment) -> bool {
    let is_set = |name: &&str| environment.get(name).is_some_and(|value| !value.is_empty());
    is_flagged || ["CREDBROKER_SOCKET", "CREDBROKER_BROKER_UID"].iter().any(is_set)
}

/// The broker's socket: `flag`, else `CREDBROKER_SOCKET`, else the default paths. `broker_uid`, else
/// `CREDBROKER_BROKER_UID`, is the only user whose process is trusted there.
///
/// # Errors
///
/// A flag or a variable is not valid.
pub fn socket(
    flag: Option<&OsStr>,
    broker_uid: Option<&OsStr>,
    environment: &Environment,
    is_root: fn() -> bool,
) -> Result<Socket, SocketError> {
    let variable = |name: &str| environment.get(name);
    let named = variable("CREDBROKER_SOCKET").filter(|value| !value.is_empty());
    // `is_root` is a system call, which is seldom needed.
    let is_root = flag.is_none() && named.is_none() && is_root();
    let runtime_directory = variable("XDG_RUNTIME_DIR");
    let sources = SocketSources::new().flag(flag).variable(named);
    let sources = sources.broker_uid_flag(broker_uid).broker_uid_variable(variable("CREDBROKER_BROKER_UID"));
    Socket::locate(&sources.runtime_directory(runtime_directory).is_root(is_root))
}
