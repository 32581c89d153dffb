//! The command line of the bridge.

use std::{
    ffi::{OsStr, OsString},
    net::SocketAddr,
};

use super::{Command, UsageError, after_equals, once, values::refused};

const LISTEN: &str = "--listen";
const SOCKET: &str = "--socket";
const HOST_NETWORK: &str = "--host-network";

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BridgeArguments {
    /// A loopback address.
    pub(crate) listen: SocketAddr,
    pub(crate) socket: Option<OsString>,
    /// Whether it may run where other programs of the machine can connect.
    pub(crate) host_network: bool,
}

pub(super) fn parse(mut args: impl Iterator<Item = OsString>) -> Result<Command, UsageError> {
    let (mut listen, mut socket, mut host_network) = (None, None, false);
    while let Some(argument) = args.next() {
        let text = argument.to_string_lossy();
        let (name, attached) = match text.split_once('=') {
            Some((name, _)) => (name, Some(after_equals(&argument))),
            None => (text.as_ref(), None),
        };
        let flag = match (name, &attached) {
            ("--help" | "-h", None) => return Ok(Command::Help),
            (HOST_NETWORK, None) => {
                host_network = true;
                continue;
            }
            (LISTEN, _) => LISTEN,
            (SOCKET, _) => SOCKET,
            _ => return Err(UsageError::Unknown(text.into_owned())),
        };
        let value = attached.or_else(|| args.next()).ok_or(UsageError::ValueMissing(flag))?;
        match flag {
            LISTEN => once(flag, &mut listen, address(&value)?)?,
            _ => once(flag, &mut socket, value)?,
        }
    }
    let listen = listen.ok_or(UsageError::ValueMissing(LISTEN))?;
    Ok(Command::Bridge(BridgeArguments { listen, socket, host_network }))
}

fn address(value: &OsStr) -> Result<SocketAddr, UsageError> {
    let address = value.to_str().and_then(|text| text.parse().ok());
    address
        .filter(|address: &SocketAddr| address.ip().is_loopback())
        .ok_or_else(|| refused(LISTEN, value, "a loopback address with a port, such as 127.0.0.1:0"))
}
