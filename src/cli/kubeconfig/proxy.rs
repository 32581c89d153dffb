//! `credbroker kubeconfig proxy`: a kubeconfig whose contexts all go through the proxy.

mod document;
mod place;
mod routes;

use std::path::PathBuf;

use credbroker_client::{Client, ClusterList, Reason};
use credbroker_config::kubeconfig::yaml;
use credbroker_credential::text::{one_line, shown};

pub(in crate::cli) use self::document::goes_through;

use self::{
    document::{is_ours, kubeconfig},
    place::Place,
    routes::{Own, Routes},
};
use super::{
    fleet::versions,
    shared,
    wrap::{keep_current_context, set_current_context},
};
use crate::cli::{
    broker::BrokerArgs,
    clusters::{sorted, warn},
    console::{Console, EX_CONFIG},
};

/// Write a kubeconfig whose contexts all go through the proxy, so that no client holds a credential
///
/// It has the contexts of your kubeconfigs that the broker knows, each with its own name and namespace,
/// and a context NAMESPACE/NAME for every cluster of the fleet. Their server is the proxy, which adds
/// the credential on the way, and their user gets a handle from it, which is of no use elsewhere:
///
///   credbroker proxy &
///   credbroker kubeconfig proxy -o ~/.kube/proxy
///   export KUBECONFIG=~/.kube/proxy
///   kubectl get pods
///
/// The kubeconfig contains no secrets. The command reads all files of KUBECONFIG, or ~/.kube/config,
/// and those that the broker's configuration names. Run it again after they have changed: a context
/// that means something else has another address. What the command leaves out, it names on stderr.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct ProxyArgs {
    /// Only contexts of this file [default: all files of $KUBECONFIG, else ~/.kube/config, and those that the broker's
    /// configuration names]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Write to this file, with mode 0600; it must not be one of the files read. - is standard output [default: -]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Overwrite a file that this command did not write, or that has other users too
    #[arg(long)]
    force: bool,
    /// Version of the exec protocol (client.authentication.k8s.io) that the clients support
    #[arg(long, value_parser = versions(), default_value = "v1")]
    api_version: String,
    /// Write the name of the shim instead of its path, for clients that have credbroker-exec in their PATH
    #[arg(long)]
    bare: bool,
    /// Configuration of the broker and the proxy [default: the file that `credbroker serve` uses]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    broker: BrokerArgs,
}

pub(super) fn run(args: &ProxyArgs, console: &mut Console<'_>) -> anyhow::Result<u8> {
    let environment = console.environment;
    let place = Place::find(args.config.as_deref(), environment)?;
    let shim = shared::shim(console, &args.broker.socket, args.bare)?;
    let own = Own::read(args.kubeconfig.as_deref(), args.config.as_deref(), environment);
    let own = match own {
        Ok(own) => own,
        Err(problems) => return Ok(writeln!(console.err, "{problems}").map(|()| EX_CONFIG)?),
    };
    let routes = ask(&args.broker, &own, console)?;
    for (name, why) in &routes.skipped {
        writeln!(console.err, "credbroker: skipped {}: {why}", one_line(name))?;
    }
    if let Some(advice) = routes.advice() {
        writeln!(console.err, "credbroker: {advice}")?;
    }
    let Some(first) = routes.found.first().map(|route| one_line(&route.name)) else {
        writeln!(console.err, "credbroker: {}", own.nothing())?;
        return Ok(1);
    };
    let mut document = kubeconfig(&routes.found, &place, &shim, &args.api_version);
    if let Some(current) = own.kubeconfig.current_context() {
        set_current_context(&mut document, current);
    }
    let count = match routes.found.len() {
        1 => format!("1 context goes through the proxy at {}", place.server),
        count => format!("{count} contexts go through the proxy at {}", place.server),
    };
    let advice = place.advice();
    let Some(path) = shared::output(args.output.as_deref()) else {
        console.out.write_all(yaml(&document)?.as_bytes())?;
        console.out.flush()?;
        for line in [count].into_iter().chain(advice) {
            writeln!(console.err, "credbroker: {line}")?;
        }
        return Ok(0);
    };
    let may_replace = |found: Option<&_>| args.force || found.is_some_and(is_ours);
    let (output, earlier) = shared::open(path, &own.inputs, "proxy", may_replace)?;
    if let Some(earlier) = earlier {
        keep_current_context(&mut document, &earlier);
    }
    output.write_private(&yaml(&document)?)?;
    output.say_if_link("written", console.out)?;
    let path = path.display();
    writeln!(console.out, "{path}: {count}")?;
    writeln!(console.out, "Use it with `kubectl --kubeconfig {path} --context {first} …`.")?;
    advice.map_or(Ok(()), |advice| writeln!(console.out, "{advice}"))?;
    Ok(0)
}

/// The arguments of a command that leads to one context.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct OneArgs {
    /// Name of a context, or NAMESPACE/NAME of a cluster
    pub(in crate::cli) context: String,
    /// Find the context in this file [default: all files of $KUBECONFIG, else ~/.kube/config, and those that the broker's
    /// configuration names]
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli) kubeconfig: Option<PathBuf>,
    /// Configuration of the broker and the proxy [default: the file that `credbroker serve` uses]
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli) config: Option<PathBuf>,
    #[command(flatten)]
    pub(in crate::cli) broker: BrokerArgs,
}

/// The text of a kubeconfig with nothing but this context, which is current; and the URL of the proxy.
pub(in crate::cli) fn alone(args: &OneArgs, console: &mut Console<'_>) -> anyhow::Result<(String, String)> {
    let OneArgs { context, kubeconfig: file, config, broker } = args;
    let place = Place::find(config.as_deref(), console.environment)?;
    if let Some(advice) = place.advice() {
        anyhow::bail!("{advice}");
    }
    let shim = shared::shim(console, &broker.socket, false)?;
    let own = Own::read(file.as_deref(), config.as_deref(), console.environment)?;
    let routes = ask(broker, &own, console)?;
    let shown = shown(context);
    let Some(route) = routes.found.iter().find(|route| route.name == *context) else {
        let skipped = routes.skipped.iter().find(|(name, _)| name == context);
        let absent =
            || own.only_ours().unwrap_or_else(|| "neither your kubeconfigs nor the fleet have it".into());
        let why = skipped.map_or_else(absent, |(_, why)| why.clone());
        anyhow::bail!("context `{shown}` does not go through the proxy: {why}");
    };
    let mut document = kubeconfig(std::slice::from_ref(route), &place, &shim, "v1");
    set_current_context(&mut document, context);
    Ok((yaml(&document)?, place.server))
}

/// What the proxy can reach, as the broker says.
fn ask(broker: &BrokerArgs, own: &Own, console: &mut Console<'_>) -> anyhow::Result<Routes> {
    let environment = console.environment;
    let asked = broker.start_and_ask(environment, async |client: Client| {
        let contexts = client.contexts().await?;
        let fleet = match client.clusters(None).await {
            Err(error) if error.reason() == Some(Reason::HubNotConfigured) => ClusterList::default(),
            fleet => sorted(fleet?),
        };
        Ok((contexts, fleet))
    });
    let (contexts, fleet) = asked??;
    if fleet.hub.is_some() || !fleet.clusters.is_empty() {
        warn(&fleet, console.err)?;
    }
    Ok(Routes::of(own, &contexts, &fleet))
}

#[cfg(test)]
mod tests;
