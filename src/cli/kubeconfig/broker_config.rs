//! `kubeconfigs` in the configuration of the broker: named and removed in its text, of which the rest stays as it is.

use std::{
    ops::Range,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

use super::merge::{entry, string};
use crate::cli::files::{self, Locked, is_same};
use credbroker_config as config;
use credbroker_credential::document::{self, Aliases, Node, Value};
use credbroker_plugin::Environment;

/// The configuration that the broker reads, or would read if it existed.
#[derive(Debug)]
pub(in crate::cli) struct BrokerConfig {
    pub(in crate::cli) path: PathBuf,
    pub(in crate::cli) exists: bool,
}

impl BrokerConfig {
    /// As `credbroker serve` finds it.
    pub(in crate::cli) fn find(flag: Option<&Path>, environment: &Environment) -> anyhow::Result<Self> {
        let (path, exists) = config::place(flag, environment)
            .context("there is no place for a configuration: HOME is not set; name one with --config")?;
        Ok(Self { path, exists })
    }

    /// Names all of `kubeconfigs` in it. Returns whether it changed. The new text is only written if it has no problem, and
    /// after `before` got it.
    pub(in crate::cli) fn add(
        &self,
        kubeconfigs: &[PathBuf],
        environment: &Environment,
        before: impl FnOnce(&str) -> anyhow::Result<()>,
    ) -> anyhow::Result<bool> {
        let missing = self.missing(kubeconfigs, environment)?;
        if missing.is_empty() {
            return Ok(false);
        }
        if let Some(dir) = self.path.parent() {
            files::private_directory(dir)?;
        }
        let file = Locked::take(&self.path)?;
        let text = match file.read()? {
            Some(bytes) => {
                added(&self.utf8(bytes)?, &missing).with_context(|| self.by_hand("Add", &missing))?
            }
            None => new(&missing),
        };
        self.check(&text, environment)?;
        before(&text)?;
        file.rewrite(&text)?;
        Ok(true)
    }

    /// Those of `kubeconfigs` that it does not name.
    pub(in crate::cli) fn missing(
        &self,
        kubeconfigs: &[PathBuf],
        environment: &Environment,
    ) -> anyhow::Result<Vec<PathBuf>> {
        let named = self.named(environment)?;
        let is_named = |path: &PathBuf| named.iter().any(|named| named == path || is_same(named, path));
        Ok(kubeconfigs.iter().filter(|path| !is_named(path)).cloned().collect())
    }

    /// Removes `kubeconfig` from it. Returns whether it changed.
    pub(in crate::cli) fn remove(
        &self,
        kubeconfig: &Path,
        environment: &Environment,
    ) -> anyhow::Result<bool> {
        if !self.named(environment)?.iter().any(|named| named == kubeconfig) {
            return Ok(false);
        }
        let file = Locked::take(&self.path)?;
        let text = self.utf8(file.read()?.unwrap_or_default())?;
        let is_it = |item: &str| config::expanded(&self.path, item, environment) == kubeconfig;
        let text = removed(&text, is_it).with_context(|| self.by_hand("Remove", &[kubeconfig.to_owned()]))?;
        file.rewrite(&text)?;
        Ok(true)
    }

    /// The kubeconfigs that it names, as absolute paths.
    pub(super) fn named(&self, environment: &Environment) -> anyhow::Result<Vec<PathBuf>> {
        if !self.exists {
            return Ok(Vec::new());
        }
        let bytes =
            std::fs::read(&self.path).with_context(|| format!("{} cannot be read", self.path.display()))?;
        let root = document::yaml(&bytes, Aliases::Follow).ok();
        let items = root.as_ref().and_then(|root| root.get("kubeconfigs")?.as_sequence()).unwrap_or_default();
        let items = items.iter().filter_map(Node::as_str);
        Ok(items.map(|item| config::expanded(&self.path, item, environment)).collect())
    }

    /// A configuration that the broker would refuse is not written.
    fn check(&self, text: &str, environment: &Environment) -> anyhow::Result<()> {
        let dir = self.path.parent().unwrap_or(Path::new("/"));
        let trial = tempfile::Builder::new().prefix(".credbroker-").tempfile_in(dir)?;
        std::fs::write(trial.path(), text)?;
        let Err(error) = config::load(Some(trial.path()), environment) else { return Ok(()) };
        let shown = self.path.display().to_string();
        let problems = error.to_string().replace(&trial.path().display().to_string(), &shown);
        anyhow::bail!(
            "{shown} was not changed, because the broker would refuse it; solve these problems first:\n{problems}"
        )
    }

    fn by_hand(&self, verb: &str, kubeconfigs: &[PathBuf]) -> String {
        let list = kubeconfigs.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
        format!(
            "{} cannot be edited as text. {verb} {list} in `kubeconfigs` by hand, and run this command again",
            self.path.display()
        )
    }

    fn utf8(&self, bytes: Vec<u8>) -> anyhow::Result<String> {
        String::from_utf8(bytes).ok().with_context(|| format!("{} is not UTF-8", self.path.display()))
    }
}

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
    let mut root = document::yaml(text.as_bytes(), Aliases::Follow).ok()?;
    let line_break = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let lines = |indentation: usize| -> String {
        let line = |path: &PathBuf| format!("{line_break}{}- {}", " ".repeat(indentation), quoted(path));
        paths.iter().map(line).collect()
    };
    let (at, new) = match root.get(KEY) {
        Some(list) if list.is_block(text) => {
            let first = text.get(..list.as_sequence()?.first()?.range.start)?;
            let line = first.rsplit('\n').next()?;
            (list.range.end, lines(line.find('-')?))
        }
        Some(list) if text.get(list.range.clone())?.ends_with(']') => {
            let separator = if list.as_sequence()?.is_empty() { "" } else { ", " };
            let paths = paths.iter().map(|path| json(path)).collect::<Vec<_>>().join(", ");
            (list.range.end - 1, format!("{separator}{paths}"))
        }
        Some(list) if list.range.is_empty() && root.is_block(text) => {
            (list.range.end, lines(root.indentation()))
        }
        None if root.is_block(text) && root.indentation() == 0 => {
            (root.range.end, format!("{line_break}kubeconfigs:{}", lines(0)))
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
    let mut root = document::yaml(text.as_bytes(), Aliases::Follow).ok()?;
    let part = root.get(KEY)?.clone();
    let is_block = part.is_block(text);
    let Value::Mapping(entries) = &mut root.value else { return None };
    let (_, list) = entries.iter_mut().find(|(key, _)| key.name == KEY)?;
    let Value::Sequence(items) = &mut list.value else { return None };
    let gone: Vec<_> = items.iter().map(|item| item.as_str().is_some_and(&is_it)).collect();
    let mut is_gone = gone.iter().copied();
    items.retain(|_| !is_gone.next().unwrap_or_default());
    let is_empty = items.is_empty();
    let edits = if is_block { lines(text, &part, &gone) } else { between_brackets(&part, &gone) }?;
    if !(is_block && is_empty) {
        return edited(text, edits, &root);
    }
    // A key without items would be null. Its line is removed too, unless it has a comment or nothing else is left.
    let (line, colon) = key_line(text, part.range.start)?;
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
fn lines(text: &str, list: &Node, gone: &[bool]) -> Option<Vec<TextEdit>> {
    let gone = list.as_sequence()?.iter().zip(gone).filter(|(_, gone)| **gone);
    let lines = gone.map(|(part, _)| {
        let line = text.get(..part.range.start)?.rfind('\n').map_or(0, |at| at + 1);
        let end = part.range.end;
        let next = text.get(end..)?.find('\n').map_or(text.len(), |more| end + more + 1);
        Some((line..next, String::new()))
    });
    lines.collect()
}

/// Removes the items that are gone, each with one comma.
fn between_brackets(list: &Node, gone: &[bool]) -> Option<Vec<TextEdit>> {
    let (parts, mut edits, mut is_first) = (list.as_sequence()?, Vec::new(), true);
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
