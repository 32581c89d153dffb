//! Property tests with arbitrary bytes and with well-formed connections.

use loona_hpack::Decoder;
use proptest::{collection::vec, prelude::*};

use super::{
    super::property::{accepted, block, check, fields, filtered, frames},
    wire::{Field, HELLO, frame, framed, integer},
};

/// Values that a client may send as the authority.
fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        "(/[a-z0-9._-]{1,12}){1,6}".prop_map(String::into_bytes),
        "(%2F[a-z0-9._-]{1,12}){1,6}".prop_map(String::into_bytes),
        "[a-z]{1,9}(:[0-9]{1,4}){0,2}".prop_map(String::into_bytes),
        vec(any::<u8>(), 0..300),
    ]
}

fn literal() -> impl Strategy<Value = Field> {
    let name = prop_oneof![
        4 => Just(Ok(1)),
        2 => any::<bool>().prop_map(|coded| Err((b":authority".to_vec(), coded))),
        2 => (2..=61_u8).prop_map(Ok),
        1 => ("[a-z-]{1,20}", any::<bool>()).prop_map(|(name, coded)| Err((name.into_bytes(), coded))),
    ];
    let kind = prop_oneof![Just(0x40), Just(0), Just(0x10)];
    (kind, name, value(), any::<bool>()).prop_map(|(kind, name, value, coded)| Field {
        kind,
        name,
        value,
        coded,
    })
}

/// The bytes of a header block.
fn a_block() -> impl Strategy<Value = Vec<u8>> {
    let field = prop_oneof![
        3 => literal().prop_map(|field| field.bytes()),
        2 => (1..=61_u8).prop_map(|index| vec![0x80 | index]),
    ];
    let size = proptest::option::of((0..=4096_usize).prop_map(|size| integer(0x20, 5, size)));
    (size, vec(field, 1..8)).prop_map(|(size, fields)| [size.unwrap_or_default(), fields.concat()].concat())
}

/// The bytes of a frame, or of the frames of a block.
fn some_frames() -> impl Strategy<Value = Vec<u8>> {
    let parts = (vec(0..200_usize, 0..4), proptest::option::of(any::<u8>()), any::<bool>());
    prop_oneof![
        3 => (a_block(), parts).prop_map(|(block, (sizes, padding, priority))| framed(&block, &sizes, padding, priority)),
        1 => (prop_oneof![Just(0), Just(3), Just(4), Just(8), Just(200)], any::<u8>(), vec(any::<u8>(), 0..300))
            .prop_map(|(kind, flags, payload)| frame(kind, flags, &payload)),
    ]
}

fn sizes() -> impl Strategy<Value = Vec<usize>> {
    vec(prop_oneof![Just(1), 1..20_usize, 1..2000_usize], 1..6)
}

proptest! {
    #[test]
    fn of_any_bytes_only_refused_authorities_change(bytes in vec(any::<u8>(), 0..600), sizes in sizes()) {
        check(&bytes, &sizes);
        check(&[HELLO, &bytes].concat(), &sizes);
    }

    #[test]
    fn of_a_damaged_connection_only_refused_authorities_change(
        frames in vec(some_frames(), 1..5),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
        sizes in sizes(),
    ) {
        let mut bytes = [HELLO, &frames.concat()].concat();
        for (place, byte) in damage {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        bytes.truncate(cut.index(bytes.len()) + 1);
        check(&bytes, &sizes);
    }

    /// Uses an independent decoder: every authority that was sent as a literal is accepted after filtering.
    #[test]
    fn every_literal_authority_is_accepted_in_the_end(frames_of in vec(some_frames(), 1..6), sizes in sizes()) {
        let bytes = [HELLO, &frames_of.concat()].concat();
        check(&bytes, &sizes);
        let after = filtered(&bytes, &sizes);
        let (after, rest) = frames(&after[HELLO.len()..]);
        prop_assert!(rest.is_empty());
        let (mut decoder, mut rest) = (Decoder::new(), &after[..]);
        while !rest.is_empty() {
            let count = block(rest);
            if count > 0 {
                for (name, value) in decoder.decode(&fields(&rest[..count])).unwrap() {
                    prop_assert!(name != b":authority" || value.is_empty() || accepted(&value), "{value:?}");
                }
            }
            rest = &rest[count.max(1)..];
        }
    }
}
