//! A user whose stanza runs the shim in front of the original command, and back.
//!
//! Here is what such a stanza means; `edit` has the same transformation as edits of the text.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use credbroker_credential::document::{Key, Node, Position, Value};
use credbroker_stanza::{Definition, Prefix, PrefixError};

/// How a kubeconfig names the shim.
#[derive(Clone, Debug)]
pub struct Shim {
    /// Its name or absolute path.
    pub command: String,
    /// Whether that is a program that runs the shim as its subcommand.
    pub is_subcommand: bool,
    /// Flags, such as `--socket`, and their values.
    pub flags: Vec<(String, String)>,
}

pub(super) const COMMAND: &str = "command";
pub(super) const ARGS: &str = "args";
pub(super) const INFO: &str = "provideClusterInfo";
pub(super) const MODE: &str = "interactiveMode";
/// An interactive mode, and what it becomes, so that a held credential is served without a terminal.
pub(super) const ALWAYS: &str = "Always";
pub(super) const IF_AVAILABLE: &str = "IfAvailable";

/// The arguments that the stanza `exec` of the user `name` gets before its command. `dir` is what a relative command is
/// relative to. `literal` is the text of a key's value as the file has it, if it is in one.
pub(super) fn prefix<'a>(
    name: &str,
    exec: &Node,
    dir: &Path,
    shim: &Shim,
    literal: impl Fn(&str) -> Option<&'a str>,
) -> Option<Prefix> {
    let command = exec.get(COMMAND)?.as_str()?;
    let env: BTreeSet<_> = variables(exec).map(|(name, _)| name.to_owned()).collect();
    let was = |key: &str, node: &Node| literal(key).map_or_else(|| node.to_json().to_string(), str::to_owned);
    let mut changed = Vec::new();
    let mut change = |key: &str, was: String| changed.push((key.to_owned(), was));
    let cluster_info = cluster_info(exec);
    match exec.get(INFO) {
        None => change(INFO, Prefix::ABSENT.to_owned()),
        Some(node) if !cluster_info => change(INFO, was(INFO, node)),
        Some(_) => {}
    }
    match exec.get(ARGS) {
        None => change(ARGS, Prefix::ABSENT.to_owned()),
        Some(node) if node.is_null() => change(ARGS, was(ARGS, node)),
        Some(_) => {}
    }
    if exec.get(MODE).and_then(Node::as_str) == Some(ALWAYS) {
        change(MODE, ALWAYS.to_owned());
    }
    let is_relative = command.contains('/') && !command.starts_with('/');
    Some(Prefix {
        is_subcommand: shim.is_subcommand,
        provider: name.to_owned(),
        api_version: api_version(exec)?.to_owned(),
        dir: if is_relative { Some(dir.to_str()?.to_owned()) } else { None },
        env: env.into_iter().collect(),
        cluster_info,
        changed,
        others: shim.flags.clone(),
    })
}

/// The stanza of the user `name` with the shim in front of its command, in the place of an earlier one. `dir` is what a
/// relative command is relative to. `None`: it is not a valid stanza.
pub fn with_shim(name: &str, exec: &Node, dir: &Path, shim: &Shim) -> Option<Node> {
    let earlier = brokered(exec).ok()?;
    let dir = earlier.as_ref().and_then(|found| found.prefix.dir.as_deref()).map_or(dir, Path::new);
    let original = earlier.as_ref().map_or(exec, |found| &found.original);
    with_prefix(original, &prefix(name, original, dir, shim, |_| None)?, shim)
}

pub(super) fn with_prefix(exec: &Node, prefix: &Prefix, shim: &Shim) -> Option<Node> {
    let command = exec.get(COMMAND)?.clone();
    let mut entries = exec.as_mapping()?.to_vec();
    let original = exec.get(ARGS).and_then(Node::as_sequence).unwrap_or_default();
    let args = prefix.to_args().into_iter().map(|arg| Value::String(arg).into());
    let args = args.chain([command]).chain(original.iter().cloned()).collect();
    set(&mut entries, ARGS, Value::Sequence(args));
    set(&mut entries, COMMAND, Value::String(shim.command.clone()));
    set(&mut entries, INFO, Value::Bool(true));
    if prefix.was(MODE).is_some() {
        set(&mut entries, MODE, Value::String(IF_AVAILABLE.to_owned()));
    }
    Some(Node { at: exec.at, ..Value::Mapping(entries).into() })
}

/// Whether an `exec` stanza runs credbroker's shim already.
pub fn is_shim(exec: &Node) -> bool {
    let command = exec.get("command").and_then(Node::as_str).unwrap_or_default();
    let first = exec.get("args").and_then(Node::as_sequence).and_then(<[Node]>::first).and_then(Node::as_str);
    match Path::new(command).file_name().and_then(|name| name.to_str()) {
        Some("credbroker-exec") => true,
        Some("credbroker" | "kubectl-credbroker") => first == Some("shim"),
        _ => false,
    }
}

