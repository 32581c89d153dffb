//! Which user a TCP connection of this machine is of: one exact look-up with `NETLINK_SOCK_DIAG`.
//!
//! The kernel knows a socket by its addresses and ports, and says who made it. It says uid 0 of a socket that its process has
//! closed, and an overflow number of a user that it cannot map, so only an open connection of a process counts.

use std::{
    io,
    net::{IpAddr, SocketAddr},
};

use rustix::{
    io::Errno,
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType,
        netlink::{self, SocketAddrNetlink},
        recv, sendto, socket_with,
    },
};

/// `SOCK_DIAG_BY_FAMILY`, of a request and of its answer.
const BY_FAMILY: u16 = 20;
/// `NLMSG_ERROR`.
const ERROR: u16 = 2;
/// `NLM_F_REQUEST`.
const REQUEST: u16 = 1;
const TCP: u8 = 6;
/// `TCP_ESTABLISHED`.
const ESTABLISHED: u8 = 1;
/// Users of other namespaces look like this one.
const OVERFLOW: u32 = 65_534;

/// Bytes of `nlmsghdr`, of `inet_diag_sockid`, and of the request.
const HEADER: usize = 16;
const SOCKET_ID: usize = 48;
const ASKED: usize = HEADER + 8 + SOCKET_ID;
/// Where what counts is in an answer.
const STATE: usize = HEADER + 1;
const ID: usize = HEADER + 4;
const UID: usize = ID + SOCKET_ID + 12;
const INODE: usize = UID + 4;

/// Why the owner of a connection is not known.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OwnerError {
    /// The kernel has no such socket, or does not answer.
    #[error("the kernel does not know the connection")]
    NoAnswer(#[source] io::Error),
    /// The process has closed it.
    #[error("the connection is closed")]
    Closed,
    /// It is of a user of another user namespace.
    #[error("the user of the connection is of another user namespace")]
    Unmapped,
    /// The answer is about something else.
    #[error("the kernel's answer is about another connection")]
    Other,
}

/// The uid of the process that connected from `peer` to `own`, both addresses of this network namespace. Does not block.
pub(crate) fn owner(peer: SocketAddr, own: SocketAddr) -> Result<u32, OwnerError> {
    let request = request(peer, own);
    let mut answer = [0; 512];
    let read = ask(&request, &mut answer).map_err(|error| OwnerError::NoAnswer(error.into()))?;
    read_answer(answer.get(..read).unwrap_or_default(), peer, own)
}

fn ask(request: &[u8], answer: &mut [u8]) -> Result<usize, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let kernel = SocketAddrNetlink::new(0, 0);
    let socket = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(netlink::SOCK_DIAG))?;
    // The kernel answers before this returns.
    sendto(&socket, request, SendFlags::empty(), &kernel)?;
    recv(&socket, answer, RecvFlags::empty()).map(|(read, _)| read)
}

/// `nlmsghdr` and `inet_diag_req_v2`: the socket that `peer` is the address of, and `own` the other end.
fn request(peer: SocketAddr, own: SocketAddr) -> [u8; ASKED] {
    // The table has the connections of IPv4 by their IPv4 addresses, also those of sockets for both.
    let (peer_ip, own_ip) = (peer.ip().to_canonical(), own.ip().to_canonical());
    let family = if peer_ip.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let mut request = Vec::with_capacity(ASKED);
    request.extend(u32::try_from(ASKED).unwrap_or_default().to_ne_bytes());
    request.extend(BY_FAMILY.to_ne_bytes());
    request.extend(REQUEST.to_ne_bytes());
    request.extend([0; 8]); // sequence and port, which one question does not need
    request.extend([u8::try_from(family.as_raw()).unwrap_or_default(), TCP, 0, 0]);
    request.extend(u32::MAX.to_ne_bytes()); // in any state
    request.extend(peer.port().to_be_bytes());
    request.extend(own.port().to_be_bytes());
    request.extend(octets(peer_ip));
    request.extend(octets(own_ip));
    request.extend([0; 4]); // any interface
    request.extend([0xff; 8]); // no cookie
    let mut whole = [0; ASKED];
    whole.iter_mut().zip(request).for_each(|(to, from)| *to = from);
    whole
}

fn octets(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => {
            let [a, b, c, d] = ip.octets();
            [a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        }
        IpAddr::V6(ip) => ip.octets(),
    }
}

/// Reads `nlmsghdr` and `inet_diag_msg`, which must be about the connection from `peer` to `own`.
fn read_answer(answer: &[u8], peer: SocketAddr, own: SocketAddr) -> Result<u32, OwnerError> {
    let number = |at| Some(u32::from_ne_bytes(*answer.get(at..)?.first_chunk()?));
    let kind = answer.get(4..).and_then(|rest| rest.first_chunk()).copied().map(u16::from_ne_bytes);
    if kind == Some(ERROR) {
        let code = number(HEADER).map_or(0, |code| code.cast_signed().saturating_neg());
        return Err(OwnerError::NoAnswer(io::Error::from_raw_os_error(code)));
    }
    let (Some(BY_FAMILY), Some(uid), Some(inode), Some(state)) =
        (kind, number(UID), number(INODE), answer.get(STATE))
    else {
        return Err(OwnerError::Other);
    };
    let canonical = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
    if ends(answer) != Some([canonical(peer), canonical(own)]) {
        return Err(OwnerError::Other);
    }
    if *state != ESTABLISHED || inode == 0 {
        return Err(OwnerError::Closed);
    }
    if uid == OVERFLOW || uid == u32::MAX { Err(OwnerError::Unmapped) } else { Ok(uid) }
}

/// Both ends of the connection that an answer is about. A socket for both families has IPv4 addresses within IPv6 ones.
fn ends(answer: &[u8]) -> Option<[SocketAddr; 2]> {
    let port = |at| Some(u16::from_be_bytes(*answer.get(at..)?.first_chunk()?));
    let family = u16::from(*answer.get(HEADER)?);
    let address = |at: usize| -> Option<IpAddr> {
        let bytes = answer.get(at..)?;
        if family == AddressFamily::INET.as_raw() {
            return Some(IpAddr::from(*bytes.first_chunk::<4>()?));
        }
        (family == AddressFamily::INET6.as_raw()).then_some(())?;
        Some(IpAddr::from(*bytes.first_chunk::<16>()?).to_canonical())
    };
    let [source, destination] = [ID + 4, ID + 20].map(address);
    Some([SocketAddr::new(source?, port(ID)?), SocketAddr::new(destination?, port(ID + 2)?)])
}

#[cfg(test)]
mod tests;
