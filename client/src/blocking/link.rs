//! The bytes of a [`Wire`] on a real socket: writes are gathered until something has to be read.

use std::{os::unix::net::UnixStream, time::Duration};

use rustix::{
    buffer::spare_capacity,
    event::{PollFd, PollFlags},
    io::{Errno, read},
    net::{SendFlags, send},
};

use super::{Broken, deadline::Deadline, wire::Wire};

/// A broker sends its SETTINGS as soon as it accepts. Who sends nothing for so long is not one, or hangs.
pub(super) const SILENCE: Duration = Duration::from_secs(5);
/// The acknowledgement of the broker's SETTINGS, which no answer waits for: to send it at once would cost a write here
/// and wake the broker while it works on the answer. It goes out when there is none after this long.
const HELD_BACK: Duration = Duration::from_millis(20);
const ACKNOWLEDGEMENT: &[u8] = &[0, 0, 0, 4, 1, 0, 0, 0, 0];
/// Read at a time: a token as a whole, and no more pages than that takes.
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

    /// Sends what `wire` has to send, and waits until there is something to read for it: more bytes, or the end.
    pub(super) fn turn(&mut self, wire: &Wire, deadline: &mut Deadline<'_>) -> Result<(), Broken> {
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
                at_most = SILENCE;
            }
            let ready = deadline.wait(PollFd::new(self.stream, events), at_most).map_err(lost)?;
            if ready && self.receive(wire)? {
                return Ok(());
            }
            match ready {
                true => {}
                false if deadline.is_over() => return Err(Broken::TimedOut),
                false if hold => hold = false,
                false => return Err(Broken::Silent),
            }
        }
    }

    fn left(&self) -> &[u8] {
        self.outbound.get(self.sent..).unwrap_or_default()
    }

    /// As much as the socket takes.
    fn send(&mut self) -> Result<(), Broken> {
        while !self.left().is_empty() {
            match send(self.stream, self.left(), SendFlags::NOSIGNAL) {
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

    /// False: there is nothing, the socket only takes more.
    fn receive(&mut self, wire: &Wire) -> Result<bool, Broken> {
        let received = wire.fill(|buffer| {
            buffer.reserve(READ);
            read(self.stream, spare_capacity(buffer))
        });
        match received {
            // The end was passed on, and the answer was not in what came before it.
            Ok(0) if self.ended => Err(Broken::Lost("it was closed".into())),
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

fn lost(error: Errno) -> Broken {
    Broken::Lost(std::io::Error::from(error).to_string())
}
