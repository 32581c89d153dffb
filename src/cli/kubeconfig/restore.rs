//! `credbroker kubeconfig restore`.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

use super::{
    broker_config::BrokerConfig,
    inject::own_directory,
    moved::{Moved, MovedUser},
    swap::{Editable, New, StanzaText},
};
use crate::cli::files::{Locked, is_same};
use credbroker_config::kubeconfig::is_shim;
use credbroker_credential::document::Node;
use credbroker_plugin::{Definition, Environment};

/// Undo `credbroker kubeconfig inject`
///
/// Puts the original `exec` stanzas back into the kubeconfigs. A file that has not changed since is
/// restored byte for byte. In a file that has changed, only the stanzas are replaced,
/// and all changes stay. A user that has another stanza now stays as it is, and so does its original
/// definition, in a file that the command names.
///
///   credbroker kubeconfig restore
///   credbroker kubeconfig restore --kubeconfig ~/.kube/config
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct RestoreArgs {
    /// Restore this file only [default: every file that was changed]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Configuration of the broker [default: the file that `credbroker serve` uses]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

pub(in crate::cli) fn run(
    args: &RestoreArgs,
    environment: &Environment,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> anyhow::Result<u8> {
    let own = own_directory(environment)?;
    let config = BrokerConfig::find(args.config.as_deref(), environment)?;
    let only = args.kubeconfig.as_deref().map(fs::canonicalize).transpose();
    let only = only.context("the kubeconfig of --kubeconfig cannot be found")?;
    let (mut found, mut code) = (false, 0);
    for file in Moved::all(&own)? {
        match restore(&file, only.as_deref(), &config, environment, out) {
            Ok(is_it) => found |= is_it,
            Err(error) => {
                // The others are restored nevertheless.
                (found, code) = (true, 1);
                writeln!(err, "credbroker: {error:#}")?;
            }
        }
    }
    if !found {
        writeln!(out, "Nothing to restore: `credbroker kubeconfig inject` has not changed a kubeconfig.")?;
    }
    Ok(code)
}

/// Restores the kubeconfig whose original definitions are in `file`, and removes from `file` those that are no longer
/// needed. Returns `false` if the kubeconfig is not `only`.
fn restore(
    file: &Path,
    only: Option<&Path>,
    config: &BrokerConfig,
    environment: &Environment,
    out: &mut dyn Write,
) -> anyhow::Result<bool> {
    let Some(mut moved) = Moved::read(file)? else { return Ok(false) };
    if only.is_some_and(|only| fs::canonicalize(&moved.origin).ok().as_deref() != Some(only)) {
        return Ok(false);
    }
    let left = put_back(&moved, out).with_context(|| {
        let (origin, file) = (moved.origin.display(), file.display());
        format!("{origin} was not restored; its original definitions are in {file}")
    })?;
    moved.users.retain(|user| left.iter().any(|(name, _)| *name == user.name));
    // The broker reads all other definitions in their own file now.
    if !left.iter().any(|(_, runs_shim)| *runs_shim) {
        config.remove(file, environment)?;
    }
    if moved.users.is_empty() {
        fs::remove_file(file).with_context(|| format!("{} cannot be removed", file.display()))?;
        return Ok(true);
    }
    moved.write(file)?;
    let names = left.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
    let (origin, file) = (moved.origin.display(), file.display());
    writeln!(
        out,
        "{origin}: left as they are, because they were changed: {names}; the original definitions stay in {file}"
    )?;
    Ok(true)
}

/// Replaces the stanzas in the kubeconfig. Returns the names of the users whose stanza was left, because it is another one
/// now, and whether it runs the shim.
fn put_back(moved: &Moved, out: &mut dyn Write) -> anyhow::Result<Vec<(String, bool)>> {
    // The name that kubectl locks, as long as it leads there.
    let path = if is_same(&moved.named, &moved.origin) { &moved.named } else { &moved.origin };
    let shown = path.display().to_string();
    let kubeconfig = Locked::take(path)?;
    let bytes = kubeconfig.read()?.with_context(|| format!("{shown} not found"))?;
    let text = String::from_utf8(bytes).ok().with_context(|| format!("{shown} is not UTF-8"))?;
    let editable = Editable::of(&text, &shown)?;
    // The command is as it was written there, and not the absolute one.
    let originals: Vec<_> = moved.users.iter().map(|user| user.meaning(&user.original)).collect();
    let (mut edits, mut gone, mut left) = (Vec::new(), Vec::new(), Vec::new());
    for (user, original) in moved.users.iter().zip(&originals) {
        let original = original.as_ref().unwrap_or(&user.exec);
        let name = user.name.as_str();
        match (editable.stanza(name), editable.exec(name)) {
            (Some(stanza), _) if stanza.text == user.original => {}
            (Some(stanza), _) if stanza.text == user.written => {
                edits.push((name, New::Text(&user.original, original)));
            }
            (Some(stanza), _) if is_ours(&stanza, user, &moved.origin) => {
                edits.push((name, New::Value(original)));
            }
            (_, Some(exec)) => left.push((name.to_owned(), is_shim(exec))),
            (_, None) => gone.push(name),
        }
    }
    if !edits.is_empty() {
        let replaced = editable.replaced(&edits);
        let (text, _) = replaced.with_context(|| {
            format!("{shown} cannot be changed in place, because YAML anchors or merges connect its users; put the stanzas back by hand")
        })?;
        kubeconfig.rewrite(&text)?;
        let names: Vec<_> = edits.iter().map(|(name, _)| *name).collect();
        writeln!(out, "{shown}: restored {}", names.join(", "))?;
    }
    if !gone.is_empty() {
        writeln!(out, "{shown}: not restored, because they no longer run a plugin: {}", gone.join(", "))?;
    }
    Ok(left)
}

/// Whether a stanza runs the shim with the definition that was moved: kubectl has written it in another form since.
fn is_ours(stanza: &StanzaText<'_>, user: &MovedUser, origin: &Path) -> bool {
    let digest = Definition::new(origin.to_owned(), &user.name);
    let args = stanza.exec.get("args").and_then(Node::as_sequence).unwrap_or_default();
    is_shim(&stanza.exec) && args.iter().any(|arg| arg.as_str() == Some(digest.digest()))
}