/// A stanza with a prefix.
#[derive(Debug)]
pub struct Brokered {
    /// What is in front of the original command.
    pub prefix: Prefix,
    /// The stanza without it.
    pub original: Node,
}

/// Takes the shim and its prefix away from `exec`. `None`: it does not run the shim, or has no original.
pub fn brokered(exec: &Node) -> Result<Option<Brokered>, PrefixError> {
    let args = exec.get(ARGS).and_then(Node::as_sequence).unwrap_or_default();
    let texts: Vec<_> = args.iter().map_while(Node::as_str).collect();
    if !is_shim(exec) {
        return Ok(None);
    }
    let Some((prefix, rest)) = Prefix::parse(&texts)? else { return Ok(None) };
    let mut original = args.iter().skip(texts.len() - rest.len()).cloned();
    let (command, args) = (original.next(), original.collect::<Vec<_>>());
    let mut entries = exec.as_mapping().unwrap_or_default().to_vec();
    set(&mut entries, COMMAND, command.map_or(Value::Null, |command| command.value));
    match prefix.was(ARGS) {
        Some(Prefix::ABSENT) if args.is_empty() => entries.retain(|(key, _)| key.name != ARGS),
        Some(_) if args.is_empty() => set(&mut entries, ARGS, Value::Null),
        _ => set(&mut entries, ARGS, Value::Sequence(args)),
    }
    match prefix.was(INFO) {
        Some(Prefix::ABSENT) => entries.retain(|(key, _)| key.name != INFO),
        Some("false" | "False" | "FALSE") => set(&mut entries, INFO, Value::Bool(false)),
        Some(_) => set(&mut entries, INFO, Value::Null),
        None => {}
    }
    if prefix.was(MODE) == Some(ALWAYS) && exec.get(MODE).and_then(Node::as_str) == Some(IF_AVAILABLE) {
        set(&mut entries, MODE, Value::String(ALWAYS.to_owned()));
    }
    let original = Node { at: exec.at, ..Value::Mapping(entries).into() };
    Ok(Some(Brokered { prefix, original }))
}

/// The digest of what `original` runs, as the shim sends it if `prefix` is in front. A relative command is relative to `dir`.
pub(super) fn digest(original: &Node, prefix: Option<&Prefix>, dir: &Path) -> Option<String> {
    let args = original.get(ARGS).and_then(Node::as_sequence).unwrap_or_default();
    // Of two variables with one name the last counts.
    let set: BTreeMap<_, _> = variables(original).collect();
    let env = match prefix {
        Some(prefix) => {
            prefix.env.iter().map(|name| (name.as_bytes(), set.get(name.as_str()).copied())).collect()
        }
        None => set.iter().map(|(name, value)| (name.as_bytes(), Some(*value))).collect(),
    };
    let definition = Definition {
        api_version: match prefix {
            Some(prefix) => &prefix.api_version,
            None => api_version(original)?,
        },
        dir: Some(prefix.and_then(|prefix| prefix.dir.as_deref()).map_or(dir, Path::new)),
        command: original.get(COMMAND)?.as_str()?.as_bytes(),
        args: args.iter().map(|arg| arg.as_str().map(str::as_bytes)).collect::<Option<_>>()?,
        env,
        cluster_info: prefix.map_or_else(|| cluster_info(original), |prefix| prefix.cluster_info),
    };
    Some(definition.digest())
}

/// Whether `prefix` says what the stanza `original` of the user `name` runs. It does not after the stanza was edited.
pub(super) fn describes(prefix: &Prefix, name: &str, original: &Node) -> bool {
    let named: BTreeSet<_> = prefix.env.iter().map(String::as_str).collect();
    prefix.provider == name
        && api_version(original) == Some(prefix.api_version.as_str())
        && prefix.cluster_info == cluster_info(original)
        && named == variables(original).map(|(name, _)| name).collect()
}

fn api_version(exec: &Node) -> Option<&str> {
    exec.get("apiVersion")?.as_str()?.rsplit('/').next()
}

fn cluster_info(exec: &Node) -> bool {
    exec.get(INFO).and_then(Node::as_bool) == Some(true)
}

fn variables(exec: &Node) -> impl Iterator<Item = (&str, &[u8])> {
    let items = exec.get("env").and_then(Node::as_sequence).unwrap_or_default();
    items.iter().filter_map(|item| {
        let value = item.get("value").and_then(Node::as_str).unwrap_or_default();
        Some((item.get("name")?.as_str()?, value.as_bytes()))
    })
}

fn set(entries: &mut Vec<(Key, Node)>, name: &str, value: Value) {
    match entries.iter_mut().find(|(key, _)| key.name == name) {
        Some((_, node)) => node.value = value,
        None => entries.push((Key { name: name.to_owned(), at: Position::UNKNOWN }, value.into())),
    }
}
