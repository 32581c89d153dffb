use std::{
    io::Read as _,
    net::{Ipv4Addr, Ipv6Addr, TcpListener, TcpStream},
};

use rustix::{net::sockopt::set_ipv6_v6only, process::geteuid};

use super::*;

/// A connection, its client's end first.
fn connected(listener: &TcpListener, to: IpAddr) -> (TcpStream, TcpStream) {
    let client = TcpStream::connect((to, listener.local_addr().unwrap().port())).unwrap();
    (client, listener.accept().unwrap().0)
}

fn owner_of(accepted: &TcpStream) -> Result<u32, OwnerError> {
    owner(accepted.peer_addr().unwrap(), accepted.local_addr().unwrap())
}

#[test]
fn the_owner_of_an_open_connection_is_who_made_it() {
    for ip in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
        let listener = TcpListener::bind((ip, 0)).unwrap();
        let (client, accepted) = connected(&listener, ip);
        assert_eq!(owner_of(&accepted).unwrap(), geteuid().as_raw(), "{ip}");
        drop(client);
    }
}

#[test]
fn a_client_of_ipv4_is_known_at_a_listener_for_both() {
    let socket = socket_with(AddressFamily::INET6, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
    set_ipv6_v6only(&socket, false).unwrap();
    rustix::net::bind(&socket, &SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0))).unwrap();
    rustix::net::listen(&socket, 8).unwrap();
    let listener = TcpListener::from(socket);
    let mapped = Ipv4Addr::LOCALHOST.to_ipv6_mapped();
    for ip in [IpAddr::from(Ipv4Addr::LOCALHOST), mapped.into()] {
        let (_client, accepted) = connected(&listener, ip);
        assert_eq!(accepted.peer_addr().unwrap().ip(), mapped);
        assert_eq!(owner_of(&accepted).unwrap(), geteuid().as_raw(), "{ip}");
    }
}

#[test]
fn a_connection_that_its_client_has_closed_has_no_owner() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (client, mut accepted) = connected(&listener, Ipv4Addr::LOCALHOST.into());
    drop(client);
    // The end of the stream has arrived.
    assert_eq!(accepted.read(&mut [0]).unwrap(), 0);
    assert!(matches!(owner_of(&accepted), Err(OwnerError::Closed | OwnerError::NoAnswer(_))));
    // One that has only stopped to write is about to close.
    let (client, mut accepted) = connected(&listener, Ipv4Addr::LOCALHOST.into());
    client.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(accepted.read(&mut [0]).unwrap(), 0);
    assert!(matches!(owner_of(&accepted), Err(OwnerError::Closed)));
}

#[test]
fn a_connection_that_is_not_of_this_network_has_no_owner() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let own = listener.local_addr().unwrap();
    let elsewhere = SocketAddr::from(([127, 0, 0, 1], 1));
    assert!(matches!(owner(elsewhere, own), Err(OwnerError::NoAnswer(_))));
}

/// An answer of the kernel about a connection from 127.0.0.1:4660 to 127.0.0.1:9465.
fn answer(state: u8, uid: u32, inode: u32) -> Vec<u8> {
    let mut answer = vec![0; 124];
    answer[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
    answer[HEADER] = 2;
    answer[STATE] = state;
    answer[ID..ID + 4].copy_from_slice(&[0x12, 0x34, 0x24, 0xf9]);
    for at in [ID + 4, ID + 20] {
        answer[at..at + 4].copy_from_slice(&[127, 0, 0, 1]);
    }
    answer[UID..UID + 4].copy_from_slice(&uid.to_ne_bytes());
    answer[INODE..INODE + 4].copy_from_slice(&inode.to_ne_bytes());
    answer
}

#[test]
fn only_an_answer_about_an_open_connection_of_a_known_user_counts() {
    let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
    let read = |answer: &[u8]| read_answer(answer, address(4660), address(9465));
    assert_eq!(read(&answer(1, 1000, 7)).unwrap(), 1000);
    assert_eq!(read(&answer(1, 0, 7)).unwrap(), 0);
    assert!(matches!(read(&answer(1, 0, 0)), Err(OwnerError::Closed)), "root owns what nobody has open");
    for state in [0, 2, 4, 5, 8, 10] {
        assert!(matches!(read(&answer(state, 1000, 7)), Err(OwnerError::Closed)), "{state}");
    }
    for uid in [65_534, u32::MAX] {
        assert!(matches!(read(&answer(1, uid, 7)), Err(OwnerError::Unmapped)), "{uid}");
    }
    let whole = answer(1, 1000, 7);
    let own_end = read_answer(&whole, address(9465), address(4660));
    assert!(matches!(own_end, Err(OwnerError::Other)), "the other end");
    for length in 0..INODE + 4 {
        assert!(read(&whole[..length]).is_err(), "{length}");
    }
    let mut error = whole.clone();
    error[4..6].copy_from_slice(&ERROR.to_ne_bytes());
    error[HEADER..HEADER + 4].copy_from_slice(&(-2_i32).to_ne_bytes());
    assert!(matches!(read(&error), Err(OwnerError::NoAnswer(error)) if error.raw_os_error() == Some(2)));
}
