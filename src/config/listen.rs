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
use crate::plugin::Environment;

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
mod tests {
    use crate::config::tests::{HEAD, Home, stanza};

    fn home(listen: &str) -> Home {
        Home::new(&format!("{HEAD}listen: {listen}\nproviders:\n- name: p\n  {}\n", stanza("x")))
    }

    #[test]
    fn there_is_one_listener_or_several_with_names() {
        let names = |listen: &str| {
            let listeners = home(listen).load().unwrap().config.listen;
            listeners.into_iter().map(|listener| (listener.name, listener.mode)).collect::<Vec<_>>()
        };
        let listener = |name: &str, mode| (name.to_owned(), mode);
        assert_eq!(names("{}"), [listener("default", 0o600)]);
        assert_eq!(names("{name: apps, mode: \"0660\"}"), [listener("apps", 0o660)]);
        assert_eq!(names("[{mode: \"0660\"}]"), [listener("default", 0o660)]);
        assert_eq!(
            names("[{socket: /a/s}, {name: apps, socket: /b/s, mode: \"0666\"}]"),
            [listener("default", 0o600), listener("apps", 0o666)]
        );
    }

    #[test]
    fn listeners_differ_in_name_and_socket() {
        let problems = |listen: &str| home(listen).problems();
        insta::assert_snapshot!(problems("[]"), @"~/.config/credbroker/config.yaml:3:9: listen: must not be an empty list");
        insta::assert_snapshot!(problems("[{socket: /a/s}, {socket: /b/s}]"), @"~/.config/credbroker/config.yaml:3:26: listen[1]: another listener has the name `default`; set a different `name`");
        insta::assert_snapshot!(problems("[{name: a}, {name: b}]"), @"~/.config/credbroker/config.yaml:3:21: listen[1]: listener `a` has the same socket; set another `socket`");
        insta::assert_snapshot!(problems("[{name: a, socket: s}, 1]"), @r"
~/.config/credbroker/config.yaml:3:28: listen[0].socket: must be an absolute path, like `/run/credbroker/credbroker.sock`
~/.config/credbroker/config.yaml:3:32: listen[1]: must be a map, but is a number
");
    }

    #[test]
    fn sockets_in_one_directory_and_an_unknown_group_are_warnings() {
        insta::assert_snapshot!(home("[{socket: /a/s}, {name: b, socket: /a/t}]").warnings(), @"~/.config/credbroker/config.yaml:3:26: listen[1]: the socket is in the same directory as that of listener `default`, so a container that mounts the directory can reach both; use a separate directory");
        insta::assert_snapshot!(home("{group: no such}").warnings(), @"~/.config/credbroker/config.yaml:3:17: listen.group: group `no such` not found on this machine; see `getent group`");
        assert_eq!(home("{group: \"12345\"}").warnings(), "");
    }
}
