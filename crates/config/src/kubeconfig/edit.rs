//! Puts the shim in front of the commands of a kubeconfig, and takes it away again, as edits of the text. Everything else
//! stays as it is: comments, quotes, order, line breaks.
//!
//! What is inserted is a function of the prefix and its place. So the inverse writes the same text once more, and
//! removes it where it finds it.

use std::{
    collections::HashSet,
    fmt::{self, Write as _},
    ops::Range,
    path::Path,
    slice,
};

use credbroker_credential::document::{self, Aliases, Node, Outline, ParseError, Value};
use credbroker_stanza::{Changed, Prefix};

use super::brokered::{ALWAYS, ARGS, COMMAND, IF_AVAILABLE, INFO, MODE, Shim, brokered, prefix, with_prefix};

/// A range of the text, and what replaces it.
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

/// Why the stanza of a user cannot be changed as text. `Display` is one clause.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Refusal {
    /// It is not one text that can be changed alone.
    Connected,
    /// The arguments of its shim cannot be read.
    Arguments,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connected => {
                "YAML anchors, merges or a rare notation connect its stanza to the rest of the file"
            }
            Self::Arguments => "the arguments of its shim cannot be read",
        })
    }
}

/// Puts the shim in front of the commands of the users that `is_wanted` names, if they run a plugin. `dir` is what
/// relative commands are relative to.
///
/// # Errors
///
/// The text is not YAML.
pub fn broker(
    text: &str,
    dir: &Path,
    shim: &Shim,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<Edited, ParseError> {
    let change = |name: &str, exec: &Node, place: Option<Place<'_>>| {
        if !is_wanted(name) || super::is_shim(exec) {
            return Ok(None);
        }
        place.and_then(|place| place.with_prefix(name, exec, dir, shim)).map(Some).ok_or(Refusal::Connected)
    };
    let undone = |text: &str| restore(text, |_| true).map(|edited| edited.text).ok();
    let before = undone(text);
    edited(text, change, |new| undone(new) == before)
}

/// Takes away the shim in front of the commands of the users that `is_wanted` names.
///
/// # Errors
///
/// The text is not YAML.
pub fn restore(text: &str, is_wanted: impl Fn(&str) -> bool) -> Result<Edited, ParseError> {
    let change = |name: &str, exec: &Node, place: Option<Place<'_>>| {
        let found = if is_wanted(name) { brokered(exec) } else { Ok(None) };
        let Some(found) = found.map_err(|_unreadable| Refusal::Arguments)? else { return Ok(None) };
        let place = place.ok_or(Refusal::Connected)?;
        Ok(Some(place.without_prefix(&found.prefix, found.original)))
    };
    edited(text, change, |_| true)
}

/// How the stanza of one user changes.
struct Change {
    /// Edits of parts of the stanza; `None`: it has not the form in which they were written.
    parts: Option<Vec<Edit>>,
    /// The whole stanza, written again.
    whole: Option<Edit>,
    /// What it means then.
    expected: Node,
}

impl Change {
    fn edits(&self) -> impl Iterator<Item = Edit> + '_ {
        self.parts.iter().flatten().chain(self.whole.as_ref().filter(|_| self.parts.is_none())).cloned()
    }
}

