//! `credbroker kubeconfig`.

mod broker_config;
mod fleet;
mod in_place;
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

pub(super) use broker_config::BrokerConfig;
pub(super) use in_place::{inject_all, restore_all, with_plugins};

use credbroker_plugin::Environment;

/// Write kubeconfigs whose users request credentials from the broker
#[derive(Debug, clap::Args)]
pub(super) struct KubeconfigArgs {
    #[command(subcommand)]
    command: KubeconfigCommand,
}

#[derive(Debug, Subcommand)]
enum KubeconfigCommand {
    Inject(in_place::InjectArgs),
    Restore(in_place::RestoreArgs),
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
    let err = &mut io::stderr();
    match &args.command {
        KubeconfigCommand::Inject(args) => in_place::inject(args, environment, shim, out, err),
        KubeconfigCommand::Restore(args) => in_place::restore(args, environment, out, err),
        KubeconfigCommand::Wrap(args) => wrap::run(args, environment, shim, out, err),
        KubeconfigCommand::Fleet(args) => fleet::run(args, environment, shim, out, err),
    }
}
