//! `credbroker kubeconfig`.

mod emit;
mod fleet;
mod merge;
mod output;
mod running;
mod shim;
mod wrap;

use std::{
    io::{self, Write},
    path::Path,
};

use clap::Subcommand;

use crate::plugin::Environment;

/// Write kubeconfigs whose users request credentials from the broker
#[derive(Debug, clap::Args)]
pub(super) struct KubeconfigArgs {
    #[command(subcommand)]
    command: KubeconfigCommand,
}

#[derive(Debug, Subcommand)]
enum KubeconfigCommand {
    Wrap(wrap::WrapArgs),
    Fleet(fleet::FleetArgs),
}

/// Runs a subcommand. `shim` is the executable to use if `credbroker-exec` is not on `PATH`: a `credbroker-exec`, or a
/// `credbroker`, which runs as the shim with its `shim` subcommand.
pub(super) fn run(
    args: &KubeconfigArgs,
    environment: &Environment,
    shim: &Path,
    out: &mut dyn Write,
) -> anyhow::Result<u8> {
    match &args.command {
        KubeconfigCommand::Wrap(args) => wrap::run(args, environment, shim, out),
        KubeconfigCommand::Fleet(args) => fleet::run(args, environment, shim, out, &mut io::stderr()),
    }
}
