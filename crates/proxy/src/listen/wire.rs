//! What the bytes of an HTTP/1.1 connection say and hyper does not repeat: it drops `Content-Length` next to
//! `Transfer-Encoding`, a second `Content-Length`, and the fragment of a URL. No I/O.
//!
//! The framing is read as hyper reads it. Where both could differ, everything after that counts as ambiguous.

use httparse::{EMPTY_HEADER, Header, Status};

use crate::headers::LONGEST;

/// Headers of a request, as many as hyper reads.
const HEADERS: usize = 100;
/// Bytes of a line of a chunked body, as many as hyper reads.
const LINE: usize = 16 * 1024;

/// A request that two programs could read differently, and why. The requests after it count as ambiguous too.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Ambiguous {
    /// Its number on the connection. The first has 1.
    pub(super) request: usize,
    pub(super) why: &'static str,
}

/// The requests of a connection, by their bytes.
#[derive(Debug, Default)]
pub(super) struct Wire {
    at: At,
    /// The beginning of a head or of a line.
    held: Vec<u8>,
    heads: usize,
}

/// Where in a request the next byte is.
#[derive(Clone, Copy, Debug, Default)]
enum At {
    #[default]
    Head,
    /// In a body or a chunk, which has as many bytes left; whether another chunk follows.
    Data { left: u64, is_chunk: bool },
    /// In the line that says how long the next chunk is.
    Size,
    /// After the last chunk.
    Trailers,
    /// Nothing can be said from here on: a tunnel, or what hyper refuses.
    Lost,
}

/// The end of a head: how many of the new bytes belong to it, what follows, and why it is ambiguous.
type Head = (usize, At, Option<&'static str>);

impl Wire {
    /// Reads on. Returns the first ambiguous request in `bytes`.
    pub(super) fn read(&mut self, mut bytes: &[u8]) -> Option<Ambiguous> {
        while !bytes.is_empty() {
            let (after, next) = match self.at {
                At::Lost => return None,
                At::Head => match self.head(bytes) {
                    Ok(None) => return None,
                    Ok(Some((used, next, None))) => (used, next),
                    Ok(Some((.., Some(why)))) => return Some(self.lose(self.heads, why)),
                    Err(why) => return Some(self.lose(self.heads + 1, why)),
                },
                At::Data { left, is_chunk } => {
                    let used = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                    let left = left - used as u64;
                    let next = match left {
                        0 if is_chunk => At::Size,
                        0 => At::Head,
                        left => At::Data { left, is_chunk },
                    };
                    (used, next)
                }
                At::Size | At::Trailers => match self.line(bytes) {
                    Ok(None) => return None,
                    Ok(Some(read)) => read,
                    Err(why) => return Some(self.lose(self.heads + 1, why)),
                },
            };
            self.at = next;
            bytes = bytes.get(after..).unwrap_or_default();
        }
        None
    }

    /// Reads a head to its end. `None`: it goes on.
    fn head(&mut self, mut bytes: &[u8]) -> Result<Option<Head>, &'static str> {
        let mut skipped = 0;
        if self.held.is_empty() {
            // Empty lines may precede a request.
            skipped = bytes.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
            bytes = bytes.get(skipped..).unwrap_or_default();
        }
        let before = self.held.len();
        self.held.extend_from_slice(bytes);
        // Parsed once: parsing after each byte would take a peer's time squared.
        let new = self.held.get(before.saturating_sub(3)..).unwrap_or_default();
        if !(new.windows(2).any(|end| end == b"\n\n") || new.windows(3).any(|end| end == b"\n\r\n")) {
            let is_too_long = self.held.len() > 2 * LONGEST;
            return if is_too_long { Err("the head of the request is too long") } else { Ok(None) };
        }
        let mut headers = [EMPTY_HEADER; HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        let Ok(Status::Complete(length)) = request.parse(&self.held) else { return Err(UNREADABLE) };
        let (next, why) = framing(request.path.unwrap_or_default(), request.headers)?;
        self.heads += 1;
        self.held.clear();
        Ok(Some((skipped + length - before, next, why)))
    }

    /// Reads a line of a chunked body to its end: the bytes that belong to it, and what follows.
    fn line(&mut self, bytes: &[u8]) -> Result<Option<(usize, At)>, &'static str> {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let used = end.map_or(bytes.len(), |end| end + 1);
        self.held.extend_from_slice(bytes.get(..used).unwrap_or_default());
        if self.held.len() > LINE {
            return Err(UNREADABLE);
        }
        if end.is_none() {
            return Ok(None);
        }
        let line = self.held.strip_suffix(b"\r\n").ok_or(UNREADABLE)?;
        let next = match self.at {
            At::Trailers if line.is_empty() => At::Head,
            At::Trailers => At::Trailers,
            _ => match chunk_size(line).ok_or(UNREADABLE)? {
                0 => At::Trailers,
                // With the end of its line.
                size => At::Data { left: size.checked_add(2).ok_or(UNREADABLE)?, is_chunk: true },
            },
        };
        self.held.clear();
        Ok(Some((used, next)))
    }

    /// From this request on, nothing can be said.
    fn lose(&mut self, request: usize, why: &'static str) -> Ambiguous {
        (self.at, self.held) = (At::Lost, Vec::new());
        Ambiguous { request, why }
    }
}

/// What follows a head, and why it is ambiguous.
fn framing(target: &str, headers: &[Header<'_>]) -> Result<(At, Option<&'static str>), &'static str> {
    let all = |name: &'static str| {
        headers.iter().filter(move |header| header.name.eq_ignore_ascii_case(name)).map(|header| header.value)
    };
    let (mut lengths, mut encodings) = (all("content-length"), all("transfer-encoding"));
    let (length, encoding) = (lengths.next(), encodings.next());
    let why = match (length, encoding) {
        (Some(_), Some(_)) => Some("the request has `Transfer-Encoding` and `Content-Length`"),
        _ if lengths.next().is_some() => Some("the request has the header `content-length` twice"),
        _ if target.contains('#') => Some("the path has a fragment (`#`)"),
        _ => None,
    };
    let next = match (length, encoding) {
        (None, None) => At::Head,
        // Another encoding than `chunked` is refused with the headers.
        (_, Some(_)) => At::Size,
        (Some(length), None) => match digits(length, 10).ok_or(UNREADABLE)? {
            0 => At::Head,
            left => At::Data { left, is_chunk: false },
        },
    };
    Ok((next, why))
}

/// The length in the first line of a chunk. What follows it, such as an extension, has no meaning.
fn chunk_size(line: &[u8]) -> Option<u64> {
    let end = line.iter().position(|byte| !byte.is_ascii_hexdigit()).unwrap_or(line.len());
    digits(line.get(..end)?, 16)
}

fn digits(text: &[u8], radix: u32) -> Option<u64> {
    let text = str::from_utf8(text).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    u64::from_str_radix(text, radix).ok()
}

const UNREADABLE: &str = "the request before this one cannot be read";

#[cfg(test)]
mod tests;
