//! The question, from what the caller's environment says.

use std::ffi::{OsStr, OsString};

use credbroker_client::{Socket, SocketError, SocketSources};
use credbroker_proto::v1::{
    Cluster, CredentialRef, ExecPluginCaller, GetCredentialRequest, credential_ref::Source,
};

use crate::{
    edges::Environment,
    forward::{ForwardError, forwarded},
};

/// Asks for the credential of `source`, with what of `environment` chooses an identity: the list of common variables
/// and the globs of `CREDBROKER_CALLER_ENV`. `caller` names the process that it is for; empty: unknown. `at_terminal`: a
/// person waits for the answer.
///
/// # Errors
///
/// Such a variable is not UTF-8.
pub fn request(
    source: Source,
    cluster: Option<Cluster>,
    environment: &Environment,
    caller: String,
    at_terminal: bool,
) -> Result<GetCredentialRequest, ForwardError> {
    let exec_info = environment.get(OsStr::new("KUBERNETES_EXEC_INFO"));
    let without_exec_info = exec_info.is_none_or(|info| info.is_empty());
    let reference = CredentialRef { cluster, env: forwarded(environment)?, source: Some(source) };
    let exec_plugin_caller = Some(ExecPluginCaller { id: caller, without_exec_info });
    Ok(GetCredentialRequest { r#ref: Some(reference), exec_plugin_caller, at_terminal })
}

/// Where to ask: `flag`, else `CREDBROKER_SOCKET`, else where brokers are.
///
/// # Errors
///
/// The flag or the variable is not a valid socket address.
pub fn socket(
    flag: Option<&OsStr>,
    environment: &Environment,
    is_root: fn() -> bool,
) -> Result<Socket, SocketError> {
    let variable = |name: &str| environment.get(OsStr::new(name)).map(OsString::as_os_str);
    let named = variable("CREDBROKER_SOCKET").filter(|value| !value.is_empty());
    // A system call that is seldom needed.
    let is_root = flag.is_none() && named.is_none() && is_root();
    let runtime_directory = variable("XDG_RUNTIME_DIR");
    let sources = SocketSources::new().flag(flag).variable(named);
    Socket::locate(&sources.runtime_directory(runtime_directory).is_root(is_root))
}
