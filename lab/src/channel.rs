//! tonic's own client on a Unix socket.

use std::{io, os::unix::net::UnixStream as StdUnixStream, path::Path, sync::Mutex, thread};

use anyhow::{Context as _, Result};
use hyper_util::rt::TokioIo;
use rustix::{
    process::Uid,
    thread::{set_thread_groups, set_thread_res_uid},
};
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};

/// A connection to the broker at `socket`.
pub async fn channel(socket: &Path) -> Result<Channel> {
    let socket = socket.to_owned();
    let connect = tower::service_fn(move |_| {
        let socket = socket.clone();
        async move { Ok::<_, io::Error>(TokioIo::new(UnixStream::connect(socket).await?)) }
    });
    Ok(Endpoint::from_static("http://localhost").connect_with_connector(connect).await?)
}

/// A connection of another user. Only root can make it.
pub async fn channel_as(uid: u32, socket: &Path) -> Result<Channel> {
    let socket = socket.to_owned();
    let connect = move || {
        set_thread_groups(&[])?;
        set_thread_res_uid(None, Some(Uid::from_raw(uid)), None)?;
        StdUnixStream::connect(socket)
    };
    let stream = thread::spawn(connect).join().ok().context("it panicked")??;
    stream.set_nonblocking(true)?;
    let stream = Mutex::new(Some(UnixStream::from_std(stream)?));
    let connect = tower::service_fn(move |_| {
        let stream = stream.lock().ok().and_then(|mut stream| stream.take());
        async move { stream.map(TokioIo::new).ok_or(io::Error::other("it ended")) }
    });
    Ok(Endpoint::from_static("http://localhost").connect_with_connector(connect).await?)
}
