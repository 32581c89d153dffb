//! Edits of the list `kubeconfigs` in the text of a configuration. Everything else stays as it is, comments too.

use std::path::{Path, PathBuf};

use super::merge::{entry, string};
use crate::document::{self, Aliases, Node, Outline, Position, Value};

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
    let list = outline.get("kubeconfigs");
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
    let items =
        paths.iter().map(|path| Node { at: Position::UNKNOWN, value: string(path.to_string_lossy()) });
    match entries.iter_mut().find(|(key, _)| key.name == "kubeconfigs").map(|(_, node)| &mut node.value) {
        Some(Value::Sequence(all)) => all.extend(items),
        Some(_) => return None,
        None => entries.push(entry("kubeconfigs", Value::Sequence(items.collect()))),
    }
    document::means(&text, &root).then_some(text)
}

/// `text` without the items of `kubeconfigs` that `is_it` selects; `None`: it is not possible.
pub(super) fn removed(text: &str, is_it: impl Fn(&str) -> bool) -> Option<String> {
    let (mut root, outline) =
        (document::yaml(text.as_bytes(), Aliases::Follow).ok()?, Outline::of(text.as_bytes())?);
    let Value::Mapping(entries) = &mut root.value else { return None };
    let (_, list) = entries.iter_mut().find(|(key, _)| key.name == "kubeconfigs")?;
    let Value::Sequence(items) = &mut list.value else { return None };
    let gone: Vec<_> = items.iter().map(|item| item.as_str().is_some_and(&is_it)).collect();
    let mut number = 0;
    items.retain(|_| {
        number += 1;
        !gone.get(number - 1).copied().unwrap_or_default()
    });
    let list = outline.get("kubeconfigs")?;
    let mut edits = Vec::new();
    for (index, part) in list.items().iter().enumerate() {
        if !*gone.get(index)? {
            continue;
        }
        let (start, end) = (part.range.start, part.range.end);
        edits.push(if list.is_block {
            // The whole line.
            let line = text.get(..start)?.rfind('\n').map_or(0, |at| at + 1);
            let next = text.get(end..)?.find('\n').map_or(text.len(), |more| end + more + 1);
            (line..next, String::new())
        } else {
            let before = if index == 0 { start } else { list.items().get(index - 1)?.range.end };
            (before..end, String::new())
        });
    }
    let text = document::replaced(text, edits)?;
    document::means(&text, &root).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(text: &str) -> Option<String> {
        added(text, &["/home/u/.kube/config".into(), "/a b".into()])
    }

    fn both_ways(text: &str, expected: &str) {
        let with = add(text).expect(text);
        assert_eq!(with, expected);
        let without = removed(&with, |item| item == "/home/u/.kube/config" || item == "/a b");
        assert_eq!(without.as_deref(), Some(text));
    }

    #[test]
    fn a_path_is_added_and_removed_and_all_else_stays() {
        both_ways(
            "kind: x\nkubeconfigs: # mine\n  - ~/a   # first\nlimits: {}\n",
            "kind: x\nkubeconfigs: # mine\n  - ~/a   # first\n  - /home/u/.kube/config\n  - \"/a b\"\nlimits: {}\n",
        );
        both_ways(
            "kubeconfigs: [~/a] # mine\nkind: x",
            "kubeconfigs: [~/a, \"/home/u/.kube/config\", \"/a b\"] # mine\nkind: x",
        );
        both_ways(
            "{\"kubeconfigs\": [\"/c\"]}",
            "{\"kubeconfigs\": [\"/c\", \"/home/u/.kube/config\", \"/a b\"]}",
        );
        both_ways(
            "kubeconfigs:\r\n- /c\r\n",
            "kubeconfigs:\r\n- /c\r\n- /home/u/.kube/config\r\n- \"/a b\"\r\n",
        );
    }

    #[test]
    fn a_configuration_without_the_list_gets_one() {
        assert_eq!(
            add("kind: x # why\n# end\n").unwrap(),
            "kind: x # why\nkubeconfigs:\n- /home/u/.kube/config\n- \"/a b\"\n# end\n"
        );
        assert_eq!(add("{kind: x}"), None);
        assert_eq!(add("kubeconfigs: &x [/c]\nother: *x\n"), None);
    }
}
