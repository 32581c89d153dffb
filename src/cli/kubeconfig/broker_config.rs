//! The list `kubeconfigs` in the configuration of the broker, edited as text.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::merge::{entry, string};
use crate::{
    cli::files::{self, Locked, is_same},
    config::{self},
    document::{self, Aliases, Node, Outline, Position, Value},
    plugin::Environment,
};

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

    /// Names all of `kubeconfigs` in it. Returns whether it changed. A new configuration is only written if it has no
    /// problem.
    pub(in crate::cli) fn add(
        &self,
        kubeconfigs: &[PathBuf],
        environment: &Environment,
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
        if self.exists {
            file.rewrite(&text)?;
        } else {
            file.write_private(&text)?;
        }
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
    fn named(&self, environment: &Environment) -> anyhow::Result<Vec<PathBuf>> {
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

fn new(kubeconfigs: &[PathBuf]) -> String {
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
fn added(text: &str, paths: &[PathBuf]) -> Option<String> {
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
fn removed(text: &str, is_it: impl Fn(&str) -> bool) -> Option<String> {
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