/// Changes stanzas, each if the text then means what is expected, and `is_good`.
fn edited(
    text: &str,
    change: impl Fn(&str, &Node, Option<Place<'_>>) -> Result<Option<Change>, Refusal>,
    is_good: impl Fn(&str) -> bool,
) -> Result<Edited, ParseError> {
    let root = document::yaml(text.as_bytes(), Aliases::Follow)?;
    let outline = Outline::of(text.as_bytes());
    let (mut changes, mut refused) = (Vec::new(), Vec::new());
    for (user, name, exec) in stanzas(&root) {
        let place = outline.as_ref().and_then(|outline| Place::of(text, outline, user));
        match change(name, exec, place) {
            Ok(found) => changes.extend(found.map(|change| (user, name, change))),
            Err(refusal) => refused.push((name.to_owned(), refusal)),
        }
    }
    let applied = |changes: &[(usize, &str, Change)]| {
        let edits = changes.iter().flat_map(|(.., change)| change.edits());
        let new = document::replaced(text, edits.collect())?;
        let mut expected = root.clone();
        for (user, _, change) in changes {
            stanza_mut(&mut expected, *user)?.clone_from(&change.expected);
        }
        (document::means(&new, &expected) && is_good(&new)).then_some(new)
    };
    let mut new = applied(&changes);
    if new.is_none() {
        // At least one of them is the reason.
        changes.retain_mut(|this| {
            applied(slice::from_ref(this)).is_some()
                || {
                    this.2.parts = None;
                    this.2.whole.is_some() && applied(slice::from_ref(this)).is_some()
                }
                || {
                    refused.push((this.1.to_owned(), Refusal::Connected));
                    false
                }
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

fn stanza_mut(root: &mut Node, user: usize) -> Option<&mut Node> {
    let Value::Sequence(users) = &mut entry_mut(root, "users")?.value else { return None };
    entry_mut(entry_mut(users.get_mut(user)?, "user")?, "exec")
}

fn entry_mut<'a>(node: &'a mut Node, key: &str) -> Option<&'a mut Node> {
    let Value::Mapping(entries) = &mut node.value else { return None };
    entries.iter_mut().find_map(|(name, node)| (name.name == key).then_some(node))
}

/// Where a stanza is in the text.
struct Place<'a> {
    text: &'a str,
    part: &'a Outline,
}

impl<'a> Place<'a> {
    /// `None`: the stanza of that user is not a separate map in the text.
    fn of(text: &'a str, outline: &'a Outline, user: usize) -> Option<Self> {
        let part = outline.get("users")?.items().get(user)?.get("user")?.get("exec")?;
        part.get(COMMAND).map(|_| Self { text, part })
    }

    fn with_prefix(&self, name: &str, exec: &Node, dir: &Path, shim: &Shim) -> Option<Change> {
        let mut prefix = prefix(name, exec, dir, shim, |key| self.literal(key))?;
        let was = |key: &str| prefix.was(key).filter(|was| *was != Changed::ABSENT);
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
        if !self.has_block_args()
            && !command.starts_with(['"', '\''])
            && command.contains([',', '[', ']', '{', '}', '#', ':'])
        {
            item = json(exec.get(COMMAND)?.as_str()?);
            prefix.changed.push(Changed { key: COMMAND.to_owned(), was: command.to_owned() });
        }
        let own = self.part.get(ARGS).map_or(0, |list| list.items().len());
        let inserted = self.inserted(&prefix, &item, own);
        let mut edits = vec![(
            self.range(COMMAND)?,
            if self.part.is_block { scalar(&shim.command) } else { json(&shim.command) },
        )];
        let head = self.head();
        edits.push((head..head, inserted.head));
        match prefix.was(ARGS) {
            Some(Changed::ABSENT) => {}
            Some(_) => edits.push((self.range(ARGS)?, inserted.args)),
            None => {
                let at = self.first_arg()?;
                edits.push((at..at, inserted.args));
            }
        }
        match prefix.was(INFO) {
            Some(Changed::ABSENT) | None => {}
            Some(was) => edits.push((self.range(INFO)?, true_after(was))),
        }
        if prefix.was(MODE).is_some() {
            edits.push((self.range(MODE)?, self.literal(MODE)?.replace(ALWAYS, IF_AVAILABLE)));
        }
        Some(Change { parts: Some(edits), whole: None, expected: with_prefix(exec, &prefix, shim)? })
    }

    fn without_prefix(&self, prefix: &Prefix, original: Node) -> Change {
        let block = super::yaml(&original).ok();
        let whole = block.map(|block| {
            (self.part.range.clone(), document::fitted(self.text, self.part, &block, &original))
        });
        Change { parts: self.removal(prefix), whole, expected: original }
    }

    /// The inverse of the edits of [`with_prefix`](Self::with_prefix).
    fn removal(&self, prefix: &Prefix) -> Option<Vec<Edit>> {
        let args = self.part.get(ARGS)?;
        let before = prefix.to_args().len();
        let item = self.text.get(args.items().get(before)?.range.clone())?;
        let inserted = self.inserted(prefix, item, args.items().len() - before - 1);
        let mut edits = vec![(self.range(COMMAND)?, prefix.was(COMMAND).unwrap_or(item).to_owned())];
        edits.push((self.found(self.head(), &inserted.head)?, String::new()));
        match prefix.was(ARGS) {
            Some(Changed::ABSENT) => {}
            Some(was) => {
                let start = args.range.start - usize::from(was.is_empty());
                edits.push((self.found(start, &inserted.args)?, was.to_owned()));
            }
            None => edits.push((self.found(self.first_arg()?, &inserted.args)?, String::new())),
        }
        match prefix.was(INFO) {
            Some(Changed::ABSENT) | None => {}
            Some(was) => {
                let start = self.range(INFO)?.start - usize::from(was.is_empty());
                edits.push((self.found(start, &true_after(was))?, was.to_owned()));
            }
        }
        if prefix.was(MODE).is_some() {
            edits.push((self.range(MODE)?, self.literal(MODE)?.replace(IF_AVAILABLE, ALWAYS)));
        }
        Some(edits)
    }

    /// The texts that a prefix adds to the stanza. `command` is the text of the original one, and `own` the number of its
    /// arguments.
    fn inserted(&self, prefix: &Prefix, command: &str, own: usize) -> Inserted {
        let args = prefix.to_args();
        let flow = || {
            let items = args.iter().map(|arg| json(arg)).chain([command.to_owned()]);
            items.collect::<Vec<_>>().join(", ")
        };
        let (quote, end) =
            if self.part.is_block { ("", self.next_line(self.head())) } else { ("\"", ", ".to_owned()) };
        let mut head = String::new();
        if prefix.was(INFO) == Some(Changed::ABSENT) {
            head = format!("{quote}{INFO}{quote}: true{end}");
        }
        let args = match (prefix.was(ARGS), self.part.get(ARGS)) {
            (Some(Changed::ABSENT), _) => {
                head = format!("{head}{quote}{ARGS}{quote}: [{}]{end}", flow());
                String::new()
            }
            (Some(was), _) => format!("{}[{}]", space_after(was), flow()),
            (None, Some(list)) if list.is_block => {
                let line = self.next_line(self.first_arg().unwrap_or_default());
                let items = args.iter().map(|arg| scalar(arg)).chain([command.to_owned()]);
                items.flat_map(|item| ["- ".to_owned(), item, line.clone()]).collect()
            }
            (None, _) => format!("{}{}", flow(), if own == 0 { "" } else { ", " }),
        };
        Inserted { head, args }
    }
}

impl<'a> Place<'a> {
    fn range(&self, key: &str) -> Option<Range<usize>> {
        Some(self.part.get(key)?.range.clone())
    }

    /// The text of the value of `key`.
    fn literal(&self, key: &str) -> Option<&'a str> {
        self.text.get(self.range(key)?)
    }

    /// Where a key can be inserted before the others.
    fn head(&self) -> usize {
        self.part.range.start + usize::from(!self.part.is_block)
    }

    fn has_block_args(&self) -> bool {
        self.part.get(ARGS).is_some_and(|list| list.is_block)
    }

    /// Where the first argument starts, with its dash, or could start.
    fn first_arg(&self) -> Option<usize> {
        let list = self.part.get(ARGS)?;
        if !list.is_block {
            return self.text.get(list.range.start..)?.starts_with('[').then_some(list.range.start + 1);
        }
        let before = self.text.get(..list.items().first()?.range.start)?.trim_end_matches(' ');
        let indentation = before.strip_suffix('-')?;
        indentation.trim_end_matches(' ').ends_with('\n').then_some(indentation.len())
    }

    /// The text from the end of a line to `at`, which only spaces precede on its own line.
    fn next_line(&self, at: usize) -> String {
        let before = self.text.get(..at).unwrap_or_default();
        let line = before.rfind('\n').map_or(0, |end| end + 1);
        let line_break = if self.text.contains("\r\n") { "\r\n" } else { "\n" };
        format!("{line_break}{}", " ".repeat(at - line))
    }

    /// The range of `text`, if it is there.
    fn found(&self, start: usize, text: &str) -> Option<Range<usize>> {
        self.text.get(start..)?.starts_with(text).then(|| start..start + text.len())
    }
}

struct Inserted {
    /// Keys before the others.
    head: String,
    /// Before the arguments, or instead of an empty value.
    args: String,
}

/// A value needs a space after its colon.
fn space_after(was: &str) -> &'static str {
    if was.is_empty() { " " } else { "" }
}

fn true_after(was: &str) -> String {
    format!("{}true", space_after(was))
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
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' => {
                let _infallible = write!(quoted, "\\u{:04x}", u32::from(c));
            }
            _ => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests;
