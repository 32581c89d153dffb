//! `kubeconfigs` in the configuration of the broker: named and removed in its text, of which the rest stays as it is.

use std::{
    ops::Range,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

use crate::cli::files::{self, Locked, is_same, joined};
use credbroker_config as config;
use credbroker_credential::document::{self, Aliases, Node};
use credbroker_plugin::Environment;
use serde_json::{Value, json};

/// The configuration that the broker reads, or would read if it existed.
#[derive(Debug)]
pub(in crate::cli) struct BrokerConfig<'a> {
    environment: &'a Environment,
    pub(super) path: PathBuf,
    pub(super) exists: bool,
}

impl<'a> BrokerConfig<'a> {
    /// As `credbroker serve` finds it.
    pub(in crate::cli) fn find(flag: Option<&Path>, environment: &'a Environment) -> anyhow::Result<Self> {
        let (path, exists) = config::place(flag, environment)
            .context("there is no place for a configuration: HOME is not set; name one with --config")?;
        Ok(Self { environment, path, exists })
    }

    /// Names all of `kubeconfigs` in it. Returns whether it changed. The new text is only written if it has no problem, and
    /// after `before` got it, with the kubeconfigs that it did not name.
    pub(in crate::cli) fn add(
        &self,
        kubeconfigs: &[PathBuf],
        before: impl FnOnce(&str, Vec<PathBuf>) -> anyhow::Result<()>,
    ) -> anyhow::Result<bool> {
        let named = self.named()?;
        let is_named = |path: &&PathBuf| named.iter().any(|named| named == *path || is_same(named, path));
        let missing: Vec<_> = kubeconfigs.iter().filter(|path| !is_named(path)).cloned().collect();
        if missing.is_empty() {
            return Ok(false);
        }
        if let Some(dir) = self.path.parent() {
            files::private_directory(dir)?;
        }
        let file = Locked::take(&self.path)?;
        let text = file.read_text()?.unwrap_or_else(|| NEW.to_owned());
        let text = added(&text, &missing).with_context(|| self.by_hand("Add", &missing))?;
        self.check(&text)?;
        before(&text, missing)?;
        file.rewrite(&text)?;
        Ok(true)
    }

    /// Removes those of `kubeconfigs` that it names.
    pub(in crate::cli) fn remove(&self, kubeconfigs: &[PathBuf]) -> anyhow::Result<()> {
        if !self.named()?.iter().any(|named| kubeconfigs.contains(named)) {
            return Ok(());
        }
        let file = Locked::take(&self.path)?;
        let text = file.read_text()?.unwrap_or_default();
        let is_it = |item: &str| kubeconfigs.contains(&self.expanded(item));
        let text = removed(&text, is_it).with_context(|| self.by_hand("Remove", kubeconfigs))?;
        file.rewrite(&text)
    }

    /// The kubeconfigs that it names, as absolute paths.
    pub(super) fn named(&self) -> anyhow::Result<Vec<PathBuf>> {
        if !self.exists {
            return Ok(Vec::new());
        }
        let text = std::fs::read_to_string(&self.path);
        let root = read(&text.with_context(|| format!("{} cannot be read", self.path.display()))?);
        let items = root.as_ref().and_then(|root| root.get(KEY)?.as_sequence()).unwrap_or_default();
        Ok(items.iter().filter_map(Node::as_str).map(|item| self.expanded(item)).collect())
    }

    fn expanded(&self, item: &str) -> PathBuf {
        config::expanded(&self.path, item, self.environment)
    }

    /// A configuration that the broker would refuse is not written.
    fn check(&self, text: &str) -> anyhow::Result<()> {
        let dir = self.path.parent().unwrap_or(Path::new("/"));
        let trial = tempfile::Builder::new().prefix(".credbroker-").tempfile_in(dir)?;
        std::fs::write(trial.path(), text)?;
        let Err(error) = config::load(Some(trial.path()), self.environment) else { return Ok(()) };
        let shown = self.path.display().to_string();
        let problems = error.to_string().replace(&trial.path().display().to_string(), &shown);
        let why = "because the broker would refuse it; solve these problems first";
        anyhow::bail!("{shown} was not changed, {why}:\n{problems}")
    }

    fn by_hand(&self, verb: &str, kubeconfigs: &[PathBuf]) -> String {
        let (path, list) = (self.path.display(), joined(kubeconfigs, ", "));
        let by_hand = format!("{verb} {list} in `kubeconfigs` by hand, and run this command again");
        format!("{path} cannot be edited as text. {by_hand}")
    }
}

const KEY: &str = "kubeconfigs";

/// A range of the text, and what replaces it.
type TextEdit = (Range<usize>, String);

/// A new configuration, before kubeconfigs are added.
const NEW: &str = "apiVersion: credbroker.io/v1alpha1\nkind: BrokerConfig\n";

/// For a list in lines. One between brackets has JSON, which is YAML.
fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    if text.chars().all(is_plain) { text.into_owned() } else { json!(text).to_string() }
}

