//! The sections `listen`, `metrics` and `audit`: where the broker listens, and where it writes records.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use super::{
    file::expand,
    schema::{Boolean, Checked, ConfigKey, Cursor, Is, Optional, SocketMode, Text},
    table::{audit, listen, metrics, root},
};
use credbroker_plugin::Environment;

/// Name of a listener without a `name`.
const DEFAULT: &str = "default";

/// A socket that the broker or its proxy listens on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Listen {
    /// `listen.name`: how access rules call it.
    pub name: String,
    /// `listen.socket`; `None`: the default for the user of the process.
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
pub(super) fn listeners(root: &Cursor<'_>, env: &Environment) -> Vec<Listen> {
    let mut listeners: Vec<Listen> = Vec::new();
    for fields in root::LISTEN.read(root).unwrap_or_default() {
        let listener = Listen::read(&fields, env, &KEYS);
        refuse_duplicates(&fields, &listeners, &listener);
        listeners.push(listener);
    }
    if listeners.is_empty() { vec![Listen::default()] } else { listeners }
}

/// The keys of a section for a socket.
pub(super) struct Keys {
    /// The name of a listener without one.
    pub(super) default: &'static str,
    pub(super) name: &'static ConfigKey<Text, Optional>,
    pub(super) socket: &'static ConfigKey<Checked, Optional>,
    pub(super) mode: &'static ConfigKey<SocketMode, Is<u32>>,
    pub(super) group: &'static ConfigKey<Text, Optional>,
    pub(super) shared_directory: &'static ConfigKey<Boolean, Is<bool>>,
}

static KEYS: Keys = Keys {
    default: DEFAULT,
    name: &listen::NAME,
    socket: &listen::SOCKET,
    mode: &listen::MODE,
    group: &listen::GROUP,
    shared_directory: &listen::SHARED_DIRECTORY,
};

impl Listen {
    pub(super) fn read(fields: &Cursor<'_>, env: &Environment, keys: &Keys) -> Self {
        let socket = keys.socket.read(fields).filter(|(_, text)| !text.is_empty()).map(|(at, text)| {
            let path = expand(text, env);
            if !path.is_absolute() {
                at.problem("must be an absolute path, like `/run/credbroker/credbroker.sock`");
            }
            path
        });
        let group = keys.group.read(fields).filter(|group| !group.is_empty());
        if let (Some(name), Some(value)) = (&group, fields.get(keys.group.name))
            && group_id(name).is_none()
        {
            value.warning(format!("group `{name}` not found on this machine; see `getent group`"));
        }
        Self {
            name: keys.name.read(fields).unwrap_or_else(|| keys.default.to_owned()),
            socket,
            mode: keys.mode.read(fields),
            group,
            shared_directory: keys.shared_directory.read(fields),
        }
    }
}

/// Two listeners cannot have one name or one path. A container that mounts a directory can reach every socket in it.
pub(super) fn refuse_duplicates(fields: &Cursor<'_>, others: &[Listen], listener: &Listen) {
    let (at, Listen { name, socket, .. }) = (fields, listener);
    if others.iter().any(|other| other.name == *name) {
        at.problem(format!("another listener has the name `{name}`; set a different `name`"));
    }
    let directory = |socket: &Option<PathBuf>| socket.as_deref().and_then(Path::parent).map(Path::to_owned);
    for other in others {
        if other.socket == *socket {
            at.problem(format!("listener `{}` has the same socket; set another `socket`", other.name));
        } else if directory(&other.socket).is_some_and(|other| directory(socket) == Some(other)) {
            at.warning(format!("the socket is in the same directory as the socket of listener `{}`, so a container that mounts the directory can reach both; use a separate directory", other.name));
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

/// `metrics.exposure`: from where the listener for metrics can be reached.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Exposure {
    /// The machine or the pod itself.
    #[default]
    Local,
    /// Wherever the network of the pod can be reached from.
    Pod,
}

/// Where metrics and health are served.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum MetricsAddress {
    /// A loopback address: every user of the machine can connect.
    Loopback(SocketAddr),
    /// All addresses of the pod: every host that the network lets through can connect.
    Pod(SocketAddr),
    /// Absolute path of a Unix socket: its owner and group can connect.
    Unix(PathBuf),
}

/// The section `metrics`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MetricsListen {
    /// Where to listen.
    pub address: MetricsAddress,
    /// Whether answers have the names of providers; `None`: on a Unix socket, and without access rules on a loopback address.
    pub provider_names: Option<bool>,
}

