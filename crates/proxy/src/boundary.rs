//! Whether a watch is between two events. Pure.

use http::{HeaderMap, header};

/// Follows the bytes of a watch.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Boundary {
    /// JSON: each event is a line.
    Lines {
        /// The last byte ended a line, or there was none.
        is_between: bool,
    },
    /// Protobuf: each event has its length in front, in four bytes.
    Lengths {
        /// Bytes of the length so far.
        header: u8,
        /// The length so far, then what is left of the event.
        left: u32,
    },
    /// Another encoding, or a compressed one. The API server writes each event with one call, so the watch is between two events
    /// when all that came was passed on.
    Pauses,
}

impl Boundary {
    /// The beginning of an answer with these headers.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let content_type = headers.get(header::CONTENT_TYPE);
        let text = content_type.and_then(|value| value.to_str().ok()).unwrap_or_default();
        let kind = text.split(';').next().unwrap_or_default().trim();
        if headers.contains_key(header::CONTENT_ENCODING) {
            Self::Pauses
        } else if kind.eq_ignore_ascii_case("application/json") {
            Self::Lines { is_between: true }
        } else if kind.eq_ignore_ascii_case("application/vnd.kubernetes.protobuf") {
            Self::Lengths { header: 0, left: 0 }
        } else {
            Self::Pauses
        }
    }

    /// These bytes come next.
    pub(crate) fn pass(&mut self, mut bytes: &[u8]) {
        match self {
            Self::Lines { is_between } => {
                if let Some(last) = bytes.last() {
                    *is_between = *last == b'\n';
                }
            }
            Self::Lengths { header, left } => {
                while let Some((first, rest)) = bytes.split_first() {
                    if *header < 4 {
                        *left = *left << 8 | u32::from(*first);
                        *header += 1;
                        bytes = rest;
                    } else {
                        let here = (*left as usize).min(bytes.len());
                        *left -= u32::try_from(here).unwrap_or_default();
                        bytes = bytes.get(here..).unwrap_or_default();
                    }
                    if *header == 4 && *left == 0 {
                        *header = 0;
                    }
                }
            }
            Self::Pauses => {}
        }
    }

    pub(crate) fn is_between(&self) -> bool {
        match self {
            Self::Lines { is_between } => *is_between,
            Self::Lengths { header, .. } => *header == 0,
            Self::Pauses => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn of(kind: &'static str) -> Boundary {
        Boundary::of(&HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static(kind))]))
    }

    #[test]
    fn a_json_watch_is_between_events_after_a_line() {
        let mut watch = of("application/json;stream=watch");
        assert!(watch.is_between());
        for (bytes, expected) in
            [("{\"a\"", false), (":1}\n", true), ("", true), ("{}\n{", false), ("}\n", true)]
        {
            watch.pass(bytes.as_bytes());
            assert_eq!(watch.is_between(), expected, "{bytes}");
        }
    }

    #[test]
    fn a_protobuf_watch_is_between_events_after_the_length_that_it_announced() {
        let event = |length: u32| [&length.to_be_bytes()[..], &vec![b'\n'; length as usize]].concat();
        let stream = [event(3), event(0), event(300), event(1)].concat();
        let ends = [0, 7, 11, 315, 320];
        for size in [1, 2, 5, 1000] {
            let mut watch = of("application/vnd.kubernetes.protobuf;stream=watch");
            let mut at = 0;
            for bytes in stream.chunks(size) {
                watch.pass(bytes);
                at += bytes.len();
                assert_eq!(watch.is_between(), ends.contains(&at), "{size} {at}");
            }
        }
    }

    #[test]
    fn a_watch_of_another_encoding_ends_where_the_server_paused() {
        assert_eq!(of("application/cbor-seq"), Boundary::Pauses);
        assert_eq!(Boundary::of(&HeaderMap::new()), Boundary::Pauses);
        let compressed = [(header::CONTENT_TYPE, "application/json"), (header::CONTENT_ENCODING, "gzip")];
        let compressed = compressed.map(|(name, value)| (name, HeaderValue::from_static(value)));
        assert_eq!(Boundary::of(&HeaderMap::from_iter(compressed)), Boundary::Pauses);
    }
}
