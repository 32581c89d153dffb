//! A method and a target: what the proxy forwards is read as the same again.
#![no_main]
#![allow(dead_code, unreachable_pub)]

#[path = "../../crates/proxy/src/headers/mod.rs"]
mod headers;
#[path = "../../crates/proxy/src/path/mod.rs"]
mod path;
#[path = "../../crates/proxy/src/property.rs"]
mod property;
#[path = "../../crates/proxy/src/status.rs"]
mod status;

libfuzzer_sys::fuzz_target!(|input: &[u8]| property::address(input));
