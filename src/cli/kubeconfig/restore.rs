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
    swap::{Editable, New, Stanza},
};
use crate::{
    cli::files::Locked,
    config::kubeconfig::is_shim,
    document::Node,
    plugin::{Definition, Environment},
};

/// Undo `credbroker kubeconfig inject`
///
/// Puts the original `exec` stanzas back into the kubeconfigs. A file that has not changed since is
/// afterwards what it was, byte for byte. In a file that has changed, only the stanzas are replaced,
/// and all changes stay. A user that has another stanza now, or is gone, stays as it is.
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
) -> anyhow::Result<u8> {
    let own = own_directory(environment)?;
    let config = BrokerConfig::find(args.config.as_deref(), environment)?;
    let only = args.kubeconfig.as_deref().map(fs::canonicalize).transpose();
    let only = only.context("the kubeconfig of --kubeconfig cannot be found")?;
    let mut restored = false;
    for path in Moved::all(&own)? {
        let Some(moved) = Moved::read(&path)? else { continue };
        if only.as_ref().is_some_and(|only| fs::canonicalize(&moved.origin).ok().as_ref() != Some(only)) {
            continue;
        }
        restore(&moved, out).with_context(|| {
            format!(
                "{} was not restored; its original definitions are in {}",
                moved.origin.display(),
                path.display()
            )
        })?;
        // From here on the broker reads the definitions in their own file.
        config.remove(&path, environment)?;
        fs::remove_file(&path).with_context(|| format!("{} cannot be removed", path.display()))?;
        restored = true;
    }
    if !restored {
        writeln!(out, "Nothing to restore: `credbroker kubeconfig inject` has not changed a kubeconfig.")?;
    }
    Ok(0)
}

fn restore(moved: &Moved, out: &mut dyn Write) -> anyhow::Result<()> {
    let shown = moved.origin.display().to_string();
    let kubeconfig = Locked::take(&moved.origin)?;
    let bytes = kubeconfig.read()?.with_context(|| format!("{shown} not found"))?;
    let text = String::from_utf8(bytes).ok().with_context(|| format!("{shown} is not UTF-8"))?;
    let editable = Editable::of(&text, &shown)?;
    // The command is as it was written there, and not the absolute one.
    let originals: Vec<_> = moved.users.iter().map(|user| user.meaning(&user.original)).collect();
    let (mut edits, mut names, mut left) = (Vec::new(), Vec::new(), Vec::new());
    for (user, original) in moved.users.iter().zip(&originals) {
        let original = original.as_ref().unwrap_or(&user.exec);
        match editable.stanza(&user.name) {
            Some(stanza) if stanza.text == user.original => {}
            Some(stanza) if stanza.text == user.written => {
                edits.push((user.name.as_str(), New::Text(&user.original, original)));
                names.push(user.name.as_str());
            }
            Some(stanza) if is_ours(&stanza, user, &moved.origin) => {
                edits.push((user.name.as_str(), New::Value(original)));
                names.push(user.name.as_str());
            }
            _ => left.push(user.name.as_str()),
        }
    }
    if !edits.is_empty() {
        let replaced = editable.replaced(&edits);
        let (text, _) = replaced.with_context(|| {
            format!("{shown} cannot be changed in place, because YAML anchors or merges connect its users; put the stanzas back by hand")
        })?;
        kubeconfig.rewrite(&text)?;
        writeln!(out, "{shown}: restored {}", names.join(", "))?;
    }
    if !left.is_empty() {
        writeln!(
            out,
            "{shown}: left as they are, because they were changed or removed: {}",
            left.join(", ")
        )?;
    }
    Ok(())
}

/// Whether a stanza runs the shim with the definition that was moved: kubectl has written it in another form since.
fn is_ours(stanza: &Stanza<'_>, user: &MovedUser, origin: &Path) -> bool {
    let digest = Definition::new(origin.to_owned(), &user.name);
    let args = stanza.exec.get("args").and_then(Node::as_sequence).unwrap_or_default();
    is_shim(&stanza.exec) && args.iter().any(|arg| arg.as_str() == Some(digest.digest()))
}