fn read(text: &str) -> Option<Node> {
    document::yaml(text.as_bytes(), Aliases::Follow).ok()
}

/// `text` with `paths` at the end of `kubeconfigs`; `None`: it is not possible.
pub(super) fn added(text: &str, paths: &[PathBuf]) -> Option<String> {
    let root = read(text)?;
    let line_break = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let lines = |indentation: usize| -> String {
        let line = |path: &PathBuf| format!("{line_break}{}- {}", " ".repeat(indentation), quoted(path));
        paths.iter().map(line).collect()
    };
    let (mut at, new) = match root.get(KEY) {
        Some(list) if list.is_block(text) => {
            let first = text.get(..list.as_sequence()?.first()?.range.start)?;
            (list.range.end, lines(first.rsplit('\n').next()?.find('-')?))
        }
        Some(list) if text.get(list.range.clone())?.ends_with(']') => {
            let separator = if list.as_sequence()?.is_empty() { "" } else { ", " };
            let paths = paths.iter().map(|path| json!(path.to_string_lossy()).to_string());
            (list.range.end - 1, format!("{separator}{}", paths.collect::<Vec<_>>().join(", ")))
        }
        Some(list) if list.range.is_empty() && root.is_block(text) => {
            (list.range.end, lines(root.indentation()))
        }
        None if root.is_block(text) && root.indentation() == 0 => {
            (root.range.end, format!("{line_break}{KEY}:{}", lines(0)))
        }
        _ => return None,
    };
    if new.starts_with(line_break) {
        // Not between a value and the comment behind it.
        at += text.get(at..)?.find(['\r', '\n']).unwrap_or(text.len() - at);
    }
    let mut meaning = root.to_json();
    let list = meaning.as_object_mut()?.entry(KEY).or_insert(Value::Null);
    if list.is_null() {
        *list = json!([]);
    }
    list.as_array_mut()?.extend(paths.iter().map(|path| json!(path.to_string_lossy())));
    edited(text, vec![(at..at, new)], &meaning)
}

/// `text` without the items of `kubeconfigs` that `is_it` selects; `None`: it is not possible.
pub(super) fn removed(text: &str, is_it: impl Fn(&str) -> bool) -> Option<String> {
    let root = read(text)?;
    let (list, mut meaning) = (root.get(KEY)?, root.to_json());
    let (parts, is_block) = (list.as_sequence()?, list.is_block(text));
    let is_gone = |part: &Node| part.as_str().is_some_and(&is_it);
    meaning.get_mut(KEY)?.as_array_mut()?.retain(|item| !item.as_str().is_some_and(&is_it));
    let first_kept = parts.iter().position(|part| !is_gone(part));
    // Each goes with its line, or with the comma before it, or if none stays before it, with the one behind it.
    let edits = parts.iter().enumerate().filter(|(_, part)| is_gone(part)).map(|(index, part)| {
        let range = if is_block {
            start_of_line(text, part.range.start)..end_of_line(text, part.range.end)
        } else if first_kept.is_some_and(|kept| kept < index) {
            parts.get(index - 1)?.range.end..part.range.end
        } else {
            part.range.start..parts.get(index + 1).map_or(part.range.end, |next| next.range.start)
        };
        Some((range, String::new()))
    });
    let edits = edits.collect::<Option<Vec<TextEdit>>>()?;
    if !is_block || first_kept.is_some() {
        return edited(text, edits, &meaning);
    }
    let with = |edit: TextEdit, meaning: &Value| edited(text, [edits.as_slice(), &[edit]].concat(), meaning);
    let mut without_key = meaning.clone();
    without_key.as_object_mut()?.remove(KEY);
    // A key without items would be null. Its line is removed too, or if it has a comment or nothing else is left, gets an
    // empty list. A place with the name of the key that is not its own does not lead to that meaning.
    text.get(..list.range.start)?.match_indices(KEY).find_map(|(at, _)| {
        let colon = at + text.get(at..)?.find(':')? + 1;
        let end = end_of_line(text, colon);
        let is_bare = text.get(colon..end)?.trim().is_empty();
        let whole = is_bare.then(|| with((start_of_line(text, at)..end, String::new()), &without_key));
        whole.flatten().or_else(|| with((colon..colon, " []".to_owned()), &meaning))
    })
}

fn start_of_line(text: &str, at: usize) -> usize {
    text.get(..at).and_then(|before| before.rfind('\n')).map_or(0, |end| end + 1)
}

/// Behind the line break.
fn end_of_line(text: &str, at: usize) -> usize {
    text.get(at..).and_then(|after| after.find('\n')).map_or(text.len(), |more| at + more + 1)
}

/// `text` with these edits, if it has that meaning then. Its end stays as it is.
fn edited(text: &str, edits: Vec<TextEdit>, meaning: &Value) -> Option<String> {
    let mut new = document::replaced(text, edits)?;
    if !text.ends_with('\n') {
        new.truncate(new.trim_end_matches(['\r', '\n']).len());
    }
    read(&new).is_some_and(|found| found.to_json() == *meaning).then_some(new)
}

#[cfg(test)]
mod tests;
