//! `credbroker kubeconfig inject`.

use std::{
    io::Write,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;

use super::{
    broker_config::BrokerConfig,
    exchange::{plans, prepare, swap},
    known::{Known, Wanted, wait},
    moved::Moved,
    record::Record,
    shim::{BareArg, Shim},
};
use crate::cli::broker::{EX_CONFIG, SocketArg, fail, timeout};
use credbroker_config as config;
use credbroker_config::kubeconfig::Kubeconfig;
use credbroker_plugin::Environment;

/// Change your kubeconfig in place: its exec users request credentials from the broker
///
/// Without a context, all exec users of KUBECONFIG or ~/.kube/config are changed. Only their `exec`
/// stanzas are replaced; everything else in the files stays as it is, comments too. First the command
/// writes the stanzas to a file below ~/.config/credbroker/, adds that file to the broker's
/// configuration, and waits until the running broker has read it, so that no kubectl command fails
/// meanwhile. If it is interrupted, run it again. `credbroker kubeconfig restore` undoes the change:
///
///   credbroker kubeconfig inject
///   credbroker kubeconfig inject prod
///   credbroker kubeconfig restore
///
/// Commands such as `aws eks update-kubeconfig` write their own stanza again; run this command after them.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct InjectArgs {
    /// Change only the users of these contexts
    contexts: Vec<String>,
    /// Change this file only [default: all files of $KUBECONFIG, else ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Configuration of the broker [default: the file that `credbroker serve` uses]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    bare: BareArg,
    #[command(flatten)]
    socket: SocketArg,
    /// Longest time to wait until the broker has the definitions, such as 500ms, 10s, 2m, or a number of seconds
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = timeout)]
    timeout: Duration,
}

pub(super) fn run(
    args: &InjectArgs,
    environment: &Environment,
    shim: &Path,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> anyhow::Result<u8> {
    let (paths, mode) = Kubeconfig::chosen(args.kubeconfig.as_deref(), environment);
    let kubeconfig = match config::read_kubeconfig(&paths, mode) {
        Ok(kubeconfig) => kubeconfig,
        Err(error) => {
            writeln!(err, "{error}")?;
            return Ok(EX_CONFIG);
        }
    };
    if let Some(copy) = kubeconfig.files().iter().find(|file| Record::read(&file.root).is_some()) {
        anyhow::bail!(
            "{} is a copy that `credbroker kubeconfig wrap` wrote; set KUBECONFIG to your own kubeconfig, or name it with --kubeconfig",
            copy.path.display()
        );
    }
    let plans = plans(&kubeconfig, &args.contexts, environment, err)?;
    if plans.is_empty() {
        writeln!(out, "Nothing to change: no user runs an exec plugin that the broker can serve.")?;
        return Ok(0);
    }
    let shim = Shim::find(environment, shim, &args.socket, args.bare)?;
    let config = BrokerConfig::find(args.config.as_deref(), environment)?;
    let own = own_directory(environment)?;
    let mut wanted = Wanted::default();
    // A new configuration replaces the default of the broker, which is all of these files.
    let mut named: Vec<_> = if config.exists {
        plans.keys().cloned().collect()
    } else {
        kubeconfig.files().iter().map(|file| file.path.clone()).collect()
    };
    for (path, plan) in &plans {
        let moved = Moved::path(&own, &plan.identity);
        prepare(path, plan, &moved, &shim)?;
        wanted.definitions.extend(plan.users.iter().map(|(_, definition)| definition.digest().to_owned()));
        wanted.files.insert(moved.clone());
        named.push(moved);
    }
    if config.add(&named, environment, |_| Ok(()))? {
        writeln!(out, "{}: names the kubeconfigs and the original definitions now", config.path.display())?;
    }
    match wait(&wanted, &args.socket, args.timeout, environment)? {
        Ok(Known::All) => {}
        Ok(Known::Missing(why)) => anyhow::bail!(
            "your kubeconfig was not changed, because the broker did not get the definitions within {} s: {why}",
            args.timeout.as_secs_f32()
        ),
        Err(failure) => {
            let code = fail(&failure.into(), err);
            writeln!(
                err,
                "credbroker: your kubeconfig was not changed; run this command again when the broker runs"
            )?;
            return Ok(code);
        }
    }
    for (path, plan) in &plans {
        swap(path, plan, &Moved::path(&own, &plan.identity), out)?;
    }
    writeln!(out, "Undo it with `credbroker kubeconfig restore`.")?;
    Ok(0)
}

/// Our directory in the home of the user.
pub(in crate::cli) fn own_directory(environment: &Environment) -> anyhow::Result<PathBuf> {
    let dir = environment.base_directory("XDG_CONFIG_HOME", ".config");
    let dir = dir.context("there is no place for the files of credbroker: HOME is not set")?;
    Ok(dir.join("credbroker"))
}
