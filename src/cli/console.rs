//! What a command has of its process, and how it prints: for people, for programs, and why it has failed.

use std::{
    io::{self, Write},
    path::Path,
};

use super::context::Unnamed;
use credbroker_credential::text::escape_json;
use credbroker_exec::Failure;
use credbroker_plugin::Environment;
use serde_json::Value;

/// Exit code of a bad configuration (`EX_CONFIG`).
pub(super) const EX_CONFIG: u8 = 78;

pub(super) struct Console<'a> {
    pub(super) environment: &'a Environment,
    /// The executable to use if `credbroker-exec` is not on `PATH`: a `credbroker-exec`, or a `credbroker`, which runs as
    /// the shim with its `shim` subcommand.
    pub(super) shim: &'a Path,
    pub(super) out: &'a mut dyn Write,
    pub(super) err: &'a mut dyn Write,
}

impl Console<'_> {
    /// Prints `text`, or for programs the document, which has no character that a terminal obeys or hides.
    pub(super) fn print(
        &mut self,
        format: OutputFormat,
        text: impl FnOnce() -> String,
        document: impl FnOnce() -> Value,
    ) -> io::Result<()> {
        match format {
            OutputFormat::Table => self.out.write_all(text().as_bytes())?,
            OutputFormat::Json => writeln!(self.out, "{}", escape_json(&format!("{:#}", document())))?,
        }
        self.out.flush()
    }
}

/// The output of a command that lists something.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub(super) enum OutputFormat {
    /// A table for people
    Table,
    /// JSON for programs
    Json,
}

/// Prints why a command has failed and what to do; returns the exit code. The failure of a request has the line and the
/// exit code of `credbroker-exec`.
pub(super) fn fail(error: &anyhow::Error, err: &mut dyn Write) -> u8 {
    let (line, code) = match error.downcast_ref::<Failure>() {
        Some(failure) => (failure.line(None), failure.exit_code()),
        None => (format!("{error:#}"), if error.is::<Unnamed>() { 2 } else { 1 }),
    };
    // If it cannot be written, there is no other place for the error.
    let _ignored = writeln!(err, "credbroker: {line}");
    code
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// One without a shim.
    pub(in crate::cli) fn console<'a>(
        environment: &'a Environment,
        out: &'a mut dyn Write,
        err: &'a mut dyn Write,
    ) -> Console<'a> {
        Console { environment, shim: Path::new("/absent"), out, err }
    }
}
