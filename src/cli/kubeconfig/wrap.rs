//! `credbroker kubeconfig wrap`.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
};

use super::{
    merge::{child, entry, merged, name, string},
    paths::{self, Input},
    recorded::record,
    running::advice,
    shim::{self, BareArg},
};
use crate::cli::{
    broker::BrokerArgs,
    console::{Console, EX_CONFIG},
};
use credbroker_config::kubeconfig::{Shim, is_shim, with_shim, yaml};
use credbroker_credential::document::{Node, Value};

/// Write a copy of your kubeconfig whose exec users request credentials from the broker
///
/// Contexts, clusters and other users stay the same; relative paths become absolute. The command
/// only reads your kubeconfig: all files of KUBECONFIG, or ~/.kube/config. In the copy, each user
/// with an exec plugin has credbroker's shim in front of its command. The broker must read your
/// kubeconfig too:
///
///   credbroker serve &
///   credbroker kubeconfig wrap -o ~/.kube/broker
///   KUBECONFIG=~/.kube/broker kubectl get pods
///
/// Run it again after your kubeconfig has changed. The current context of the copy is kept; a copy with
/// other contexts, clusters or users is only overwritten with --force.
#[derive(Debug, Default, clap::Args)]
#[command(verbatim_doc_comment)]
#[command(mut_arg("path", |arg| arg.help("Socket for the shim to use [default: see `credbroker-exec --help`]")))]
#[command(mut_arg("server_uid", |arg| arg.help(SERVER_UID)))]
pub(super) struct WrapArgs {
    /// Read this file only [default: all files of $KUBECONFIG, else ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Write to this file, with mode 0600; it must not be one of the files read. - is standard output [default: -]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Overwrite a file that this command did not write
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    bare: BareArg,
    #[command(flatten)]
    broker: BrokerArgs,
}

const SERVER_UID: &str =
    "The only user whose process the shim trusts on that socket [default: see `credbroker-exec --help`]";

pub(super) fn run(args: &WrapArgs, console: &mut Console<'_>) -> anyhow::Result<u8> {
    let Some(input) = Input::read(args.kubeconfig.as_deref(), console)? else { return Ok(EX_CONFIG) };
    let served = &input.definitions.served;
    if served.is_empty() {
        writeln!(console.err, "credbroker: {}", input.nothing())?;
        return Ok(EX_CONFIG);
    }
    let mut document = wrapped(&input, &shim::find(console, &args.broker.socket, args.bare)?);
    let environment = console.environment;
    let advice = || advice(served, &args.broker, environment);
    let Some(path) = paths::output(args.output.as_deref()) else {
        console.out.write_all(yaml(&document)?.as_bytes())?;
        record(&input.definitions, |_, _| true, environment, console.err)?;
        writeln!(console.err, "credbroker: {}", advice()?)?;
        return Ok(0);
    };
    let mut earlier = None;
    let output = paths::open(path, &input.paths, "wrap", || {
        earlier = paths::existing(path).map(|earlier| merged(&earlier, |_, _| {}));
        args.force || earlier.as_ref().is_some_and(|earlier| is_copy(earlier, &document))
    })?;
    if let Some(earlier) = earlier {
        keep_current_context(&mut document, &earlier);
    }
    output.write_private(&yaml(&document)?)?;
    let names: Vec<_> = served.iter().map(|(name, _)| name.as_str()).collect();
    paths::summarise(path, &names, console.out)?;
    record(&input.definitions, |_, _| true, environment, console.out)?;
    output.say_if_link("written", console.out)?;
    writeln!(console.out, "Use it with `KUBECONFIG={} kubectl …`.", path.display())?;
    writeln!(console.out, "{}", advice()?)?;
    Ok(0)
}

/// The merged kubeconfig, with the shim in front of the commands of the users that the broker serves.
fn wrapped(Input { kubeconfig, definitions, .. }: &Input, shim: &Shim) -> Node {
    let served: HashSet<_> = definitions.served.iter().map(|(name, _)| name.as_str()).collect();
    merged(kubeconfig, |name, user| {
        // Its paths are absolute already.
        if let Some(exec) = child(user, "exec").filter(|_| served.contains(name))
            && let Some(new) = with_shim(name, exec, Path::new("/"), shim)
        {
            *exec = new;
        }
    })
}

/// Whether `old` is an earlier copy and nothing more: all of its plugins run the shim, and `new` has all of its
/// contexts, clusters and users.
fn is_copy(old: &Node, new: &Node) -> bool {
    let names = |of: &Node, list: &str| -> HashSet<String> {
        items(of, list).iter().filter_map(|item| name(item).map(str::to_owned)).collect()
    };
    let execs = items(old, "users").iter().filter_map(|user| user.get("user")?.get("exec"));
    let execs: Vec<_> = execs.collect();
    !execs.is_empty()
        && execs.into_iter().all(is_shim)
        && ["contexts", "clusters", "users"].iter().all(|list| names(old, list).is_subset(&names(new, list)))
}

fn items<'a>(of: &'a Node, list: &str) -> &'a [Node] {
    of.get(list).and_then(Node::as_sequence).unwrap_or_default()
}

/// A person chooses the current context in the copy.
fn keep_current_context(new: &mut Node, old: &Node) {
    const KEY: &str = "current-context";
    let current = old.get(KEY).and_then(Node::as_str);
    let is_there = current.is_some() && items(new, "contexts").iter().any(|context| name(context) == current);
    if let (true, Some(current), Value::Mapping(entries)) = (is_there, current, &mut new.value) {
        entries.retain(|(key, _)| key.name != KEY);
        entries.push(entry(KEY, string(current)));
    }
}

#[cfg(test)]
mod tests;
