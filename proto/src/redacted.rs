//! `Debug` of the messages that carry secrets: what is there and how long it is, never what it says.

use std::fmt;

use crate::{
    v1::{Cluster, Credential, CredentialRef, GetCredentialRequest, credential_ref::Source},
    v1alpha1::{
        AccountVariable, AttendCredentialRequest, DepositOutputRequest, Lease,
        attend_credential_response::Output,
    },
};

/// Replaces a value of this many bytes.
struct Redacted(usize);

impl fmt::Debug for Redacted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[redacted, {} bytes]", self.0)
    }
}

fn redacted(value: Option<impl AsRef<[u8]>>) -> Option<Redacted> {
    value.map(|value| Redacted(value.as_ref().len()))
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential")
            .field("generation", &self.generation)
            .field("token", &redacted(self.token.as_deref()))
            .field("client_certificate_data", &redacted(self.client_certificate_data.as_deref()))
            .field("client_key_data", &redacted(self.client_key_data.as_deref()))
            .field("expiration_time", &self.expiration_time)
            .field("certificate_fingerprint", &self.certificate_fingerprint)
            .field("lifetime", &self.lifetime)
            .finish()
    }
}

/// The session may hold anything, as the environment may.
impl fmt::Debug for GetCredentialRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GetCredentialRequest")
            .field("ref", &self.r#ref)
            .field("exec_plugin_caller", &self.exec_plugin_caller)
            .field("at_terminal", &self.at_terminal)
            .field("session", &self.session.keys())
            .field("min_lifetime", &self.min_lifetime)
            .finish()
    }
}

impl fmt::Debug for AttendCredentialRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AttendCredentialRequest")
            .field("ref", &self.r#ref)
            .field("session", &self.session.keys())
            .field("login", &self.login)
            .field("can_run_plugin", &self.can_run_plugin)
            .field("exec_plugin_caller", &self.exec_plugin_caller)
            .finish()
    }
}

/// The lines may hold a device code: their number is shown.
impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Output").field("stderr_lines", &self.stderr_lines.len()).finish()
    }
}

/// Arguments and variables may be secrets: their number is shown.
impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("id", &self.id)
            .field("command", &self.command.len())
            .field("environment", &self.environment.len())
            .finish()
    }
}

impl fmt::Debug for DepositOutputRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DepositOutputRequest")
            .field("lease_id", &self.lease_id)
            .field("stdout", &redacted(Some(&self.stdout)))
            .field("exit_code", &self.exit_code)
            .finish()
    }
}

/// The caller's environment may hold anything: its names are shown, its values are not.
impl fmt::Debug for CredentialRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CredentialRef")
            .field("source", &self.source)
            .field("cluster", &self.cluster)
            .field("env", &self.env.keys())
            .field("account_env", &self.account_env.keys())
            .finish()
    }
}

impl fmt::Debug for AccountVariable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccountVariable").field("name", &self.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Provider(provider) => provider.fmt(f),
            Self::ClusterProfile(profile) => profile.fmt(f),
            Self::Context(context) => context.fmt(f),
        }
    }
}

/// A proxy URL may hold a password, and `config` may hold anything.
impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("server", &self.server)
            .field("tls_server_name", &self.tls_server_name)
            .field("insecure_skip_tls_verify", &self.insecure_skip_tls_verify)
            .field("certificate_authority_data", &redacted(self.certificate_authority_data.as_deref()))
            .field("proxy_url", &redacted(self.proxy_url.as_deref()))
            .field("disable_compression", &self.disable_compression)
            .field("config", &redacted(self.config.as_deref()))
            .finish()
    }
}

#[cfg(test)]
mod tests;
