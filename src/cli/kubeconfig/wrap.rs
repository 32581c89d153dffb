//! `credbroker kubeconfig wrap`: merges kubeconfigs as client-go does, into one that has the same meaning in any directory.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
};

use super::shared::{self, Input, advice, record};
use crate::cli::{
    broker::BrokerArgs,
    console::{Console, EX_CONFIG},
};
use credbroker_config::kubeconfig::{Kubeconfig, Shim, is_shim, with_shim, yaml};
use credbroker_credential::document::{Key, Node, Position, Value};

/// Write a copy of your kubeconfig whose exec users request credentials from the broker
///
/// Contexts, clusters and other users stay the same. Relative paths become absolute. The command only
/// reads your kubeconfig: all files of KUBECONFIG, or ~/.kube/config. In the copy, each user with an
/// exec plugin has credbroker's shim in front of its command. The broker must read your kubeconfig
/// too:
///
///   credbroker serve &
///   credbroker kubeconfig wrap -o ~/.kube/broker
///   KUBECONFIG=~/.kube/broker kubectl get pods
///
/// Run the command again after your kubeconfig has changed. The command keeps the current context of
/// the copy. It overwrites a copy with other contexts, clusters or users only with --force.
#[derive(Debug, Default, clap::Args)]
#[command(verbatim_doc_comment)]
#[command(mut_arg("path", |arg| arg.help("Socket for the shim to use [default: see `credbroker-exec --help`]")))]
#[command(mut_arg("broker_uid", |arg| arg.help(BROKER_UID)))]
pub(in crate::cli) struct WrapArgs {
    /// Read this file only [default: all files of $KUBECONFIG, else ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Write to this file with mode 0600. It must differ from the files that the command reads. - is standard output
    /// [default: -]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Overwrite a file that this command did not write
    #[arg(long)]
    force: bool,
    /// Write the name of the shim instead of its path, for clients that have credbroker-exec in their PATH
    #[arg(long)]
    bare: bool,
    #[command(flatten)]
    broker: BrokerArgs,
}

const BROKER_UID: &str =
    "Uid of the only broker that the shim trusts on that socket [default: see `credbroker-exec --help`]";

pub(super) fn run(args: &WrapArgs, console: &mut Console<'_>) -> anyhow::Result<u8> {
    let Some(input) = Input::read(args.kubeconfig.as_deref(), console)? else { return Ok(EX_CONFIG) };
    let served = &input.definitions.served;
    if served.is_empty() {
        writeln!(console.err, "credbroker: {}", input.nothing())?;
        return Ok(EX_CONFIG);
    }
    let mut document = wrapped(&input, &shared::shim(console, &args.broker.socket, args.bare)?);
    let environment = console.environment;
    let advice = || advice(served, &args.broker, environment);
    let Some(path) = shared::output(args.output.as_deref()) else {
        console.out.write_all(yaml(&document)?.as_bytes())?;
        record(&input.definitions, environment, console.err)?;
        writeln!(console.err, "credbroker: {}", advice()?)?;
        return Ok(0);
    };
    let may_replace = |earlier: Option<&Node>| args.force || earlier.is_some_and(|it| is_copy(it, &document));
    let (output, earlier) = shared::open(path, &input.paths, "wrap", may_replace)?;
    if let Some(earlier) = earlier {
        keep_current_context(&mut document, &earlier);
    }
    output.write_private(&yaml(&document)?)?;
    let names: Vec<_> = served.iter().map(|(name, _)| name.clone()).collect();
    shared::summarise(path, &names, console.out)?;
    record(&input.definitions, environment, console.out)?;
    output.say_if_link("written", console.out)?;
    writeln!(console.out, "Use it with `KUBECONFIG={} kubectl …`.", path.display())?;
    writeln!(console.out, "{}", advice()?)?;
    Ok(0)
}

fn wrapped(Input { kubeconfig, definitions, .. }: &Input, shim: &Shim) -> Node {
    let served: HashSet<_> = definitions.served.iter().map(|(name, _)| name.as_str()).collect();
    let mut document = merged(kubeconfig);
    if let Some(Node { value: Value::Sequence(users), .. }) = child(&mut document, "users") {
        for user in users {
            let name = name(user).unwrap_or_default().to_owned();
            // Its paths are absolute already.
            if let Some(exec) = child(user, "user").and_then(|user| child(user, "exec"))
                && served.contains(name.as_str())
                && let Some(new) = with_shim(&name, exec, Path::new("/"), shim)
            {
                *exec = new;
            }
        }
    }
    document
}

