//! The output of a plugin: all of stdout up to a limit, and stderr.

use std::{os::fd::AsFd, sync::Arc, time::Duration};

use bytes::BufMut as _;
use rustix::buffer::spare_capacity;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    time::timeout,
};
use zeroize::Zeroizing;

use crate::{attendance::Attendance, error::RunErrorKind};

const FIRST: usize = 16 << 10;
/// Bytes of stderr that are read at a time.
const PIECE: usize = 16 << 10;
/// The largest size of a Linux pipe for unprivileged processes: everything written before the end fits.
const PIPE: usize = 1 << 20;
/// A line of stderr without an end is shown when nothing follows for so long.
const QUIET: Duration = Duration::from_millis(100);

/// Stdout. It may contain a token, so every buffer that held a part of it is wiped.
#[derive(Debug)]
pub(crate) struct Capped<R> {
    pipe: R,
    bytes: Zeroizing<Vec<u8>>,
    limit: usize,
}

impl<R: AsyncRead + Unpin> Capped<R> {
    pub(crate) fn new(pipe: R, limit: usize) -> Self {
        Self { pipe, bytes: Zeroizing::new(Vec::with_capacity(FIRST.min(limit) + 1)), limit }
    }

    /// Reads to the end, or until the plugin has written more than the limit. Cancel safe.
    pub(crate) async fn fill(&mut self) -> Result<(), RunErrorKind> {
        while self.bytes.len() <= self.limit {
            if self.bytes.len() == self.bytes.capacity() {
                self.grow();
            }
            let free = self.bytes.capacity() - self.bytes.len();
            match self.pipe.read_buf(&mut (&mut *self.bytes).limit(free)).await {
                Ok(1..) => {}
                Ok(0) | Err(_) => return Ok(()), // an unreadable pipe counts as ended
            }
        }
        Err(RunErrorKind::OutputTooLarge(self.limit))
    }

    pub(crate) fn into_bytes(self) -> Zeroizing<Vec<u8>> {
        self.bytes
    }

    /// Copies into a larger buffer: growing in place would free the old one without wiping it.
    fn grow(&mut self) {
        let mut larger = Zeroizing::new(Vec::with_capacity((self.bytes.len() * 2).min(self.limit + 1)));
        larger.extend_from_slice(&self.bytes);
        self.bytes = larger;
    }
}

/// Stderr. All of it is read, so that the plugin never blocks. The transcript of its run keeps the end.
#[derive(Debug)]
pub(crate) struct Stderr<R> {
    pipe: R,
    buffer: Vec<u8>,
    attendance: Arc<Attendance>,
}

impl<R: AsyncRead + Unpin> Stderr<R> {
    pub(crate) fn new(pipe: R, attendance: Arc<Attendance>) -> Self {
        Self { pipe, buffer: Vec::with_capacity(PIECE), attendance }
    }

    /// Reads to the end. Cancel safe.
    pub(crate) async fn drain(&mut self) {
        loop {
            self.buffer.clear();
            let read = self.pipe.read_buf(&mut self.buffer);
            let read = if self.attendance.has_partial_line() {
                let Ok(read) = timeout(QUIET, read).await else {
                    self.attendance.show_partial_line();
                    continue;
                };
                read
            } else {
                read.await
            };
            match read {
                Ok(1..) => self.attendance.wrote(&self.buffer),
                Ok(0) | Err(_) => return,
            }
        }
    }
}

impl<R: AsyncRead + AsFd + Unpin> Stderr<R> {
    /// Reads what is in the pipe without waiting: other processes may keep the write end open.
    pub(crate) fn drain_now(&mut self) {
        let mut read = 0;
        while read < PIPE {
            self.buffer.clear();
            match rustix::io::read(&self.pipe, spare_capacity(&mut self.buffer)) {
                Ok(count @ 1..) => read += count,
                Ok(0) | Err(_) => break,
            }
            self.attendance.wrote(&self.buffer);
        }
        self.attendance.show_partial_line();
    }
}

#[cfg(test)]
mod tests;
