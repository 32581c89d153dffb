//! `KUBERNETES_EXEC_INFO`, as the shim reads it, and as the broker writes it.
#![no_main]
#![allow(dead_code, unreachable_pub)]

#[path = "../../client/exec/src/exec_info.rs"]
mod exec_info;

// Where the module finds it.
mod document {
    pub use credbroker_exec::ApiVersion;
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    credbroker_fuzz::exec_info_of_cluster(input);
    if let Ok(text) = std::str::from_utf8(input) {
        drop(exec_info::parse(text));
    }
});
