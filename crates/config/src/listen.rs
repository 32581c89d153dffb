//! The section `listen`: the sockets that the broker listens on.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{
    fields::Fields,
    file::expand,
    problem::Report,
    reader::Cursor,
    table::{self, listen},
};
use credbroker_plugin::Environment;

/// Name of a listener without a `name`.
const DEFAULT: &str = "default";

/// A socket that the broker listens on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Listen {
    /// `listen.name`: how access rules call it.
    pub name: String,
    /// `listen.socket`; `None`: the default for the broker's user.
    pub socket: Option<PathBuf>,
    /// Permission bits of the socket.
    pub mode: u32,
    /// Group of the socket; `None`: the group of the broker's process.
    pub group: Option<String>,
    /// Whether other users can write to the socket's directory, or to the one above it.
    pub shared_directory: bool,
}

impl Default for Listen {
    fn default() -> Self {
        let (mode, shared_directory) = (listen::MODE.absent.0, listen::SHARED_DIRECTORY.absent.0);
        Self { name: DEFAULT.to_owned(), socket: None, mode, group: None, shared_directory }
    }
}

/// All listeners, in their order; at least one.
pub(super) fn listeners(fields: &Fields<'_>, env: &Environment, report: &mut Report) -> Vec<Listen> {
    let Some(section) = fields.at(&table::root::LISTEN) else { return vec![Listen::default()] };
    let is_list = section.node().as_sequence().is_some();
    let items = if is_list { section.items(report) } else { vec![section.clone()] };
    let mut listeners: Vec<Listen> = Vec::new();
    for item in &items {
        let Some(listener) = listener(item, env, report) else { continue };
        refuse_duplicates(item, &listeners, &listener, report);
        listeners.push(listener);
    }
    if is_list && items.is_empty() {
        section.problem(report, "must not be an empty list");
    }
    if listeners.is_empty() { vec![Listen::default()] } else { listeners }
}

fn listener(at: &Cursor<'_>, env: &Environment, report: &mut Report) -> Option<Listen> {
    let fields = at.section(&listen::SECTION, report)?;
    let socket = fields.at(&listen::SOCKET).and_then(|value| {
        let path = expand(value.text(report).filter(|text| !text.is_empty())?, env);
        if !path.is_absolute() {
            value.problem(report, "must be an absolute path, like `/run/credbroker/credbroker.sock`");
        }
        Some(path)
    });
    let group = listen::GROUP.read(&fields, report).filter(|group| !group.is_empty());
    if let (Some(name), Some(value)) = (&group, fields.at(&listen::GROUP))
        && group_id(name).is_none()
    {
        value.warning(report, format!("group `{name}` not found on this machine; see `getent group`"));
    }
    Some(Listen {
        name: listen::NAME.read(&fields, report).unwrap_or_else(|| DEFAULT.to_owned()),
        socket,
        mode: listen::MODE.read(&fields, report),
        group,
        shared_directory: listen::SHARED_DIRECTORY.read(&fields, report),
    })
}

/// Two listeners cannot have one name or one path. A container that mounts a directory can reach every socket in it.
fn refuse_duplicates(at: &Cursor<'_>, others: &[Listen], listener: &Listen, report: &mut Report) {
    if others.iter().any(|other| other.name == listener.name) {
        let message = format!("another listener has the name `{}`; set a different `name`", listener.name);
        at.problem(report, message);
    }
    let directory = |listener: &Listen| listener.socket.as_deref().and_then(Path::parent).map(Path::to_owned);
    for other in others {
        if other.socket == listener.socket {
            at.problem(
                report,
                format!("listener `{}` has the same socket; set another `socket`", other.name),
            );
        } else if directory(other).is_some_and(|other| directory(listener) == Some(other)) {
            let message = format!(
                "the socket is in the same directory as that of listener `{}`, so a container that mounts the directory can reach both; use a separate directory",
                other.name
            );
            at.warning(report, message);
        }
    }
}

/// The number of a group: by its number, or by its name in `/etc/group`.
pub fn group_id(name: &str) -> Option<u32> {
    if let Ok(id) = name.parse() {
        return Some(id);
    }
    let groups = fs::read_to_string("/etc/group").ok()?;
    groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok()).flatten()
    })
}

#[cfg(test)]
mod tests;
