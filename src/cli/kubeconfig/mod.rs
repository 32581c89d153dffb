//! `credbroker kubeconfig`.

mod broker_config;
mod fleet;
mod in_place;
mod proxy;
mod shared;
mod wrap;

use clap::Subcommand;

use super::console::Console;

pub(super) use self::{
    broker_config::BrokerConfig,
    in_place::{InjectArgs, RestoreArgs, inject, restore, with_plugins},
    proxy::{OneArgs, alone, goes_through},
    shared::recorded_plugins,
};

/// Write kubeconfigs whose users request credentials from the broker
#[derive(Debug, Subcommand)]
pub(super) enum KubeconfigCommand {
    Inject(InjectArgs),
    Restore(RestoreArgs),
    Wrap(wrap::WrapArgs),
    Fleet(fleet::FleetArgs),
    Proxy(proxy::ProxyArgs),
}

pub(super) fn run(command: &KubeconfigCommand, console: &mut Console<'_>) -> anyhow::Result<u8> {
    match command {
        KubeconfigCommand::Inject(args) => inject(args, console),
        KubeconfigCommand::Restore(args) => restore(args, console),
        KubeconfigCommand::Wrap(args) => wrap::run(args, console),
        KubeconfigCommand::Fleet(args) => fleet::run(args, console),
        KubeconfigCommand::Proxy(args) => proxy::run(args, console),
    }
}
