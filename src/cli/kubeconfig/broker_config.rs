//! The list `kubeconfigs` in the configuration of the broker.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::config_text::{added, new, removed};
use crate::cli::files::{self, Locked, is_same};
use credbroker_config as config;
use credbroker_credential::document::{self, Aliases, Node};
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
