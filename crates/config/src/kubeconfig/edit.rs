//! Puts the shim in front of the commands of a kubeconfig, and takes it away again, as edits of the text. Everything else
//! stays as it is: comments, quotes, order, line breaks.
//!
//! What is inserted is a function of the prefix and its place. So the inverse writes the same text once more, and
//! removes it where it finds it.

use std::{collections::HashSet, ops::Range, path::Path, slice};

use credbroker_credential::{
    document::{self, Aliases, Node, ParseError},
    text::escape_json,
};
use credbroker_stanza::Prefix;

use super::{
    brokered::{
        ALWAYS, ARGS, COMMAND, IF_AVAILABLE, INFO, MODE, Shim, brokered, is_shim, prefix, with_prefix,
    },
    files::yaml,
};

type Edit = (Range<usize>, String);

/// A kubeconfig after an edit.
#[derive(Debug)]
pub struct Edited {
    /// Its text.
    pub text: String,
    /// Names of the users that were changed.
    pub changed: Vec<String>,
    /// Users that cannot be changed, and why.
    pub refused: Vec<(String, Refusal)>,
}

/// Why the stanza of a user cannot be changed as text. `Display` says what to do, too.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// It is not one text that can be changed alone.
    #[error(
        "YAML anchors, merges or a rare notation connect its stanza to the rest of the file; write it out, or use `credbroker kubeconfig wrap`"
    )]
    Connected,
    /// The arguments of its shim cannot be read.
    #[error("the arguments of its shim cannot be read; correct them")]
    Arguments,
}

/// Puts the shim in front of the commands of the users that `is_wanted` names, if they run a plugin. `dir` is what
/// relative commands are relative to.
pub fn broker(
    text: &str,
    dir: &Path,
    shim: &Shim,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<Edited, ParseError> {
    // An earlier shim is replaced.
    let plain = restore(text, &is_wanted)?;
    let change = |name: &str, exec: &Node| {
        if !is_wanted(name) || is_shim(exec) {
            return Ok(None);
        }
        let place = Place::of(&plain.text, exec);
        place.and_then(|place| place.with_prefix(name, dir, shim)).map(Some).ok_or(Refusal::Connected)
    };
    let undone = |text: &str| restore(text, |_| true).map(|edited| edited.text).ok();
    let before = undone(&plain.text);
    let mut new = edited(&plain.text, change, |new| undone(new) == before)?;
    if new.text == text {
        new.changed.clear();
    }
    new.refused.extend(plain.refused);
    Ok(new)
}

/// Takes away the shim in front of the commands of the users that `is_wanted` names.
pub fn restore(text: &str, is_wanted: impl Fn(&str) -> bool) -> Result<Edited, ParseError> {
    let change = |name: &str, exec: &Node| {
        let found = if is_wanted(name) { brokered(exec) } else { Ok(None) };
        let Some(found) = found.map_err(|_unreadable| Refusal::Arguments)? else { return Ok(None) };
        let place = Place::of(text, exec).ok_or(Refusal::Connected)?;
        Ok(Some(place.without_prefix(&found.prefix, found.original)))
    };
    edited(text, change, |_| true)
}

struct Change {
    /// Edits that do it, the ones that keep most of the text first.
    ways: Vec<Vec<Edit>>,
    /// What the stanza means then.
    expected: Node,
}

/// Changes stanzas, each if the text then means what is expected, and `is_good`.
fn edited(
    text: &str,
    change: impl Fn(&str, &Node) -> Result<Option<Change>, Refusal>,
    is_good: impl Fn(&str) -> bool,
) -> Result<Edited, ParseError> {
    let root = document::yaml(text.as_bytes(), Aliases::Follow)?;
    let (mut changes, mut refused) = (Vec::new(), Vec::new());
    for (user, name, exec) in stanzas(&root) {
        match change(name, exec) {
            Ok(found) => changes.extend(found.map(|change| (user, name, change))),
            Err(refusal) => refused.push((name.to_owned(), refusal)),
        }
    }
    let applied = |changes: &[(usize, &str, Change)]| {
        let edits = changes.iter().flat_map(|(.., change)| change.ways.first().into_iter().flatten());
        let new = document::replaced(text, edits.cloned().collect())?;
        let mut expected = root.to_json();
        for (user, _, change) in changes {
            *expected.pointer_mut(&format!("/users/{user}/user/exec"))? = change.expected.to_json();
        }
        let is_expected =
            document::yaml(new.as_bytes(), Aliases::Follow).is_ok_and(|node| node.to_json() == expected);
        (is_expected && is_good(&new)).then_some(new)
    };
    let mut new = applied(&changes);
    if new.is_none() {
        // At least one of them is the reason.
        changes.retain_mut(|this| {
            while !this.2.ways.is_empty() && applied(slice::from_ref(this)).is_none() {
                this.2.ways.remove(0);
            }
            if this.2.ways.is_empty() {
                refused.push((this.1.to_owned(), Refusal::Connected));
            }
            !this.2.ways.is_empty()
        });
        new = applied(&changes);
    }
    let names = changes.into_iter().map(|(_, name, _)| name.to_owned());
    let Some(text) = new else {
        refused.extend(names.map(|name| (name, Refusal::Connected)));
        return Ok(Edited { text: text.to_owned(), changed: Vec::new(), refused });
    };
    Ok(Edited { text, changed: names.collect(), refused })
}

/// The stanzas of the users: index, name and stanza. Of users with the same name the first counts.
fn stanzas(root: &Node) -> impl Iterator<Item = (usize, &str, &Node)> {
    let users = root.get("users").and_then(Node::as_sequence).unwrap_or_default();
    let mut seen = HashSet::new();
    users.iter().enumerate().filter_map(move |(index, user)| {
        let name = user.get("name")?.as_str()?;
        let is_first = seen.insert(name);
        Some((index, name, user.get("user")?.get("exec")?)).filter(|(.., exec)| is_first && !exec.is_null())
    })
}

struct Place<'a> {
    text: &'a str,
    exec: &'a Node,
}

