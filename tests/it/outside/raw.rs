//! A peer that speaks HTTP/2 in frames that the test chooses.

use std::{
    collections::HashMap,
    io::{self, Read as _, Write as _},
    os::unix::net::UnixStream,
    path::Path,
    sync::{Arc, Condvar, Mutex},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use prost::Message;

pub(super) const SETTINGS: u8 = 4;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ACK: u8 = 1;

/// What the broker sent so far.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Bytes that may still be sent on the connection.
    pub(super) window: i64,
    /// Bytes of data, by stream.
    pub(super) data: HashMap<u32, usize>,
    /// Streams whose answers have begun.
    pub(super) answered: Vec<u32>,
    /// Streams that ended, by reset or otherwise.
    pub(super) ended: Vec<u32>,
    pub(super) goaway: bool,
    pub(super) closed: bool,
}

type Shared = Arc<(Mutex<Seen>, Condvar)>;

/// One connection. Its answers are read and noted; no window is ever given back.
#[derive(Debug)]
pub(super) struct Raw {
    stream: UnixStream,
    seen: Shared,
    _reader: Option<JoinHandle<()>>,
}

impl Raw {
    /// Connects with this window for each answer, and as large a one for all together as there can be.
    pub(super) fn connect(socket: &Path, window: u32) -> Self {
        Self::start(socket, window, true)
    }

    /// The same, but nothing that the broker asks for is acknowledged.
    pub(super) fn mute(socket: &Path) -> Self {
        Self::start(socket, 65_535, false)
    }

    /// Connects, and reads nothing that the broker sends. A write fails when the broker reads nothing either.
    pub(super) fn deaf(socket: &Path) -> Self {
        let (stream, seen) = Self::open(socket, 65_535);
        stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
        Self { stream, seen, _reader: None }
    }

    fn start(socket: &Path, window: u32, polite: bool) -> Self {
        let (stream, seen) = Self::open(socket, window);
        let reader = std::thread::spawn({
            let (seen, stream) = (Arc::clone(&seen), stream.try_clone().unwrap());
            move || read(stream, &seen, polite)
        });
        Self { stream, seen, _reader: Some(reader) }
    }

    fn open(socket: &Path, window: u32) -> (UnixStream, Shared) {
        let mut stream = UnixStream::connect(socket).unwrap();
        // A connection that is refused may be closed by now: then the reader sees it.
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").ok();
        let setting = [&4_u16.to_be_bytes()[..], &window.to_be_bytes()].concat();
        write_frame(&mut stream, SETTINGS, 0, 0, &setting).ok();
        write_frame(&mut stream, WINDOW_UPDATE, 0, 0, &(0x7fff_ffff_u32 - 65_535).to_be_bytes()).ok();
        let seen = Seen { window: 65_535, ..Seen::default() };
        (stream, Arc::new((Mutex::new(seen), Condvar::new())))
    }

    /// Opens a stream with a request for `path`; the body follows unless this is all.
    pub(super) fn headers(&mut self, stream: u32, path: &str) -> io::Result<()> {
        self.headers_with(stream, path, 0)
    }

    /// The same with one more header of so many bytes.
    pub(super) fn headers_with(&mut self, stream: u32, path: &str, more: usize) -> io::Result<()> {
        let mut block = vec![0x83, 0x86, 0x04]; // POST, http, :path
        block.extend(length(path.len()));
        block.extend(path.as_bytes());
        let more = ("more", &*"m".repeat(more));
        let headers = [(":authority", "localhost"), ("content-type", "application/grpc"), ("te", "trailers")];
        for (name, value) in headers.into_iter().chain((!more.1.is_empty()).then_some(more)) {
            block.push(0x00);
            for text in [name, value] {
                block.extend(length(text.len()));
                block.extend(text.as_bytes());
            }
        }
        write_frame(&mut self.stream, HEADERS, END_HEADERS, stream, &block)
    }

