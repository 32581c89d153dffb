//! Encodes frames and header fields as a peer does.

use super::super::hpack;

/// The preface and an empty SETTINGS frame.
pub(super) const HELLO: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// A literal field.
#[derive(Clone, Debug)]
pub(super) struct Field {
    /// First-byte pattern of the representation: 0x40, 0 or 0x10.
    pub(super) kind: u8,
    /// An index in the static table, or a name and whether it is Huffman-coded.
    pub(super) name: Result<u8, (Vec<u8>, bool)>,
    pub(super) value: Vec<u8>,
    pub(super) coded: bool,
}

impl Field {
    pub(super) fn literal(kind: u8, name: &[u8], value: &[u8]) -> Self {
        Self { kind, name: Err((name.to_vec(), false)), value: value.to_vec(), coded: false }
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let (index, name) = match &self.name {
            Ok(index) => (*index, vec![]),
            Err((name, coded)) => (0, text(name, *coded)),
        };
        let bits = if self.kind == 0x40 { 6 } else { 4 };
        [integer(self.kind, bits, index.into()), name, text(&self.value, self.coded)].concat()
    }
}

/// An `:authority` field whose name is an index in the static table.
pub(super) fn authority(value: &[u8], coded: bool) -> Vec<u8> {
    Field { kind: 0x40, name: Ok(1), value: value.to_vec(), coded }.bytes()
}

/// Huffman-codes `value`, with padding to a whole byte.
pub(crate) fn encode(value: &[u8]) -> Vec<u8> {
    let mut codes = Vec::new();
    for byte in value {
        let (mut code, mut symbols) = (0_u32, hpack::SYMBOLS.iter());
        for (length, count) in hpack::COUNTS.iter().enumerate() {
            code <<= 1;
            for symbol in symbols.by_ref().take((*count).into()) {
                if symbol == byte {
                    codes.push(format!("{code:0length$b}"));
                }
                code += 1;
            }
        }
    }
    let mut bits = codes.concat();
    bits += &"1".repeat(bits.len().next_multiple_of(8) - bits.len());
    (0..bits.len()).step_by(8).map(|at| u8::from_str_radix(&bits[at..at + 8], 2).unwrap()).collect()
}

pub(super) fn text(value: &[u8], coded: bool) -> Vec<u8> {
    let (flag, data) = if coded { (0x80, encode(value)) } else { (0, value.to_vec()) };
    [integer(flag, 7, data.len()), data].concat()
}

pub(super) fn integer(flags: u8, bits: u32, value: usize) -> Vec<u8> {
    let most = (1 << bits) - 1;
    if value < most {
        return vec![flags | u8::try_from(value).unwrap()];
    }
    let (mut bytes, mut rest) = (vec![flags | u8::try_from(most).unwrap()], value - most);
    while rest >= 0x80 {
        bytes.push(u8::try_from(rest % 0x80).unwrap() | 0x80);
        rest /= 0x80;
    }
    bytes.push(u8::try_from(rest).unwrap());
    bytes
}

/// A frame on stream 1.
pub(super) fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
}

/// A header block in one frame.
pub(super) fn headers(block: &[u8]) -> Vec<u8> {
    frame(1, 0x4, block)
}

/// The block in a HEADERS frame and CONTINUATION frames. All frames except the last have these sizes.
pub(super) fn framed(block: &[u8], sizes: &[usize], padding: Option<u8>, priority: bool) -> Vec<u8> {
    let (mut rest, mut bytes) = (block, Vec::new());
    for index in 0..=sizes.len() {
        let (part, after) =
            rest.split_at(sizes.get(index).map_or(rest.len(), |size| (*size).min(rest.len())));
        rest = after;
        let end = if index == sizes.len() { 0x4 } else { 0 };
        if index > 0 {
            bytes.extend(frame(9, end, part));
            continue;
        }
        let mut payload = Vec::from_iter(padding);
        payload.extend(priority.then_some([0, 0, 0, 0, 16]).into_iter().flatten());
        payload.extend(part);
        payload.resize(payload.len() + usize::from(padding.unwrap_or_default()), 0);
        let flags = if padding.is_some() { 0x8 } else { 0 } | if priority { 0x20 } else { 0 };
        bytes.extend(frame(1, end | flags, &payload));
    }
    bytes
}