impl<'a> Place<'a> {
    /// `None`: the stanza is not a separate map in the text.
    fn of(text: &'a str, exec: &'a Node) -> Option<Self> {
        let place = Self { text, exec };
        place.part(COMMAND).map(|_| place)
    }

    fn with_prefix(&self, name: &str, dir: &Path, shim: &Shim) -> Option<Change> {
        let mut prefix = prefix(name, self.exec, dir, shim, |key| self.literal(key))?;
        let was = |key: &str| prefix.was(key).filter(|was| *was != Prefix::ABSENT);
        let is_plain =
            |was: &str| matches!(was, "" | "~" | "null" | "Null" | "NULL" | "false" | "False" | "FALSE");
        if [ARGS, INFO].into_iter().filter_map(was).any(|was| !is_plain(was)) {
            return None;
        }
        let command = self.literal(COMMAND)?;
        // A block scalar, an alias, or more than one line.
        if command.is_empty() || command.starts_with(['|', '>', '*']) || command.contains('\n') {
            return None;
        }
        let mut item = command.to_owned();
        if !self.block_args()
            && !command.starts_with(['"', '\''])
            && command.contains([',', '[', ']', '{', '}', '#', ':'])
        {
            item = json(self.exec.get(COMMAND)?.as_str()?);
            prefix.changed.push((COMMAND.to_owned(), command.to_owned()));
        }
        let own = self.part(ARGS).and_then(Node::as_sequence).map_or(0, <[_]>::len);
        let command = if self.is_block() { scalar(&shim.command) } else { json(&shim.command) };
        let edits = self.edits(&prefix, &item, own, command, false)?;
        Some(Change { ways: vec![edits], expected: with_prefix(self.exec, &prefix, shim)? })
    }

    /// The inverse of [`with_prefix`](Self::with_prefix) if the stanza still has its form, else the whole stanza, new.
    fn without_prefix(&self, prefix: &Prefix, original: Node) -> Change {
        let part_by_part = || {
            let (args, before) = (self.part(ARGS)?.as_sequence()?, prefix.to_args().len());
            let item = self.text.get(args.get(before)?.range.clone())?;
            let command = prefix.was(COMMAND).unwrap_or(item).to_owned();
            self.edits(prefix, item, args.len() - before - 1, command, true)
        };
        let whole = || {
            let new = match yaml(&original).ok()? {
                block if self.is_block() => {
                    let indentation = " ".repeat(self.exec.indentation());
                    block.trim_end().replace('\n', &format!("{}{indentation}", self.line_break()))
                }
                _ => original.to_json().to_string(),
            };
            Some(vec![(self.exec.range.clone(), new)])
        };
        Change { ways: part_by_part().into_iter().chain(whole()).collect(), expected: original }
    }

    /// What puts `prefix` into the stanza, or takes it away if it `is_there`. `item` is the text of the original command,
    /// `own` the number of its arguments, and `command` is the new text of the key.
    fn edits(
        &self,
        prefix: &Prefix,
        item: &str,
        own: usize,
        command: String,
        is_there: bool,
    ) -> Option<Vec<Edit>> {
        let (head, args) = self.inserted(prefix, item, own);
        let edit = |at: usize, without: &str, with: &str| {
            let (old, new) = if is_there { (with, without) } else { (without, with) };
            let is_found = self.text.get(at..)?.starts_with(old);
            is_found.then(|| (at..at + old.len(), new.to_owned()))
        };
        // An empty value is behind its colon, and a space was put in front of a new one.
        let value = |key: &str, was: &str| {
            Some(self.part(key)?.range.start - usize::from(is_there && was.is_empty()))
        };
        let mut edits = vec![(self.part(COMMAND)?.range.clone(), command)];
        edits.push(edit(self.head(), "", &head)?);
        match prefix.was(ARGS) {
            Some(Prefix::ABSENT) => {}
            Some(was) => edits.push(edit(value(ARGS, was)?, was, &args)?),
            None => edits.push(edit(self.first_arg()?, "", &args)?),
        }
        if let Some(was) = prefix.was(INFO).filter(|was| *was != Prefix::ABSENT) {
            edits.push(edit(value(INFO, was)?, was, &format!("{}true", space_after(was)))?);
        }
        if prefix.was(MODE).is_some() {
            let mode = self.part(MODE)?.range.clone();
            let (old, new) = if is_there { (IF_AVAILABLE, ALWAYS) } else { (ALWAYS, IF_AVAILABLE) };
            let text = self.text.get(mode.clone())?.replace(old, new);
            edits.push((mode, text));
        }
        Some(edits)
    }

