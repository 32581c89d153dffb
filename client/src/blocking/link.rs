//! Moves the bytes of a [`Wire`] over a socket. Writes are collected until something has to be read.

use std::{os::unix::net::UnixStream, time::Duration};

use rustix::{
    buffer::spare_capacity,
    event::{PollFd, PollFlags},
    io::{Errno, read},
    net::{SendFlags, send},
};

use super::{
    call::{ExchangeError, lost},
    deadline::Deadline,
    wire::Wire,
};

/// A peer that has closed must be an error and not a signal. std sets the same for its sockets where there is no such flag.
#[cfg(not(target_vendor = "apple"))]
const SEND_FLAGS: SendFlags = SendFlags::NOSIGNAL;
#[cfg(target_vendor = "apple")]
const SEND_FLAGS: SendFlags = SendFlags::empty();

/// How long the acknowledgement of the broker's SETTINGS is held back. No response depends on it; sending it immediately would
/// cost a write and wake the broker while it works on the response.
const HELD_BACK: Duration = Duration::from_millis(20);
const ACKNOWLEDGEMENT: &[u8] = &[0, 0, 0, 4, 1, 0, 0, 0, 0];
/// The size of a read: enough for a token.
const READ: usize = 4 * 1024;

/// A connected, non-blocking socket.
pub(super) struct Link<'a> {
    stream: &'a UnixStream,
    outbound: Vec<u8>,
    sent: usize,
    heard: bool,
    ended: bool,
}

impl<'a> Link<'a> {
    pub(super) fn new(stream: &'a UnixStream) -> Self {
        Self { stream, outbound: Vec::new(), sent: 0, heard: false, ended: false }
    }

    /// Sends the output of `wire`, and waits until there is input for it, more bytes or the end, or until the time `wake`
    /// since the call began.
    pub(super) fn turn(
        &mut self,
        wire: &Wire,
        deadline: &mut Deadline<'_>,
        wake: Option<Duration>,
    ) -> Result<(), ExchangeError> {
        wire.take_outbound(&mut self.outbound);
        let mut hold = self.left() == ACKNOWLEDGEMENT;
        loop {
            if !hold {
                self.send()?;
            }
            let (mut events, mut at_most) = (PollFlags::IN, Duration::MAX);
            if hold {
                at_most = HELD_BACK;
            } else if !self.left().is_empty() {
                events |= PollFlags::OUT;
            }
            if !self.heard {
                at_most = deadline.silence();
            }
            if let Some(wake) = wake {
                at_most = at_most.min(wake.saturating_sub(deadline.passed()));
            }
            let ready = deadline.wait(PollFd::new(self.stream, events), at_most).map_err(lost)?;
            if ready && self.receive(wire)? {
                return Ok(());
            }
            match ready {
                true => {}
                false if deadline.is_over() => return Err(ExchangeError::TimedOut),
                false if wake.is_some_and(|wake| wake <= deadline.passed()) => return Ok(()),
                false if hold => hold = false,
                false => return Err(ExchangeError::Silent),
            }
        }
    }

    fn left(&self) -> &[u8] {
        self.outbound.get(self.sent..).unwrap_or_default()
    }

    /// Sends as much as the socket takes.
    fn send(&mut self) -> Result<(), ExchangeError> {
        while !self.left().is_empty() {
            match send(self.stream, self.left(), SEND_FLAGS) {
                Ok(count) => self.sent += count,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(lost(error)),
            }
        }
        self.outbound.clear();
        self.sent = 0;
        Ok(())
    }

    /// Returns whether there was input. If not, the socket only takes more output.
    fn receive(&mut self, wire: &Wire) -> Result<bool, ExchangeError> {
        let received = wire.fill(|buffer| {
            buffer.reserve(READ);
            read(self.stream, spare_capacity(buffer))
        });
        match received {
            // The end was passed on before, and the response was not complete.
            Ok(0) if self.ended => Err(ExchangeError::Lost("it was closed".into())),
            Ok(count) => {
                self.ended = count == 0;
                self.heard |= count > 0;
                Ok(true)
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(error) => Err(lost(error)),
        }
    }
}
