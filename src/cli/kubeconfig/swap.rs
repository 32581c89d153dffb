//! Replaces `exec` stanzas in the text of a kubeconfig. Everything else stays as it is, comments too.

use std::ops::Range;

use anyhow::Context as _;

use super::nodes::{Entries, map, name, yaml};
use credbroker_credential::document::{self, Aliases, Node, Outline, Value};

/// A kubeconfig and where each part of it is in its text.
pub(super) struct Editable<'a> {
    text: &'a str,
    root: Node,
    outline: Outline,
}

/// A stanza in the text.
pub(super) struct StanzaText<'a> {
    /// Its meaning.
    pub(super) exec: Node,
    part: &'a Outline,
    /// Its text.
    pub(super) text: &'a str,
}

impl StanzaText<'_> {
    /// The column of its first character.
    pub(super) fn column(&self) -> usize {
        self.part.column
    }
}

/// What a stanza is replaced by.
pub(super) enum New<'a> {
    /// This value.
    Value(&'a Node),
    /// This text, which has the meaning of the value.
    Text(&'a str, &'a Node),
}

impl<'a> Editable<'a> {
    /// `shown` names the file in errors.
    pub(super) fn of(text: &'a str, shown: &str) -> anyhow::Result<Self> {
        let root = document::yaml(text.as_bytes(), Aliases::Follow).map_err(|error| {
            anyhow::anyhow!("{shown}:{}:{}: {}", error.at.line, error.at.column, error.kind)
        })?;
        let outline = Outline::of(text.as_bytes());
        let outline =
            outline.with_context(|| format!("{shown} cannot be edited; use `credbroker kubeconfig wrap`"))?;
        Ok(Self { text, root, outline })
    }

    /// What the user `of` runs, wherever that is written.
    pub(super) fn exec(&self, of: &str) -> Option<&Node> {
        self.find(of).map(|(_, exec)| exec)
    }

    fn find(&self, of: &str) -> Option<(usize, &Node)> {
        let users = self.root.get("users")?.as_sequence()?;
        let index = users.iter().position(|user| name(user) == Some(of))?;
        let exec = users.get(index)?.get("user")?.get("exec")?;
        (!exec.is_null()).then_some((index, exec))
    }

    /// The stanza of the user `of`, if it is written in the text as a part of that user.
    pub(super) fn stanza(&self, of: &str) -> Option<StanzaText<'_>> {
        let (index, exec) = self.find(of)?;
        let exec = exec.clone();
        let part = self.outline.get("users")?.items().get(index)?.get("user")?.get("exec")?;
        Some(StanzaText { exec, part, text: self.text.get(part.range.clone())? })
    }

    /// The text with the stanzas of these users replaced, and the new text of each stanza. `None`: they cannot be replaced
    /// alone, because anchors or merges connect them to other parts of the file.
    pub(super) fn replaced(&self, new: &[(&str, New<'_>)]) -> Option<(String, Vec<String>)> {
        let mut expected = self.root.clone();
        let (mut edits, mut texts): (Vec<(Range<usize>, String)>, _) = (Vec::new(), Vec::new());
        for (user, new) in new {
            let part = self.stanza(user)?.part;
            let (value, text) = match new {
                New::Text(text, value) => (*value, (*text).to_owned()),
                New::Value(value) => {
                    let block = yaml(value).ok()?;
                    (*value, document::fitted(self.text, part, &block, value))
                }
            };
            set(&mut expected, user, value)?;
            texts.push(text.clone());
            edits.push((part.range.clone(), text));
        }
        let text = document::replaced(self.text, edits)?;
        document::means(&text, &expected).then_some((text, texts))
    }
}

fn set(root: &mut Node, of: &str, exec: &Node) -> Option<()> {
    let Value::Mapping(entries) = &mut root.value else { return None };
    let (_, users) = entries.iter_mut().find(|(key, _)| key.name == "users")?;
    let Value::Sequence(users) = &mut users.value else { return None };
    let user = users.iter_mut().find(|user| name(user) == Some(of))?;
    let Value::Mapping(user) = &mut user.value else { return None };
    let user: &mut Entries = map(user, "user")?;
    let (_, there) = user.iter_mut().find(|(key, _)| key.name == "exec")?;
    there.clone_from(exec);
    Some(())
}

#[cfg(test)]
mod tests;
