//! Root, after sudo: the broker of the user who called it may serve root.

use std::path::Path;

use credbroker_client::Socket;

use crate::{
    arguments::Arguments,
    edges::{Edges, Environment},
    fallback::is_clients_choice,
    request::is_named,
};

/// The broker of the user who called sudo.
pub(crate) struct Caller {
    pub(crate) uid: u32,
    pub(crate) socket: Socket,
    /// What root's request has of the environment: none of its variables.
    pub(crate) environment: Environment,
}

impl Caller {
    /// `None`: this is not root at a terminal, after sudo, or there is a broker of root's own, which is at `socket`. A stanza
    /// cannot choose the user.
    pub(crate) fn of(arguments: &Arguments, socket: &Socket, edges: &Edges) -> Option<Self> {
        let own = &edges.environment;
        let uid = own.get("SUDO_UID").filter(|_| edges.terminal && (edges.is_root)())?;
        let uid = uid.to_str()?.parse().ok().filter(|uid| ![0, u32::MAX].contains(uid))?;
        let path = format!("/run/user/{uid}/credbroker/credbroker.sock");
        let is_there = |path: &Path| path.symlink_metadata().is_ok();
        let is_flagged = arguments.socket.is_some() || arguments.broker_uid.is_some();
        if is_named(is_flagged, own) || socket.candidates().any(is_there) || !is_there(Path::new(&path)) {
            return None;
        }
        let named = arguments.original.as_ref().map(|original| &*original.env).unwrap_or_default();
        if !is_clients_choice(named, own, edges.parent_environment) {
            return None;
        }
        // The broker knows what the stanza sets: the definition has it. A stanza that only names a variable would get root's.
        let sent = own.iter().filter(|(name, _)| *name == "KUBERNETES_EXEC_INFO");
        let environment = sent.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Some(Self { uid, socket: Socket::at(path).broker_uid(uid), environment })
    }
}
