//! The same requests read by this crate and by `k8s.io/apiserver`. `CREDBROKER_REQUEST_INFO` names the program of `oracle/`, and
//! `CREDBROKER_REQUESTS` how many requests there are (100,000). Without the program, nothing is compared.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests end by panics")]
#![allow(clippy::disallowed_methods, reason = "the program is started here")]

use credbroker_request_info::RequestInfo;
use fastrand::Rng;

mod oracle;

use oracle::{Oracle, attributes, count, request};

const SEED: u64 = 0x63_7265_6462;

#[test]
fn requests_have_the_attributes_that_the_api_server_gives_them() {
    let mut rng = Rng::with_seed(SEED);
    let started = Oracle::start(move || {
        let (method, target) = request(&mut rng);
        (format!("{method} {target}"), (method, target))
    });
    let Some((mut oracle, requests, writer)) = started else { return };
    let (mut accepted, mut resources) = (0, 0);
    for (method, target) in requests {
        let theirs = oracle.next();
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        // What this crate refuses, the proxy refuses too.
        let Ok(ours) = RequestInfo::of(&method, path, query) else { continue };
        accepted += 1;
        resources += usize::from(ours.is_resource);
        assert_eq!(Some(attributes(ours)), theirs.part("attributes"), "{method} {target}");
    }
    writer.join().unwrap();
    oracle.end();
    assert!(
        accepted > count() / 2 && resources > count() / 4,
        "{accepted} accepted, {resources} for resources, of {}",
        count()
    );
}