    /// The texts that a prefix adds to the stanza: keys before the others, and what comes before the arguments, or instead of
    /// an empty value. `command` is the text of the original one, and `own` the number of its arguments.
    fn inserted(&self, prefix: &Prefix, command: &str, own: usize) -> (String, String) {
        let args = prefix.to_args();
        let flow = || {
            let items = args.iter().map(|arg| json(arg)).chain([command.to_owned()]);
            items.collect::<Vec<_>>().join(", ")
        };
        let (quote, end) =
            if self.is_block() { ("", self.next_line(self.head())) } else { ("\"", ", ".to_owned()) };
        let mut head = String::new();
        if prefix.was(INFO) == Some(Prefix::ABSENT) {
            head = format!("{quote}{INFO}{quote}: true{end}");
        }
        let args = match prefix.was(ARGS) {
            Some(Prefix::ABSENT) => {
                head = format!("{head}{quote}{ARGS}{quote}: [{}]{end}", flow());
                String::new()
            }
            Some(was) => format!("{}[{}]", space_after(was), flow()),
            None if self.block_args() => {
                let line = self.next_line(self.first_arg().unwrap_or_default());
                let items = args.iter().map(|arg| scalar(arg)).chain([command.to_owned()]);
                items.flat_map(|item| ["- ".to_owned(), item, line.clone()]).collect()
            }
            None => format!("{}{}", flow(), if own == 0 { "" } else { ", " }),
        };
        (head, args)
    }

    /// The value of `key`, if it is written in the stanza and not brought by an alias or a merge.
    fn part(&self, key: &str) -> Option<&'a Node> {
        let whole = &self.exec.range;
        self.exec.get(key).filter(|part| whole.start <= part.range.start && part.range.end <= whole.end)
    }

    fn literal(&self, key: &str) -> Option<&'a str> {
        self.text.get(self.part(key)?.range.clone())
    }

    fn is_block(&self) -> bool {
        self.exec.is_block(self.text)
    }

    fn block_args(&self) -> bool {
        self.part(ARGS).is_some_and(|list| list.is_block(self.text))
    }

    /// Where a key can be inserted before the others.
    fn head(&self) -> usize {
        self.exec.range.start + usize::from(!self.is_block())
    }

    /// Where the first argument starts, with its dash, or could start.
    fn first_arg(&self) -> Option<usize> {
        let list = self.part(ARGS)?;
        if !list.is_block(self.text) {
            return self.text.get(list.range.start..)?.starts_with('[').then_some(list.range.start + 1);
        }
        let before = self.text.get(..list.as_sequence()?.first()?.range.start)?.trim_end_matches(' ');
        let indentation = before.strip_suffix('-')?;
        indentation.trim_end_matches(' ').ends_with('\n').then_some(indentation.len())
    }

    /// The text from the end of a line to `at`, which only spaces precede on its own line.
    fn next_line(&self, at: usize) -> String {
        let before = self.text.get(..at).unwrap_or_default();
        let line = before.rfind('\n').map_or(0, |end| end + 1);
        format!("{}{}", self.line_break(), " ".repeat(at - line))
    }

    fn line_break(&self) -> &'static str {
        if self.text.contains("\r\n") { "\r\n" } else { "\n" }
    }
}

/// A value needs a space after its colon.
fn space_after(was: &str) -> &'static str {
    if was.is_empty() { " " } else { "" }
}

/// A text in block style: plain if YAML 1.1 and 1.2 read it as that text.
fn scalar(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._=-".contains(c);
    let starts_plain =
        text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/') || text.starts_with("--");
    let is_word = |word: &&str| text.eq_ignore_ascii_case(word);
    let words = ["true", "false", "yes", "no", "on", "off", "null", "y", "n"];
    if starts_plain && text.chars().all(is_plain) && !words.iter().any(is_word) && !text.starts_with("---") {
        return text.to_owned();
    }
    json(text)
}

/// A text in double quotes, which YAML and JSON read alike.
fn json(text: &str) -> String {
    escape_json(&serde_json::Value::from(text).to_string())
}

#[cfg(test)]
mod tests;
