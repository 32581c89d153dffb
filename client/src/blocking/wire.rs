//! A connection in memory, which HTTP/2 reads and writes. The system calls are made elsewhere.

use std::{
    cell::RefCell,
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Both ends share it. Nothing waits here: a read without input is pending.
#[derive(Clone, Debug, Default)]
pub(super) struct Wire(Rc<RefCell<Buffers>>);

#[derive(Debug, Default)]
struct Buffers {
    /// Received bytes, and how many of them have been read.
    inbound: Vec<u8>,
    read: usize,
    closed: bool,
    /// Bytes to send.
    outbound: Vec<u8>,
}

impl Wire {
    /// Takes the bytes to send.
    pub(super) fn take_outbound(&self, into: &mut Vec<u8>) {
        into.append(&mut self.0.borrow_mut().outbound);
    }

    /// Adds input by filling a buffer. A result of 0 is the end of the input.
    pub(super) fn fill<E>(&self, source: impl FnOnce(&mut Vec<u8>) -> Result<usize, E>) -> Result<usize, E> {
        let buffers = &mut *self.0.borrow_mut();
        if buffers.read == buffers.inbound.len() {
            buffers.inbound.clear();
            buffers.read = 0;
        }
        let count = source(&mut buffers.inbound)?;
        buffers.closed |= count == 0;
        Ok(count)
    }
}

impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let buffers = &mut *self.0.borrow_mut();
        let left = buffers.inbound.get(buffers.read..).unwrap_or_default();
        if left.is_empty() && !buffers.closed {
            return Poll::Pending;
        }
        let fitting = left.get(..into.remaining()).unwrap_or(left);
        into.put_slice(fitting);
        buffers.read += fitting.len();
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.borrow_mut().outbound.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outbound = &mut self.0.borrow_mut().outbound;
        let before = outbound.len();
        for part in parts {
            outbound.extend_from_slice(part);
        }
        Poll::Ready(Ok(outbound.len() - before))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