    /// Sends `bytes` in frames, as far as the connection's window allows within `patience`; says whether all went out.
    pub(super) fn data(&mut self, stream: u32, bytes: &[u8], end: bool, patience: Duration) -> bool {
        let mut chunks = bytes.chunks(16 * 1024).peekable();
        while let Some(chunk) = chunks.next() {
            if !self.take_window(chunk.len(), patience) {
                return false;
            }
            let flags = if end && chunks.peek().is_none() { END_STREAM } else { 0 };
            if write_frame(&mut self.stream, DATA, flags, stream, chunk).is_err() {
                return false;
            }
        }
        true
    }

    /// A whole request of one message.
    pub(super) fn request(&mut self, stream: u32, path: &str, message: &impl Message) -> io::Result<()> {
        self.headers(stream, path)?;
        let message = message.encode_to_vec();
        let prefix = u32::try_from(message.len()).unwrap().to_be_bytes();
        let body = [&[0][..], &prefix, &message].concat();
        self.data(stream, &body, true, Duration::from_secs(5));
        Ok(())
    }

    fn take_window(&self, count: usize, patience: Duration) -> bool {
        let count = i64::try_from(count).unwrap();
        let deadline = Instant::now() + patience;
        let (seen, changed) = &*self.seen;
        let mut seen = seen.lock().unwrap();
        while seen.window < count {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || seen.closed {
                return false;
            }
            seen = changed.wait_timeout(seen, left).unwrap().0;
        }
        seen.window -= count;
        true
    }

    pub(super) fn seen<T>(&self, look: impl FnOnce(&Seen) -> T) -> T {
        look(&self.seen.0.lock().unwrap())
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // The reader holds a second handle.
        let _gone = self.stream.shutdown(std::net::Shutdown::Both);
    }
}

fn read(mut stream: UnixStream, seen: &(Mutex<Seen>, Condvar), polite: bool) {
    let mut head = [0; 9];
    while stream.read_exact(&mut head).is_ok() {
        let [a, b, c, kind, flags, id @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        if stream.read_exact(&mut payload).is_err() {
            break;
        }
        if polite && flags & ACK == 0 && matches!(kind, SETTINGS | PING) {
            let answer = if kind == PING { payload.as_slice() } else { &[] };
            if write_frame(&mut stream, kind, ACK, 0, answer).is_err() {
                break;
            }
        }
        let id = u32::from_be_bytes(id);
        let (mutex, changed) = seen;
        let mut seen = mutex.lock().unwrap();
        match kind {
            WINDOW_UPDATE if id == 0 => {
                seen.window += i64::from(u32::from_be_bytes(payload[..4].try_into().unwrap()));
            }
            DATA => *seen.data.entry(id).or_default() += payload.len(),
            HEADERS => seen.answered.push(id),
            RESET => seen.ended.push(id),
            GOAWAY => seen.goaway = true,
            _ => {}
        }
        if matches!(kind, HEADERS | DATA) && flags & END_STREAM != 0 {
            seen.ended.push(id);
        }
        changed.notify_all();
    }
    seen.0.lock().unwrap().closed = true;
    seen.1.notify_all();
}

fn write_frame(stream: &mut UnixStream, kind: u8, flags: u8, id: u32, payload: &[u8]) -> io::Result<()> {
    let [_, a, b, c] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let head = [&[a, b, c, kind, flags][..], &id.to_be_bytes(), payload].concat();
    stream.write_all(&head)
}

/// An HPACK length: seven bits, or more.
fn length(length: usize) -> Vec<u8> {
    match u8::try_from(length) {
        Ok(short) if short < 127 => vec![short],
        _ => {
            let (mut bytes, mut rest) = (vec![127], length - 127);
            while rest >= 128 {
                bytes.push(0x80 | u8::try_from(rest % 128).unwrap());
                rest /= 128;
            }
            bytes.push(u8::try_from(rest).unwrap());
            bytes
        }
    }
}
