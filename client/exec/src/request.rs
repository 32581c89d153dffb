//! The question, from what the caller's environment says.

use std::ffi::{OsStr, OsString};

use credbroker_client::{
    Cluster, CredentialRef, Socket, SocketError, SocketSources, blocking::CredentialRequest,
};
use credbroker_proto::v1::{ClusterProfileRef, ProviderRef, credential_ref::Source};

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
) -> Result<CredentialRequest, ForwardError> {
    let exec_info = environment.get(OsStr::new("KUBERNETES_EXEC_INFO"));
    let without_exec_info = exec_info.is_none_or(|info| info.is_empty());
    let mut reference = reference(source);
    if let Some(cluster) = cluster {
        reference = reference.cluster(cluster);
    }
    for (name, value) in forwarded(environment)? {
        reference = reference.env(name, value);
    }
    let request = CredentialRequest::new(reference).at_terminal(at_terminal);
    Ok(request.exec_plugin_caller(caller, without_exec_info))
}

fn reference(source: Source) -> CredentialRef {
    match source {
        Source::Provider(ProviderRef { name, definition: None }) => CredentialRef::provider(name),
        Source::Provider(ProviderRef { name, definition: Some(definition) }) => {
            CredentialRef::provider_definition(name, definition)
        }
        Source::ClusterProfile(ClusterProfileRef { namespace, name }) => {
            CredentialRef::cluster_profile(namespace, name)
        }
    }
}

/// Where to ask: `flag`, else `CREDBROKER_SOCKET`, else where brokers are. `server_uid`, else `CREDBROKER_SERVER_UID`, is
/// the only user whose process is trusted there.
///
/// # Errors
///
/// A flag or a variable is not valid.
pub fn socket(
    flag: Option<&OsStr>,
    server_uid: Option<&OsStr>,
    environment: &Environment,
    is_root: fn() -> bool,
) -> Result<Socket, SocketError> {
    let variable = |name: &str| environment.get(OsStr::new(name)).map(OsString::as_os_str);
    let named = variable("CREDBROKER_SOCKET").filter(|value| !value.is_empty());
    // A system call that is seldom needed.
    let is_root = flag.is_none() && named.is_none() && is_root();
    let runtime_directory = variable("XDG_RUNTIME_DIR");
    let sources = SocketSources::new().flag(flag).variable(named);
    let sources = sources.server_uid_flag(server_uid).server_uid_variable(variable("CREDBROKER_SERVER_UID"));
    Socket::locate(&sources.runtime_directory(runtime_directory).is_root(is_root))
}
