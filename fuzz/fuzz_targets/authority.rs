//! Any bytes of a peer in any chunks: the filter changes nothing but authorities that h2 would refuse.
#![no_main]

#[path = "../../crates/h2-unix-authority/src/frames.rs"]
mod frames;
#[path = "../../crates/h2-unix-authority/src/hpack.rs"]
mod hpack;
#[path = "../../crates/h2-unix-authority/src/property.rs"]
mod property;

use libfuzzer_sys::fuzz_target;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

fuzz_target!(|input: &[u8]| {
    let Some((sizes, bytes)) = input.split_first_chunk::<3>() else { return };
    let sizes = sizes.map(usize::from);
    property::check(bytes, &sizes);
    property::check(&[PREFACE, bytes].concat(), &sizes);
});
