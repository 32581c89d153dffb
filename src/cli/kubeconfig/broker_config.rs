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
    pub(in crate::cli) fn named(&self) -> anyhow::Result<Vec<PathBuf>> {
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
    let mut list = root.get(KEY).and_then(|list| list.to_json().as_array().cloned()).unwrap_or_default();
    list.extend(paths.iter().map(|path| json!(path.to_string_lossy())));
    edited(text, (at..at, new), &root, Some(list))
}

/// `text` without the items of `kubeconfigs` that `is_it` selects, each with its line; `None`: it is not possible. The line
/// of the key goes with the last one, because a key without items would be null.
pub(super) fn removed(text: &str, is_it: impl Fn(&str) -> bool) -> Option<String> {
    let root = read(text)?;
    let (key, list) = root.as_mapping()?.iter().find(|(key, _)| key.name == KEY)?;
    let is_gone = |part: &&Node| part.as_str().is_some_and(&is_it);
    let (gone, kept): (Vec<_>, Vec<_>) = list.as_sequence()?.iter().partition(is_gone);
    let meaning = || Some(kept.iter().map(|part| part.to_json()).collect());
    if !list.is_block(text) {
        let texts = kept.iter().map(|part| text.get(part.range.clone())).collect::<Option<Vec<_>>>()?;
        return edited(text, (list.range.clone(), format!("[{}]", texts.join(", "))), &root, meaning());
    }
    let mut lines: Vec<_> = gone.iter().map(|part| part.at.line).collect();
    if kept.is_empty() {
        lines.push(key.at.line);
    }
    let rest = text.split_inclusive('\n').zip(1..).filter(|(_, line)| !lines.contains(line));
    let list = meaning().filter(|_| !kept.is_empty());
    edited(text, (0..text.len(), rest.map(|(line, _)| line).collect()), &root, list)
}

/// `text` with this range replaced, if it then means what `root` does, with this list. Its end stays as it is.
fn edited(text: &str, edit: (Range<usize>, String), root: &Node, list: Option<Vec<Value>>) -> Option<String> {
    let Value::Object(mut meaning) = root.to_json() else { return None };
    meaning.remove(KEY);
    meaning.extend(list.map(|list| (KEY.to_owned(), list.into())));
    let mut new = document::replaced(text, vec![edit])?;
    if !text.ends_with('\n') {
        new.truncate(new.trim_end_matches(['\r', '\n']).len());
    }
    read(&new).is_some_and(|found| found.to_json() == Value::Object(meaning)).then_some(new)
}

#[cfg(test)]
mod tests;
