//! What a person changed in a wrapped kubeconfig, carried over to the next version of it.

use super::{
    digest::digest,
    merge::name,
    record::{LISTS, Record, current_context},
};
use crate::{
    config::kubeconfig::is_shim,
    document::{Key, Node, Position, Value},
};

/// What was carried over, and what was not. Each is for a message, such as "context `dev`".
#[derive(Debug, Default)]
pub(super) struct Kept {
    pub(super) carried_over: Vec<String>,
    /// Changed in the file, and no longer in the kubeconfigs that were read.
    pub(super) left_out: Vec<String>,
    /// Names of the users among them that run a plugin themselves.
    pub(super) with_plugin: Vec<String>,
}

/// Carries over to `new` what a person changed in `old` since `record`: items that they added or changed, and the current
/// context. A user that runs the shim is always the new one.
pub(super) fn keep(new: &mut Node, old: &Node, record: &Record) -> Kept {
    let mut kept = Kept::default();
    for (list, body) in LISTS {
        for item in old.get(list).and_then(Node::as_sequence).unwrap_or_default() {
            let Some(name) = name(item) else { continue };
            let recorded = record.digest(list, name);
            let exec = item.get(body).and_then(|body| body.get("exec")).filter(|exec| !exec.is_null());
            let is_ours = recorded.is_some() && exec.is_some_and(is_shim);
            let digest = digest(list, item);
            if is_ours || recorded == Some(&digest) {
                continue;
            }
            let what = format!("{body} `{}`", name.escape_debug());
            match place(new, list, name) {
                None if recorded.is_some() => {
                    kept.left_out.push(what);
                    continue;
                }
                Some(there) if super::digest::digest(list, there) == digest => continue,
                Some(there) => there.clone_from(item),
                None => add(new, list, item),
            }
            kept.carried_over.push(what);
            if exec.is_some_and(|exec| !is_shim(exec)) {
                kept.with_plugin.push(name.to_owned());
            }
        }
    }
    keep_current_context(new, current_context(old), record, &mut kept);
    kept
}

fn keep_current_context(new: &mut Node, old: &str, record: &Record, kept: &mut Kept) {
    if old == record.current_context || old == current_context(new) {
        return;
    }
    let what = format!("the current context `{}`", old.escape_debug());
    if !old.is_empty() && place(new, "contexts", old).is_none() {
        kept.left_out.push(what);
        return;
    }
    let Value::Mapping(entries) = &mut new.value else { return };
    let value = Node { at: Position::UNKNOWN, value: Value::String(old.to_owned()) };
    match entries.iter_mut().find(|(key, _)| key.name == "current-context") {
        Some((_, there)) => *there = value,
        None => entries.push((Key { name: "current-context".to_owned(), at: Position::UNKNOWN }, value)),
    }
    kept.carried_over.push(if old.is_empty() { "no current context".to_owned() } else { what });
}

/// The item of that name.
fn place<'a>(document: &'a mut Node, list: &str, of: &str) -> Option<&'a mut Node> {
    items(document, list)?.iter_mut().find(|item| name(item) == Some(of))
}

fn add(document: &mut Node, list: &str, item: &Node) {
    if let Some(items) = items(document, list) {
        items.push(item.clone());
        return;
    }
    let Value::Mapping(entries) = &mut document.value else { return };
    entries.retain(|(key, _)| key.name != list);
    let items = Node { at: Position::UNKNOWN, value: Value::Sequence(vec![item.clone()]) };
    entries.push((Key { name: list.to_owned(), at: Position::UNKNOWN }, items));
}

fn items<'a>(document: &'a mut Node, list: &str) -> Option<&'a mut Vec<Node>> {
    let Value::Mapping(entries) = &mut document.value else { return None };
    let (_, node) = entries.iter_mut().find(|(key, _)| key.name == list)?;
    if let Value::Sequence(items) = &mut node.value { Some(items) } else { None }
}