pub(super) fn metrics_section(root: &Cursor<'_>, has_rules: bool) -> Option<MetricsListen> {
    let fields = root::METRICS.read(root)?;
    let provider_names = metrics::PROVIDER_NAMES.read(&fields);
    let (at, text) = metrics::LISTEN.read(&fields)?;
    let address = metrics_address(&at, text, metrics::EXPOSURE.read(&fields))?;
    let warning = match address {
        MetricsAddress::Loopback(_) if has_rules => Some(
            "every user of the machine can connect, so with `access` rules the answers contain no provider names; set `providerNames: true`, or listen on a Unix socket",
        ),
        MetricsAddress::Pod(_) => Some(
            "other hosts can connect, so the answers contain no provider names, and alerts about providers cannot fire; set `providerNames: true`, or `false` to leave them out",
        ),
        _ => None,
    };
    if let (None, Some(warning)) = (provider_names, warning) {
        at.warning(warning);
    }
    Some(MetricsListen { address, provider_names })
}

/// The address in `text`, where it may be.
pub(super) fn metrics_address(
    at: &Cursor<'_>,
    text: &str,
    exposure: Option<Exposure>,
) -> Option<MetricsAddress> {
    exposed(address(text), exposure.unwrap_or_default()).map_err(|message| at.problem(message)).ok()
}

/// The address, if `exposure` allows it. The answers are neither encrypted nor only for peers with an identity, so an address
/// that other hosts can reach needs its own decision.
fn exposed(address: Option<MetricsAddress>, exposure: Exposure) -> Result<MetricsAddress, &'static str> {
    match (address, exposure) {
        (None, _) => Err(
            "must be a loopback address with a port, like `127.0.0.1:9464`, or `unix:///absolute/path`, or with `exposure: Pod` `0.0.0.0:9464` or `[::]:9464`: the answers are not encrypted",
        ),
        (Some(MetricsAddress::Pod(_)), Exposure::Local) => Err(
            "must not be an address that other hosts can connect to: the answers are not encrypted; listen on a loopback address, like `127.0.0.1:9464`, or allow it with `exposure: Pod`",
        ),
        (Some(MetricsAddress::Loopback(_) | MetricsAddress::Unix(_)), Exposure::Pod) => Err(
            "must be `0.0.0.0:PORT` or `[::]:PORT` with `exposure: Pod`: other hosts cannot connect to this one; change it, or remove `exposure`",
        ),
        (Some(address), _) => Ok(address),
    }
}

fn address(text: &str) -> Option<MetricsAddress> {
    if let Some(path) = text.strip_prefix("unix://") {
        let path = PathBuf::from(path);
        return (path.is_absolute() && path.file_name().is_some()).then_some(MetricsAddress::Unix(path));
    }
    let address: SocketAddr = text.parse().ok()?;
    match address.ip() {
        ip if ip.is_loopback() => Some(MetricsAddress::Loopback(address)),
        ip if ip.is_unspecified() => Some(MetricsAddress::Pod(address)),
        _ => None,
    }
}

/// Where decisions and runs are recorded.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum AuditTo {
    /// Nowhere.
    #[default]
    Nowhere,
    /// In the broker's log.
    Log,
    /// In a file.
    File(PathBuf),
}

pub(super) fn audit_section(root: &Cursor<'_>, has_rules: bool, env: &Environment) -> AuditTo {
    let Some(fields) = root::AUDIT.read(root) else {
        return if has_rules { AuditTo::Log } else { AuditTo::Nowhere };
    };
    audit::FILE.read(&fields).map_or(AuditTo::Log, |(at, text)| AuditTo::File(audit_file(&at, text, env)))
}

pub(super) fn audit_file(at: &Cursor<'_>, text: &str, env: &Environment) -> PathBuf {
    let path = expand(text, env);
    if !path.is_absolute() {
        at.problem("must be an absolute path");
    }
    path
}

#[cfg(test)]
mod tests;
