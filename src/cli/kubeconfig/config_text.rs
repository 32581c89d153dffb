//! Edits of the list `kubeconfigs` in the text of a configuration. Everything else stays as it is, comments too.

use std::{
    ops::Range,
    path::{Path, PathBuf},
};

use super::merge::{entry, string};
use credbroker_credential::document::{self, Aliases, Node, Outline, Value};

const KEY: &str = "kubeconfigs";

/// A range of the text, and what replaces it.
type TextEdit = (Range<usize>, String);

/// A new configuration.
pub(super) fn new(kubeconfigs: &[PathBuf]) -> String {
    let items = kubeconfigs.iter().map(|path| quoted(path)).collect::<Vec<_>>().join("\n- ");
    format!("apiVersion: credbroker.io/v1alpha1\nkind: BrokerConfig\nkubeconfigs:\n- {items}\n")
}

fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    if text.chars().all(is_plain) { text.into_owned() } else { json(path) }
}

/// JSON is YAML.
fn json(path: &Path) -> String {
    serde_json::Value::from(path.to_string_lossy()).to_string()
}

/// `text` with `paths` at the end of `kubeconfigs`; `None`: it is not possible.
pub(super) fn added(text: &str, paths: &[PathBuf]) -> Option<String> {
    let (mut root, outline) =
        (document::yaml(text.as_bytes(), Aliases::Follow).ok()?, Outline::of(text.as_bytes())?);
    let line_break = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let lines = |indentation: usize| -> String {
        let line = |path: &PathBuf| format!("{line_break}{}- {}", " ".repeat(indentation), quoted(path));
        paths.iter().map(line).collect()
    };
    let list = outline.get(KEY);
    let (at, new) = match list {
        Some(list) if list.is_block => {
            let first = text.get(..list.items().first()?.range.start)?;
            let line = first.rsplit('\n').next()?;
            (list.range.end, lines(line.find('-')?))
        }
        Some(list) if text.get(list.range.clone())?.ends_with(']') => {
            let separator = if list.items().is_empty() { "" } else { ", " };
            let paths = paths.iter().map(|path| json(path)).collect::<Vec<_>>().join(", ");
            (list.range.end - 1, format!("{separator}{paths}"))
        }
        Some(list) if list.range.is_empty() && outline.is_block => (list.range.end, lines(outline.column)),
        None if outline.is_block && outline.column == 0 => {
            (outline.range.end, format!("{line_break}kubeconfigs:{}", lines(0)))
        }
        _ => return None,
    };
    // Not between a value and the comment behind it.
    let is_line = new.starts_with(line_break);
    let at =
        if is_line { text.get(at..)?.find(['\r', '\n']).map_or(text.len(), |more| at + more) } else { at };
    let text = document::replaced(text, vec![(at..at, new)])?;
    let Value::Mapping(entries) = &mut root.value else { return None };
    let items = paths.iter().map(|path| string(path.to_string_lossy()).into());
    match entries.iter_mut().find(|(key, _)| key.name == KEY).map(|(_, node)| &mut node.value) {
        Some(Value::Sequence(all)) => all.extend(items),
        Some(null @ Value::Null) => *null = Value::Sequence(items.collect()),
        Some(_) => return None,
        None => entries.push(entry(KEY, Value::Sequence(items.collect()))),
    }
    document::means(&text, &root).then_some(text)
}

/// `text` without the items of `kubeconfigs` that `is_it` selects; `None`: it is not possible.
pub(super) fn removed(text: &str, is_it: impl Fn(&str) -> bool) -> Option<String> {
    let (mut root, outline) =
        (document::yaml(text.as_bytes(), Aliases::Follow).ok()?, Outline::of(text.as_bytes())?);
    let Value::Mapping(entries) = &mut root.value else { return None };
    let (_, list) = entries.iter_mut().find(|(key, _)| key.name == KEY)?;
    let Value::Sequence(items) = &mut list.value else { return None };
    let gone: Vec<_> = items.iter().map(|item| item.as_str().is_some_and(&is_it)).collect();
    let mut is_gone = gone.iter().copied();
    items.retain(|_| !is_gone.next().unwrap_or_default());
    let is_empty = items.is_empty();
    let list = outline.get(KEY)?;
    let edits = if list.is_block { lines(text, list, &gone) } else { between_brackets(list, &gone) }?;
    if !(list.is_block && is_empty) {
        return edited(text, edits, &root);
    }
    // A key without items would be null. Its line is removed too, unless it has a comment or nothing else is left.
    let (line, colon) = key_line(text, list.range.start)?;
    let without_key = || {
        let Value::Mapping(entries) = &root.value else { return None };
        let others = entries.iter().filter(|(key, _)| key.name != KEY).cloned().collect();
        let edits = edits.iter().cloned().chain([(line.clone(), String::new())]).collect();
        edited(text, edits, &Value::Mapping(others).into())
    };
    let is_bare = text.get(colon..line.end)?.trim().is_empty();
    is_bare.then(without_key).flatten().or_else(|| {
        let edits = edits.iter().cloned().chain([(colon..colon, " []".to_owned())]).collect();
        edited(text, edits, &root)
    })
}

/// Removes the lines of the items that are gone.
fn lines(text: &str, list: &Outline, gone: &[bool]) -> Option<Vec<TextEdit>> {
    let gone = list.items().iter().zip(gone).filter(|(_, gone)| **gone);
    let lines = gone.map(|(part, _)| {
        let line = text.get(..part.range.start)?.rfind('\n').map_or(0, |at| at + 1);
        let end = part.range.end;
        let next = text.get(end..)?.find('\n').map_or(text.len(), |more| end + more + 1);
        Some((line..next, String::new()))
    });
    lines.collect()
}

/// Removes the items that are gone, each with one comma.
fn between_brackets(list: &Outline, gone: &[bool]) -> Option<Vec<TextEdit>> {
    let (parts, mut edits, mut is_first) = (list.items(), Vec::new(), true);
    for (index, part) in parts.iter().enumerate() {
        if !*gone.get(index)? {
            is_first = false;
            continue;
        }
        let range = if is_first {
            part.range.start..parts.get(index + 1).map_or(part.range.end, |next| next.range.start)
        } else {
            parts.get(index - 1)?.range.end..part.range.end
        };
        edits.push((range, String::new()));
    }
    Some(edits)
}

/// The line of the key of the list that begins at `list`, and the place behind the colon.
fn key_line(text: &str, list: usize) -> Option<(Range<usize>, usize)> {
    let (mut at, mut found) = (0, None);
    for line in text.get(..list)?.split_inclusive('\n') {
        let key = line.trim_start();
        let forms = [format!("{KEY}:"), format!("\"{KEY}\":"), format!("'{KEY}':")];
        if let Some(form) = forms.iter().find(|form| key.starts_with(form.as_str())) {
            found = Some((at..at + line.len(), at + line.len() - key.len() + form.len()));
        }
        at += line.len();
    }
    found
}

/// `text` with these edits, if it means `expected` then. Its end stays as it is.
fn edited(text: &str, edits: Vec<TextEdit>, expected: &Node) -> Option<String> {
    let mut new = document::replaced(text, edits)?;
    if !text.ends_with('\n') {
        new.truncate(new.trim_end_matches(['\r', '\n']).len());
    }
    document::means(&new, expected).then_some(new)
}

#[cfg(test)]
mod tests;
