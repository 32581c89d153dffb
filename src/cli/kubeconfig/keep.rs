//! What a person changed in a wrapped kubeconfig, carried over to the next version of it.

use super::{
    nodes::{entry, name, string},
    record::{LISTS, Record, current_context, digest},
};
use credbroker_config::kubeconfig::is_shim;
use credbroker_credential::document::{Node, Value};

/// What was carried over, and what was not. Each is for a message, such as "context `dev`".
#[derive(Debug, Default)]
pub(super) struct Kept {
    pub(super) carried_over: Vec<String>,
    /// Changed in the file, and no longer in the kubeconfigs that were read.
    pub(super) left_out: Vec<String>,
    /// Users that run the shim: they are always the new ones.
    pub(super) written_again: Vec<String>,
    /// Names of the users among those carried over that run a plugin themselves.
    pub(super) with_plugin: Vec<String>,
}

/// An item that a person added or changed.
struct Changed<'a> {
    list: &'static str,
    body: &'static str,
    name: &'a str,
    item: &'a Node,
    digest: String,
    is_added: bool,
}

/// The items of `old` that a person added or changed since `record`.
fn changed<'a>(old: &'a Node, record: &'a Record) -> impl Iterator<Item = Changed<'a>> {
    let items = LISTS.into_iter().flat_map(|(list, body)| {
        let items = old.get(list).and_then(Node::as_sequence).unwrap_or_default();
        items.iter().filter_map(move |item| Some((list, body, name(item)?, item)))
    });
    items.filter_map(|(list, body, name, item)| {
        let (recorded, digest) = (record.digest(list, name), digest(list, item));
        let is_added = recorded.is_none();
        (recorded != Some(&digest)).then_some(Changed { list, body, name, item, digest, is_added })
    })
}

/// Whether a person changed nothing but the current context.
pub(super) fn is_unchanged(old: &Node, record: &Record) -> bool {
    changed(old, record).next().is_none()
}

/// Carries over to `new` what a person changed in `old` since `record`: items that they added or changed, and the current
/// context.
pub(super) fn keep(new: &mut Node, old: &Node, record: &Record) -> Kept {
    let mut kept = Kept::default();
    for Changed { list, body, name, item, digest: changed, is_added } in changed(old, record) {
        let exec = item.get(body).and_then(|body| body.get("exec")).filter(|exec| !exec.is_null());
        let what = format!("{body} `{}`", name.escape_debug());
        match place(new, list, name) {
            Some(there) if digest(list, there) == changed => continue,
            Some(_) if !is_added && exec.is_some_and(is_shim) => {
                kept.written_again.push(what);
                continue;
            }
            Some(there) => there.clone_from(item),
            None if is_added => add(new, list, item),
            None => {
                kept.left_out.push(what);
                continue;
            }
        }
        kept.carried_over.push(what);
        if exec.is_some_and(|exec| !is_shim(exec)) {
            kept.with_plugin.push(name.to_owned());
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
    match entries.iter_mut().find(|(key, _)| key.name == "current-context") {
        Some((_, there)) => *there = string(old).into(),
        None => entries.push(entry("current-context", string(old))),
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
    entries.push(entry(list, Value::Sequence(vec![item.clone()])));
}

fn items<'a>(document: &'a mut Node, list: &str) -> Option<&'a mut Vec<Node>> {
    let Value::Mapping(entries) = &mut document.value else { return None };
    let (_, node) = entries.iter_mut().find(|(key, _)| key.name == list)?;
    if let Value::Sequence(items) = &mut node.value { Some(items) } else { None }
}
