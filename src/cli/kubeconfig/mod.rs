//! `credbroker kubeconfig`.

mod broker_config;
mod exchange;
mod fleet;
mod inject;
mod keep;
mod known;
mod moved;
mod nodes;
mod output;
mod record;
mod restore;
mod shim;
mod swap;
mod wrap;

use std::{
    io::{self, Write},
    path::Path,
};

use clap::Subcommand;

pub(super) use broker_config::BrokerConfig;
pub(super) use inject::own_directory;
pub(super) use wrap::{is_place_for_copy, is_unchanged_copy, originals_with_plugins, wrap_to};

use credbroker_plugin::Environment;

/// Write kubeconfigs whose users request credentials from the broker
#[derive(Debug, clap::Args)]
pub(super) struct KubeconfigArgs {
    #[command(subcommand)]
    command: KubeconfigCommand,
}

#[derive(Debug, Subcommand)]
enum KubeconfigCommand {
    Wrap(wrap::WrapArgs),
    Inject(inject::InjectArgs),
    Restore(restore::RestoreArgs),
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
        KubeconfigCommand::Wrap(args) => wrap::run(args, environment, shim, out, &mut io::stderr()),
        KubeconfigCommand::Inject(args) => inject::run(args, environment, shim, out, &mut io::stderr()),
        KubeconfigCommand::Restore(args) => restore::run(args, environment, out, &mut io::stderr()),
        KubeconfigCommand::Fleet(args) => fleet::run(args, environment, shim, out, &mut io::stderr()),
    }
}
