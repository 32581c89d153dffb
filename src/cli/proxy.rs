//! `credbroker proxy`.

use std::{path::PathBuf, sync::Arc};

use credbroker_client::Broker;
use credbroker_exec::Failure;

use super::{
    broker::SocketArg,
    serve::{LogArgs, failed, in_foreground, load, until_stopped},
};
use crate::app::{self, ConfigPlace, Edges, ProxyOptions};
use credbroker_plugin::Environment;

/// Run the proxy in the foreground: it forwards requests to clusters and adds the credentials
///
/// Clients of the proxy hold no credential. The proxy gets them from the broker, like any other client: with access rules, its
/// user needs the verbs watch, report and list. It reads the configuration of the broker, and follows its changes. A user may
/// use a cluster if an access rule gives the user the verb proxy. SIGTERM and Ctrl-C stop the proxy: watches end between two
/// events, and sessions of exec, attach and port-forward have ten seconds. The port accepts connections until they have ended.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  credbroker proxy
  credbroker proxy --config /etc/credbroker/config.yaml --socket /run/credbroker/credbroker.sock
  credbroker serve --proxy")]
pub(super) struct ProxyArgs {
    /// Configuration file of the broker [env: CREDBROKER_CONFIG] [default: the first that exists of
    /// ~/.config/credbroker/config.yaml and /etc/credbroker/config.yaml]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    socket: SocketArg,
    #[command(flatten)]
    log: LogArgs,
}

pub(super) fn run(args: &ProxyArgs, environment: &Environment) -> anyhow::Result<u8> {
    in_foreground(args.log, environment, |inherited, logs, runtime, signals| {
        let loaded = load(args.config.as_deref(), environment)?;
        let socket = args.socket.locate(environment);
        let socket =
            socket.map_err(|error| (format!("credbroker: {error}"), Failure::from(error).exit_code()))?;
        let options = ProxyOptions::new(loaded.config.proxy.clone(), environment, inherited);
        let place = ConfigPlace { flag: args.config.clone(), environment: Arc::new(environment.clone()) };
        let follow = Some((place, loaded.sources));
        let edges = Edges { log: Some(logs.clone()), follow, ..Edges::system(environment) };
        let served = async {
            app::start_traces(environment);
            let bound = app::build_proxy(loaded.config, options, Broker::at(socket), edges)?;
            Ok(until_stopped(bound, "proxy", signals).await)
        };
        runtime.block_on(served).map_err(|error| failed(&error))
    })
}
