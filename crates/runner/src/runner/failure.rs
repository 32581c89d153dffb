//! Why a plugin did not start.

use std::{io, sync::Arc};

use crate::{RunError, plugin_file::find};
use credbroker_credential::text::sanitize;
use credbroker_plugin::{FileError, PluginSpec};

/// Why the kernel did not start it.
pub(super) async fn refused(spec: &PluginSpec, size: usize, cause: io::Error) -> RunError {
    let command = command_of(spec);
    match cause.kind() {
        io::ErrorKind::ArgumentListTooLong => RunError::ArgumentsTooLong { command, size },
        // A missing interpreter of a script gives the same error.
        io::ErrorKind::NotFound => match find(&spec.file).await {
            Err(error @ FileError::NotFound) => no_file(spec, error),
            _ => RunError::Spawn { command, cause: cause.into() },
        },
        io::ErrorKind::TimedOut => RunError::Unanswered { command },
        _ => RunError::Spawn { command, cause: cause.into() },
    }
}

pub(super) fn no_file(spec: &PluginSpec, error: FileError) -> RunError {
    let command = command_of(spec);
    match error {
        FileError::NotFound => RunError::NotFound {
            command: sanitize(&spec.provider.command.to_string()).into(),
            place: spec.provider.command.place(),
            install_hint: spec.provider.install_hint.as_deref().map(sanitize),
        },
        FileError::Unanswered => RunError::Unanswered { command },
        FileError::Unreadable(source) => RunError::Unreadable { command, source },
    }
}

pub(super) fn command_of(spec: &PluginSpec) -> Arc<str> {
    sanitize(&spec.command()).into()
}
