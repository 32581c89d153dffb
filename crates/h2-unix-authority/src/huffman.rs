//! HPACK's Huffman code (RFC 7541, section 5.2 and appendix B).
//!
//! The code is canonical: a longer code is greater than a shorter one, and among codes of one length, the order is that
//! of the symbols. The lengths therefore define all codes.

/// Length of each symbol's code in bits.
const LENGTHS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28,
    28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6,
    6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7,
    8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7,
    15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24,
    23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23,
    23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26,
    26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20,
    21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27,
    27, 27, 26,
];
/// Length of the longest code in bits.
const LONGEST: usize = 30;
const CODES: Codes = Codes::new();

struct Codes {
    /// Codes by symbol.
    of: [u32; 256],
    /// Symbols in the order of their codes.
    ordered: [u8; 256],
    /// The range of codes of each length.
    levels: [CodeLevel; LONGEST + 1],
}

#[derive(Clone, Copy)]
struct CodeLevel {
    first: u32,
    count: u32,
    /// Index in `ordered` of the symbol of `first`.
    place: u32,
}

impl Codes {
    #[expect(clippy::indexing_slicing, reason = "evaluated by the compiler")]
    const fn new() -> Self {
        let mut codes = Self {
            of: [0; 256],
            ordered: [0; 256],
            levels: [CodeLevel { first: 0, count: 0, place: 0 }; LONGEST + 1],
        };
        let (mut code, mut place, mut length) = (0, 0, 1);
        while length <= LONGEST {
            code <<= 1;
            let first = CodeLevel { first: code, count: 0, place };
            let mut symbol = 0_u8;
            loop {
                if LENGTHS[symbol as usize] as usize == length {
                    codes.of[symbol as usize] = code;
                    codes.ordered[place as usize] = symbol;
                    code += 1;
                    place += 1;
                }
                if symbol == u8::MAX {
                    break;
                }
                symbol += 1;
            }
            codes.levels[length] = CodeLevel { count: code - first.first, ..first };
            length += 1;
        }
        codes
    }

    fn symbol(&self, code: u32, length: usize) -> Option<u8> {
        let level = self.levels.get(length)?;
        let after = code.checked_sub(level.first).filter(|after| *after < level.count)?;
        self.ordered.get(usize::try_from(level.place + after).ok()?).copied()
    }
}

/// Decodes `data`. `None`: a code is invalid, or the padding is not at most seven bits of ones.
pub(super) fn decode(data: &[u8]) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(data.len() * 8 / 5);
    let (mut code, mut length) = (0, 0);
    for bit in data.iter().flat_map(|byte| (0..8).rev().map(move |place| byte >> place & 1)) {
        (code, length) = (code << 1 | u32::from(bit), length + 1);
        if let Some(symbol) = CODES.symbol(code, length) {
            decoded.push(symbol);
            (code, length) = (0, 0);
        } else if length == LONGEST {
            return None;
        }
    }
    (length < 8 && code == (1 << length) - 1).then_some(decoded)
}

/// Encodes `value`, with padding to a whole byte.
pub(super) fn encode(value: &[u8]) -> Vec<u8> {
    let mut data = Vec::with_capacity(value.len());
    let (mut bits, mut count) = (0_u64, 0);
    for byte in value {
        let code = CODES.of.get(usize::from(*byte)).copied().unwrap_or_default();
        let length = LENGTHS.get(usize::from(*byte)).copied().unwrap_or_default();
        (bits, count) = (bits << length | u64::from(code), count + u32::from(length));
        while count >= 8 {
            count -= 8;
            data.extend((bits >> count).to_be_bytes().last());
        }
    }
    if count > 0 {
        let padded = bits << (8 - count) | 0xff >> count;
        data.extend(padded.to_be_bytes().last());
    }
    data
}

#[cfg(test)]
mod tests {
    use loona_hpack::huffman::HuffmanDecoder;

    use super::*;

    #[test]
    fn every_byte_has_the_code_of_the_specification() {
        for first in 0..=u8::MAX {
            for value in [vec![first], vec![first, b'a'], vec![b'%', first, first]] {
                let data = encode(&value);
                assert_eq!(HuffmanDecoder::new().decode(&data).unwrap(), value);
                assert_eq!(decode(&data).unwrap(), value);
            }
        }
        assert_eq!(decode(&[]), Some(vec![]));
        // From the specification, appendix C.4.1.
        let example = [0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff];
        assert_eq!(encode(b"www.example.com"), example);
    }
}