/// Whether `old` is an earlier copy and nothing more: all of its plugins run the shim, and `new` has all of its
/// contexts, clusters and users.
fn is_copy(old: &Node, new: &Node) -> bool {
    let names = |of: &Node, list: &str| -> HashSet<String> {
        items(of, list).iter().filter_map(|item| name(item).map(str::to_owned)).collect()
    };
    let mut execs = items(old, "users").iter().filter_map(|user| user.get("user")?.get("exec")).peekable();
    execs.peek().is_some()
        && execs.all(is_shim)
        && ["contexts", "clusters", "users"].iter().all(|list| names(old, list).is_subset(&names(new, list)))
}

fn items<'a>(of: &'a Node, list: &str) -> &'a [Node] {
    of.get(list).and_then(Node::as_sequence).unwrap_or_default()
}

const CURRENT: &str = "current-context";

/// A user chooses the current context in the copy.
pub(super) fn keep_current_context(new: &mut Node, old: &Node) {
    if let Some(current) = old.get(CURRENT).and_then(Node::as_str) {
        set_current_context(new, current);
    }
}

/// Makes `current` the current context, if it is there.
pub(super) fn set_current_context(of: &mut Node, current: &str) {
    let is_there = items(of, "contexts").iter().any(|context| name(context) == Some(current));
    if let (true, Value::Mapping(entries)) = (is_there, &mut of.value) {
        entries.retain(|(key, _)| key.name != CURRENT);
        entries.push(entry(CURRENT, string(current)));
    }
}

/// Of items with the same name the first is used whole; of other values the first that is not empty. Unknown keys stay.
/// The paths of the result are absolute.
fn merged(kubeconfig: &Kubeconfig) -> Node {
    let mut entries = vec![entry("apiVersion", string("v1")), entry("kind", string("Config"))];
    let mut seen = HashSet::new();
    for file in &kubeconfig.files {
        let dir = file.path.parent().unwrap_or(Path::new("/"));
        for (key, node) in file.root.as_mapping().unwrap_or_default() {
            let list = key.name.as_str();
            let has_names = matches!(list, "clusters" | "contexts" | "users" | "extensions");
            let mut new = node.clone();
            if let (true, Value::Sequence(items)) = (has_names, &mut new.value) {
                items.retain(|item| seen.insert((list, name(item).map(str::to_owned))));
                for item in items {
                    relocate(item, dir);
                }
            }
            let Some((_, there)) = entries.iter_mut().find(|(name, _)| name.name == list) else {
                entries.push((key.clone(), new));
                continue;
            };
            match (&mut there.value, new.value) {
                (Value::Sequence(all), Value::Sequence(more)) if has_names => all.extend(more),
                (Value::Mapping(all), Value::Mapping(mut more)) => {
                    more.retain(|(key, _)| !all.iter().any(|(there, _)| there.name == key.name));
                    all.extend(more);
                }
                (there, value) if is_empty(there) => *there = value,
                _ => {}
            }
        }
    }
    Value::Mapping(entries).into()
}

fn relocate(item: &mut Node, dir: &Path) {
    const COMMAND: &[&str] = &["user", "exec", "command"];
    const AUTHORITY: &[&str] = &["cluster", "certificate-authority"];
    for keys in
        [AUTHORITY, &["user", "client-certificate"], &["user", "client-key"], &["user", "tokenFile"], COMMAND]
    {
        let found = keys.iter().try_fold(&mut *item, |of, key| child(of, key));
        // A command without a separator is looked up in `PATH`.
        if let Some(Node { value: Value::String(path), .. }) = found
            && !path.is_empty()
            && (keys != COMMAND || path.contains('/'))
            && let Some(absolute) = dir.join(&*path).components().collect::<PathBuf>().to_str()
        {
            absolute.clone_into(path);
        }
    }
}

fn child<'a>(of: &'a mut Node, key: &str) -> Option<&'a mut Node> {
    let Value::Mapping(entries) = &mut of.value else { return None };
    entries.iter_mut().find_map(|(name, node)| (name.name == key).then_some(node))
}

fn name(item: &Node) -> Option<&str> {
    item.get("name").and_then(Node::as_str)
}

pub(super) fn entry(name: &str, value: Value) -> (Key, Node) {
    (Key { name: name.to_owned(), at: Position::UNKNOWN }, value.into())
}

pub(super) fn string(text: impl Into<String>) -> Value {
    Value::String(text.into())
}

fn is_empty(value: &Value) -> bool {
    matches!(value, Value::Null) || matches!(value, Value::String(text) if text.is_empty())
}

#[cfg(test)]
mod tests;
