//! The checks of the fuzz targets, with their seeds and with changes of them.

use proptest::{prelude::*, sample::Index};

#[path = "../../fuzz/src/lib.rs"]
#[expect(unreachable_pub, reason = "public for the fuzz targets")]
mod checks;

/// Changes in each input.
const CHANGES: usize = 4;

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let directory = format!("{}/fuzz/seeds/{target}", env!("CARGO_MANIFEST_DIR"));
    let files =
        std::fs::read_dir(directory).unwrap().map(|file| std::fs::read(file.unwrap().path()).unwrap());
    files.collect()
}

/// Checks each seed, and seeds of which some bytes are replaced, removed or repeated.
fn check(target: &str, cases: u32, check: fn(&[u8])) {
    let seeds = seeds(target);
    assert!(!seeds.is_empty(), "fuzz/seeds/{target} is empty");
    for seed in &seeds {
        check(seed);
    }
    let change = (any::<Index>(), 0..3_u8, any::<u8>(), 1..40_usize);
    let changed = (prop::sample::select(seeds), prop::collection::vec(change, 1..=CHANGES));
    let mut config = ProptestConfig::with_cases(cases);
    config.failure_persistence = None;
    proptest!(config, |((mut bytes, changes) in changed)| {
        for (at, kind, byte, count) in changes {
            if bytes.is_empty() {
                break;
            }
            let at = at.index(bytes.len());
            let end = (at + count).min(bytes.len());
            match kind {
                0 => bytes[at] = byte,
                1 => drop(bytes.drain(at..end)),
                _ => bytes = [&bytes[..end], &bytes[at..]].concat(),
            }
        }
        check(&bytes);
    });
}

#[test]
fn the_output_of_a_plugin() {
    check("output", 500, checks::output);
}

#[test]
fn a_certificate_chain_and_its_key() {
    check("pem", 100, checks::pem);
}

#[test]
fn a_configuration() {
    check("config", 200, checks::config);
}

#[test]
fn a_kubeconfig() {
    check("kubeconfig", 200, checks::kubeconfig);
}

#[test]
fn a_cluster_for_a_plugin() {
    check("exec_info", 500, checks::exec_info_of_cluster);
}

#[test]
fn a_cluster_profile() {
    check("profile", 100, checks::profile);
}

#[test]
fn the_messages_of_every_rpc() {
    check("rpc", 2000, checks::rpc);
}
