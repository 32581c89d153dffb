//! The users of a file whose stanzas are exchanged, and their exchange.

use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

use super::{
    moved::{Moved, MovedUser},
    nodes::{Entries, absolute},
    output::{summarise, warn},
    shim::Shim,
    swap::{Editable, New},
    wrap::replaced_exec,
};
use crate::cli::files::Locked;
use credbroker_config as config;
use credbroker_config::kubeconfig::{Kubeconfig, is_shim};
use credbroker_credential::{
    document::{Node, Value},
    text::listed,
};
use credbroker_plugin::{Definition, Environment};

/// Which users of one file are changed.
#[derive(Debug)]
pub(super) struct FilePlan {
    /// The path that identifies the file.
    pub(super) identity: PathBuf,
    pub(super) users: Vec<(String, Definition)>,
}

/// The users to change, by file.
pub(super) fn plans(
    kubeconfig: &Kubeconfig,
    contexts: &[String],
    environment: &Environment,
    err: &mut dyn Write,
) -> anyhow::Result<BTreeMap<PathBuf, FilePlan>> {
    let definitions = config::definitions(kubeconfig, environment);
    let wanted = users_of(kubeconfig, contexts)?;
    let is_wanted = |name: &str| wanted.as_ref().is_none_or(|wanted| wanted.iter().any(|user| user == name));
    warn(&definitions, err)?;
    let users = kubeconfig.users();
    let mut plans: BTreeMap<PathBuf, FilePlan> = BTreeMap::new();
    for (name, definition) in definitions.served.into_iter().filter(|(name, _)| is_wanted(name)) {
        let Some(user) = users.iter().find(|user| user.name == name) else { continue };
        let identity = user.identity.to_owned();
        let plan = plans.entry(user.file.to_owned()).or_insert(FilePlan { identity, users: Vec::new() });
        plan.users.push((name, definition));
    }
    Ok(plans)
}

/// The names of the users of `contexts`; `None`: of all contexts.
fn users_of(kubeconfig: &Kubeconfig, contexts: &[String]) -> anyhow::Result<Option<Vec<String>>> {
    if contexts.is_empty() {
        return Ok(None);
    }
    let all = kubeconfig.contexts();
    let user = |wanted: &String| {
        let context = all.iter().find(|context| context.name == wanted).with_context(|| {
            let names: Vec<_> = all.iter().map(|context| context.name.to_owned()).collect();
            format!("context `{}` not found; the contexts are: {}", wanted.escape_debug(), listed(&names))
        })?;
        let user = context.body.get("user").and_then(Node::as_str);
        Ok(user.with_context(|| format!("context `{}` has no user", wanted.escape_debug()))?.to_owned())
    };
    contexts.iter().map(user).collect::<anyhow::Result<_>>().map(Some)
}

fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))
}

/// Writes the stanzas of `plan` to the file `moved`, with the texts that will replace them.
pub(super) fn prepare(path: &Path, plan: &FilePlan, moved: &Path, shim: &Shim) -> anyhow::Result<()> {
    let shown = path.display().to_string();
    let text = read(path)?;
    let editable = Editable::of(&text, &shown)?;
    let connected = || {
        format!(
            "{shown} cannot be changed in place, because YAML anchors or merges connect its users; use `credbroker kubeconfig wrap`"
        )
    };
    let users = Moved::read(moved)?.map(|earlier| earlier.users).unwrap_or_default();
    let mut file = Moved { origin: plan.identity.clone(), named: path.to_owned(), users };
    let mut new = Vec::new();
    for (name, definition) in &plan.users {
        let stanza = editable.stanza(name).with_context(connected)?;
        let shim = replaced_exec(shim, name, definition, &stanza.exec);
        new.push((name, stanza, shim));
    }
    let edits: Vec<_> = new.iter().map(|(name, _, shim)| (name.as_str(), New::Value(shim))).collect();
    let (_, written) = editable.replaced(&edits).with_context(connected)?;
    for ((name, stanza, _), written) in new.iter().zip(written) {
        let exec = located(&stanza.exec, path);
        let (original, column) = (stanza.text.to_owned(), stanza.column());
        file.set(MovedUser { name: (*name).clone(), exec, original, written, column });
    }
    file.write(moved)
}

/// The stanza with an absolute command, because relative ones are relative to the kubeconfig.
fn located(exec: &Node, path: &Path) -> Node {
    let mut exec = exec.clone();
    if let Value::Mapping(entries) = &mut exec.value {
        let entries: &mut Entries = entries;
        absolute(entries, "command", path.parent().unwrap_or(Path::new("/")), true);
    }
    exec
}

/// Replaces the stanzas in the kubeconfig, if they are still the ones that were moved.
pub(super) fn swap(path: &Path, plan: &FilePlan, moved: &Path, out: &mut dyn Write) -> anyhow::Result<()> {
    let shown = path.display().to_string();
    let file = Moved::read(moved)?
        .with_context(|| format!("{} is gone; run this command again", moved.display()))?;
    let kubeconfig = Locked::take(path)?;
    let text = String::from_utf8(kubeconfig.read()?.unwrap_or_default())?;
    let editable = Editable::of(&text, &shown)?;
    let changed = || format!("{shown} was changed meanwhile; run this command again");
    let mut new = Vec::new();
    for (name, _) in &plan.users {
        let user = file.users.iter().find(|user| user.name == *name).with_context(changed)?;
        let stanza = editable.stanza(name).filter(|stanza| stanza.text == user.original);
        anyhow::ensure!(stanza.is_some_and(|stanza| !is_shim(&stanza.exec)), changed());
        new.push((name.as_str(), user));
    }
    let values = new.iter().map(|(_, user)| user.meaning(&user.written)).collect::<Option<Vec<_>>>();
    let values = values.with_context(changed)?;
    let edits = new.iter().zip(&values).map(|((name, user), value)| (*name, New::Text(&user.written, value)));
    let (text, _) = editable.replaced(&edits.collect::<Vec<_>>()).with_context(changed)?;
    kubeconfig.rewrite(&text)?;
    if let Some(real) = kubeconfig.target_of_link() {
        writeln!(
            out,
            "{shown} is a symbolic link; the file that it leads to was changed: {}",
            real.display()
        )?;
    }
    summarise(path, plan.users.iter().map(|(name, _)| name.as_str()), out)?;
    Ok(())
}
