#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| credbroker_fuzz::kubeconfig(input));
